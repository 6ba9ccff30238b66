"""Decides what follows from the answers of a survey (`survey.py`): who goes on as master, who has more, who took over.

Of two masters of a name:

    leads, or is about to        the other one continues
    waits, as this one does      the one with the longer log continues, of two equal ones the lesser address
    does not say (Apache)        the other one continues

A master in service asks for a successor when a name server lists another one instead. Any host that reaches a name
server can be listed there. So a listing alone does not stop a master that was listed and leads. What counts is an epoch
that is not in this log, whose number is not lower, and which broker shows it:

    the link authenticates brokers       the broker that is listed, and slaves that this master knew: a slave has the
    (secret or certificate)              epoch of the master that it follows in its log
    it does not                          slaves that this master knew, at the addresses where it knew them, if they are
                                         master now and opened the epoch themselves: a slave follows any master that
                                         name servers list, even a foreign one. Apache's brokers have no epochs: they
                                         count if they are master

Invariant: nothing here asks, waits, or keeps anything: the same answers have the same consequences.
Invariant: only a broker that answers this itself counts as a master: one that is listed may have died a moment ago. Two
masters that cannot reach each other are not detected here.
Invariant: of two masters that reach each other one continues; of two that lead, the one that a name server lists.
Answers to: nothing in 4.x, where each name server lists the broker that registered last; 5.x's controller elects.
Unlike Java: an Apache broker that starts as a second master overwrites the first in the name server's list.
"""

from collections.abc import Container, Mapping, Sequence

import attrs

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.peers import no_ha_addr
from rocketrio_broker.ha.survey import FRESH_FOR, PeerView, Survey
from rocketrio_broker.ha.torn_end import PeerLog
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import AccessRefusedError, BrokerError, Error
from rocketrio_protocol.ha.exchange import Epoch, Welcome


@attrs.frozen
class OtherMaster:
    """Another broker that is master of this name."""

    addr: str
    ha_addr: str | None = None
    is_rocketrio: bool = False
    leads: bool = True
    """Whether it takes writes, or is about to; assumed of a broker that does not say."""
    log_end: int = 0
    is_listed: bool = False
    """Whether nothing else is known than that a name server lists it, and refused this broker."""

    def goes_before(self, own_end: int, own_addr: str) -> bool:
        """Return whether it is the one of the two that continues."""
        return self.leads or (-self.log_end, self.addr) < (-own_end, own_addr)


# --- who is master -------------------------------------------------------------------------------


def other_masters(found: Survey) -> list[OtherMaster]:
    """Return the other masters of this name; those that lead come first."""
    masters = [
        master for view in found.views.values() if (master := _as_master(view, found.broker_name))
    ]
    listed = {one[MASTER_ID] for one in found.listed.values() if MASTER_ID in one}
    # Of two that lead the name servers decide: the one that is not listed gives way.
    if found.own_addr in listed:
        masters = [one for one in masters if one.addr in listed or not one.leads]
    return sorted(masters, key=lambda one: (not one.leads, one.addr))


def _as_master(view: PeerView, broker_name: str) -> OtherMaster | None:
    identity = view.identity
    if identity is None or not view.is_of(broker_name) or view.is_slave_of(broker_name):
        return None
    if identity.role is None:
        # An Apache broker never waits for another one: if it is master, it leads.
        return OtherMaster(view.addr, identity.ha_addr)
    claims = identity.claims is not False
    return OtherMaster(view.addr, identity.ha_addr, True, claims, view.log_end or 0)


def rival(found: Survey, own_end: int) -> OtherMaster | None:
    """Return the master that continues in place of a broker whose log ends at `own_end`, or None."""
    for other in other_masters(found):
        if other.goes_before(own_end, found.own_addr):
            return other
    return None


def leader(found: Survey) -> OtherMaster | None:
    """Return another master that leads or claims the name, or None."""
    return next((other for other in other_masters(found) if other.leads), None)


def slaves_of(found: Survey) -> frozenset[str]:
    """Return the brokers of this name that answered that they are not master."""
    return frozenset(
        view.addr for view in found.views.values() if view.is_slave_of(found.broker_name)
    )


def silent_brokers(found: Survey) -> frozenset[str]:
    """Return the brokers that could not be asked: those without an answer, and those whose address was given away."""
    return frozenset(
        view.addr
        for view in found.views.values()
        if view.identity is None or view.is_given_away(found.broker_name)
    )


def why_nobody_leads(found: Survey) -> str | None:
    """Return what is wrong if no broker that this slave knows is master; None if one is."""
    slaves, silent = slaves_of(found), silent_brokers(found)
    if other_masters(found) or not (slaves or silent):
        return None
    told = []
    if slaves:
        told.append(f"slaves are this one and {', '.join(sorted(slaves))}")
    if silent:
        told.append(f"no answer comes from {', '.join(sorted(silent))}")
    return (
        f"{found.broker_name} has no master: {'; '.join(told)}. Bring the master back, or make the "
        "slave that has most of the log master, with `rocketrio broker role`"
    )


def all_are_slaves(found: Survey, last_master: str | None) -> bool:
    """Return whether a name server and all brokers of the name have answered, and all of these are slaves."""
    slaves = slaves_of(found)
    return bool(
        found.listed
        and slaves
        and not other_masters(found)
        and not silent_brokers(found)
        # A silent last master may still take writes where this broker cannot see it.
        and (last_master is None or last_master in slaves)
    )


# --- who has what this broker lacks ----------------------------------------------------------------


def tail_sources(found: Survey) -> list[PeerLog]:
    """Return the logs that are known: those of the slaves, and of the brokers that were asked too."""
    asked = found.expected | found.also
    return [
        view.log
        for addr, view in sorted(found.views.items())
        if addr in asked and view.log is not None and not view.is_given_away(found.broker_name)
    ]


def longer_logs(found: Survey, own_end: int, but: Container[str] = ()) -> list[PeerLog]:
    """Return the logs that go further than one that ends at `own_end`, without those of the brokers `but`."""
    return [log for log in tail_sources(found) if log.end > own_end and log.addr not in but]


def is_fresh(found: Survey, now: float) -> bool:
    """Return whether what was answered about the ends of these logs may still be used."""
    ends = {log.addr for log in tail_sources(found)}
    return all(found.views[addr].answered_at + FRESH_FOR >= now for addr in ends)


def unasked(found: Survey) -> dict[str, Error]:
    """Return the name servers and slaves that may know of messages and have not said what, and why."""
    problems = dict(found.silent_servers)
    for addr in sorted(found.expected):
        view = found.views.get(addr, PeerView(addr))
        if view.log is None and not view.is_given_away(found.broker_name):
            problems[addr] = view.problem or no_ha_addr(addr)
    return problems


# --- who took over --------------------------------------------------------------------------------


def shows_successor(
    view: PeerView, own: Sequence[Epoch], *, broker_name: str, is_proved: bool
) -> bool:
    """Return whether a broker shows that it, or its master, has taken over from a log with these epochs.

    `is_proved`: the link authenticates brokers.
    """
    identity = view.identity
    if identity is None or not view.is_of(broker_name):
        return False
    if not identity.is_rocketrio:
        return not is_proved and identity.broker_id == MASTER_ID
    answer = view.welcome
    return answer is not None and _is_later(answer, own) and (is_proved or _is_opener(answer))


def _is_later(answer: Welcome, own: Sequence[Epoch]) -> bool:
    """Return whether the last epoch of the answering log began after all of this log's, or beside its last one."""
    if not (own and answer.epochs):
        return False
    last = answer.epochs[-1]
    return last.number >= own[-1].number and last.key not in {line.key for line in own}


def _is_opener(answer: Welcome) -> bool:
    """Return whether the broker that answers is master, and opened the last epoch of its log."""
    return answer.broker_id == MASTER_ID and answer.epochs[-1].member == answer.member


def has_later_epoch(view: PeerView, own: Sequence[Epoch]) -> bool:
    """Return whether the log of a broker has an epoch that began after all of these."""
    answer = view.welcome
    return (
        answer is not None
        and bool(own and answer.epochs)
        and answer.epochs[-1].number > own[-1].number
    )


# --- who can take over, who has an id ----------------------------------------------------------------


def why_not_follower(view: PeerView, behind: Mapping[str, int], *, limit: int) -> str | None:
    """Return why a slave cannot take over, None if it can.

    `behind` has the bytes that each slave lacks, by the address of its end of the stream; `limit` of them are allowed.
    """
    if isinstance(view.problem, AccessRefusedError):
        return (
            f"does not say who it is ({view.problem.remark}): give both the same inner account; while it is of an "
            "earlier version, name its host in acl_plain_signatures_from here"
        )
    if view.problem is not None and not isinstance(view.problem, BrokerError):
        return f"cannot be asked: {view.problem.what}"
    own = None if view.status is None else view.status.rocketrio
    if view.status is None or own is None:
        return "is an Apache broker, which cannot take over while it runs"
    if own.role != "slave":
        return f"is {own.role}"
    client = view.status.ha_client_runtime_info
    # A slave of an earlier version reports no id, and its text for this state is the id.
    if (client.rocketrio_state_id or client.rocketrio_state) != HAClientState.FOLLOWING.value:
        problem = client.rocketrio_last_problem
        return f"is {client.rocketrio_state}" + (f": {problem}" if problem else "")
    lacks = behind.get(view.stream)
    if lacks is None:
        return "has no replication connection to this master"
    if lacks > limit:
        return f"is {lacks} bytes behind, more than {limit}"
    return None


def has_id(view: PeerView, broker_name: str, broker_id: int) -> bool:
    """Return whether a broker says that it has this name and id."""
    identity = view.identity
    return identity is not None and view.is_of(broker_name) and identity.broker_id == broker_id
