"""Combines the brokers' own answers to the state of a cluster's replication.

A master knows how far behind its slaves are, and a slave knows what stops it. A slave reports the address of its end of
the connection, which identifies it at the master; otherwise the host does, if only one slave of a name runs there.

Invariant: a value that no broker reported is None, never zero.
Answers to: HAStatusSubCommand (`mqadmin haStatus`), which shows one broker's answer.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Self

import attrs

from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.ha.status import (
    BeyondBoundary,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    LastWait,
)
from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.remoting.ports import join_addr, split_addr

_ROLES: Final = {"ASYNC_MASTER": "async-master", "SYNC_MASTER": "sync-master", "SLAVE": "slave"}

TAKES_WRITES: Final = "takes writes"
NO_WRITES: Final = "takes no writes"
NOT_REACHABLE: Final = "not reachable"
REFUSED: Final = "access refused"
"""It answers, but not to this account: what else it is, is unknown."""
UNKNOWN_STATES: Final = frozenset({NOT_REACHABLE, REFUSED})
"""The states of brokers of which nothing more is known."""
CONNECTED: Final = "connected"
NOT_CONNECTED: Final = "not connected to its master"
_STATE_IDS: Final = {
    TAKES_WRITES: "takes_writes",
    NO_WRITES: "takes_no_writes",
    NOT_REACHABLE: "not_reachable",
    REFUSED: "access_refused",
    CONNECTED: "connected",
    NOT_CONNECTED: "not_connected",
}
"""The ids of the states that are worded here. A slave that says itself what it is doing reports id and text."""
LIVE_REPORT: Final = 10.0
"""Seconds since a slave's last report up to which its connection is surely alive: two of its heartbeats."""


@attrs.frozen
class BrokerDescription:
    """One registered broker."""

    cluster: str
    broker_name: str
    broker_id: int
    role: str
    """`master` or `slave`."""
    broker_role: str | None
    """The role in its own settings: `ASYNC_MASTER`, `SYNC_MASTER`, `SLAVE`."""
    address: str
    ha_address: str | None
    """The address from which slaves fetch its log."""
    min_physical_offset: int | None
    max_physical_offset: int | None
    version: str | None

    @classmethod
    def of(
        cls,
        cluster: str,
        broker_name: str,
        broker_id: int,
        address: str,
        runtime: Mapping[str, str],
        config: Mapping[str, str],
    ) -> Self:
        """Combine the tables in which a broker describes itself; any field may be missing."""
        ha_port = decimal_value(config.get("haListenPort"))
        ha_host = config.get("brokerIP2") or split_addr(address)[0]
        return cls(
            cluster=cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            role="master" if broker_id == MASTER_ID else "slave",
            broker_role=config.get("brokerRole"),
            address=address,
            ha_address=None if ha_port is None else join_addr(ha_host, ha_port),
            min_physical_offset=decimal_value(runtime.get("commitLogMinOffset")),
            max_physical_offset=decimal_value(runtime.get("commitLogMaxOffset")),
            version=runtime.get("brokerVersionDesc"),
        )


@attrs.frozen
class BrokerAnswers:
    """What one broker answered."""

    broker: BrokerDescription
    ha: HARuntimeInfo | None = None
    """None if the broker does not know the request (Apache 4.x), or could not be asked."""
    problem: str | None = None
    """Why it could not be asked."""
    is_refused: bool = False
    """Whether access control is why."""
    clock_ahead: float | None = None
    """How many seconds its clock is ahead of the caller's at least, negative if it is behind; None if unknown."""


@attrs.frozen
class BrokerStatus:
    """The state of one broker, in relation to the brokers of its name."""

    cluster: str
    broker_name: str
    broker_id: int
    role: str
    """`async-master`, `sync-master` or `slave`; `master` if nothing more is known."""
    address: str
    state: str | None
    """For a master, whether it takes writes; for a slave, what it is doing."""
    min_physical_offset: int | None
    max_physical_offset: int | None
    """The end of its log."""
    follows: str | None
    """The address from which a slave fetches the log."""
    bytes_behind: int | None
    """For a slave: the bytes that it has not acknowledged, or the difference between its log's end and the master's."""
    seconds_behind: float | None
    """How long the master has stored the first byte that the slave has not acknowledged; if the master does not report
    that, the time since the slave last had everything that its master had."""
    seconds_since_report: float | None
    """The time since the slave last reported its offset to the master."""
    bytes_per_second: int | None
    """The rate at which a slave receives the log."""
    acknowledges: str | None
    """Where a slave must have a byte before it acknowledges it: `memory` or `disk`."""
    problem: str | None
    """Why the broker takes no writes, why the log does not arrive, what is wrong with clock, log or disk, or why the
    broker could not be asked."""
    last_wait: LastWait | None
    """What the last send that had to wait for the disk or for slaves has waited for."""
    answered: Mapping[str, int] | None
    """How often such sends were answered with each status since the broker started."""
    shown_physical_offset: int | None = None
    """Readers see messages that end at or before it; None if they see all that is stored, or if it is unknown."""
    shown_by: str | None = None
    """What determines that: `slaves`, `disk`, `nobody` or `master` (rocketrio_protocol.ha.status.OwnStatus)."""
    epoch: str | None = None
    """The last epoch in its log, as `3/07f1…`: brokers with the same history have the same epoch; None if unknown."""
    beyond: BeyondBoundary | None = None
    """Data of a slave that its master lacks and an operator must decide about."""
    configured: str | None = None
    """Role and id in its settings, as `async-master 0`; an order or its return to the cluster may have changed them."""
    clock_ahead: float | None = None
    """How many seconds its clock is ahead of the caller's at least, negative if it is behind. Apache's report none."""
    state_id: str | None = None
    """The state for programs, which compare it: unlike `state` it never changes. None if the broker reported none."""

    @property
    def where(self) -> str:
        """How texts name it."""
        return f"{self.broker_name} {self.broker_id} ({self.address})"

    @property
    def is_as_configured(self) -> bool:
        """Whether it has the role of its settings, as far as it reports them."""
        return self.configured in (None, f"{self.role} {self.broker_id}")

    @property
    def copied(self) -> float | None:
        """The part of its master's log that a slave has, from 0 to 1."""
        if self.bytes_behind is None or self.max_physical_offset is None:
            return None
        has = self.max_physical_offset - (self.min_physical_offset or 0)
        whole = has + self.bytes_behind
        return has / whole if whole else 1.0

    @property
    def seconds_left(self) -> float | None:
        """The time until a slave has caught up, at its present rate; None while it receives nothing."""
        if self.bytes_behind == 0:
            return 0.0
        if self.bytes_behind is None or not self.bytes_per_second:
            return None
        return self.bytes_behind / self.bytes_per_second


def cluster_status(answers: Iterable[BrokerAnswers]) -> list[BrokerStatus]:
    """Return one status for each broker, sorted by cluster, name and id."""
    names: dict[tuple[str, str], list[BrokerAnswers]] = defaultdict(list)
    for one in answers:
        names[one.broker.cluster, one.broker.broker_name].append(one)
    found: list[BrokerStatus] = []
    for _, members in sorted(names.items()):
        members.sort(key=lambda one: one.broker.broker_id)
        # A second master of a name is registered with its former role, if at all; its own answer has the real one.
        slaves = [one for one in members if _role(one) == "slave"]
        masters = [one for one in members if one not in slaves]
        listed = [one for one in masters if one.broker.broker_id == MASTER_ID]
        master = listed[0] if listed else None
        found += [_master_status(one, slaves if one is master else None) for one in masters]
        connections = _connections_by_slave(master, slaves)
        found += [
            _slave_status(one, master, connections.get(one.broker.broker_id)) for one in slaves
        ]
    return found


def clock_ahead(now_ms: int, asked_ms: int, answered_ms: int) -> float:
    """Return how many seconds a clock is ahead of the caller's at least, whenever it was read meanwhile."""
    if asked_ms <= now_ms <= answered_ms:
        return 0.0
    return (now_ms - (answered_ms if now_ms > answered_ms else asked_ms)) / 1000


def _connections_by_slave(
    master: BrokerAnswers | None, slaves: list[BrokerAnswers]
) -> dict[int, HAConnectionRuntimeInfo]:
    if master is None or master.ha is None:
        return {}
    by_addr = {one.addr: one for one in master.ha.ha_connection_info}
    by_id = {one.rocketrio_broker_id: one for one in by_addr.values() if one.rocketrio_broker_id}
    found: dict[int, HAConnectionRuntimeInfo] = {}
    left: dict[str, list[int]] = defaultdict(list)
    for slave in slaves:
        own_end = slave.ha and slave.ha.ha_client_runtime_info.rocketrio_local_addr
        connection = by_addr.get(own_end or "") or by_id.get(slave.broker.broker_id)
        if connection is not None and connection.addr in by_addr:
            found[slave.broker.broker_id] = by_addr.pop(connection.addr)
        else:
            left[split_addr(slave.broker.address)[0]].append(slave.broker.broker_id)
    for host, ids in left.items():
        there = [one for one in by_addr.values() if split_addr(one.addr)[0] == host]
        if len(ids) == len(there) == 1:
            found[ids[0]] = there[0]
    return found


def _unlisted(master: BrokerAnswers, slaves: list[BrokerAnswers]) -> str | None:
    """Return what is wrong if more slaves follow a master than are registered; a dead connection reports nothing."""
    connections = master.ha.ha_connection_info if master.ha else []
    ages = [one.rocketrio_report_age for one in connections]
    live = sum(age is not None and age < LIVE_REPORT for age in ages)
    if live <= len(slaves):
        return None
    known = f"clients know only {len(slaves)}"
    return f"{live} slaves follow it, and {known}: two have one id (--id), or one cannot register"


def _master_status(one: BrokerAnswers, slaves: list[BrokerAnswers] | None) -> BrokerStatus:
    """Return the status of a master; `slaves` are those that are registered, None for a second master."""
    own = one.ha and one.ha.rocketrio
    refusal = own.refusal if own else None
    if one.problem is not None:
        state: str | None = _unknown_state(one)
    elif own:
        state = NO_WRITES if refusal else TAKES_WRITES
    else:
        state = None
    unlisted = None if slaves is None else _unlisted(one, slaves)
    problem = _problem(one, refusal or (own.last_problem if own else None), unlisted)
    return attrs.evolve(
        _status(one, state, problem),
        last_wait=own.last_wait if own else None,
        answered=own.answered if own else None,
    )


def _slave_status(
    one: BrokerAnswers, master: BrokerAnswers | None, connection: HAConnectionRuntimeInfo | None
) -> BrokerStatus:
    client = one.ha.ha_client_runtime_info if one.ha else None
    rate = None
    if client and one.ha and not one.ha.master:
        rate = client.rocketrio_copy_rate
        rate = client.transferred_byte_in_second if rate is None else rate
    if rate is None and connection is not None:
        rate = connection.transferred_byte_in_second
    problem = one.problem
    if client and problem is None:
        problem = _problem(one, client.rocketrio_last_problem or client.rocketrio_tables_problem)
    return attrs.evolve(
        _status(one, _slave_state(one, master, connection), problem),
        follows=(client.master_addr or None) if client else None,
        bytes_behind=_bytes_behind(one, master, connection),
        seconds_behind=_seconds_behind(client, connection),
        seconds_since_report=connection.rocketrio_report_age if connection else None,
        bytes_per_second=rate,
        acknowledges=client.rocketrio_acknowledges if client else None,
    )


def _status(one: BrokerAnswers, state: str | None, problem: str | None) -> BrokerStatus:
    """Return what masters and slaves report alike; what only one of them reports is None."""
    own = one.ha and one.ha.rocketrio
    return BrokerStatus(
        cluster=one.broker.cluster,
        broker_name=one.broker.broker_name,
        broker_id=one.broker.broker_id,
        role=_role(one),
        address=one.broker.address,
        state=state,
        min_physical_offset=_begin(one),
        max_physical_offset=_end(one),
        follows=None,
        bytes_behind=None,
        seconds_behind=None,
        seconds_since_report=None,
        bytes_per_second=None,
        acknowledges=None,
        problem=problem,
        last_wait=None,
        answered=None,
        shown_physical_offset=own.shown_offset if own else None,
        shown_by=own.shown_by if own else None,
        configured=_configured(one),
        clock_ahead=one.clock_ahead,
        epoch=_epoch(one),
        beyond=own.beyond if own else None,
        state_id=_state_id(one, state),
    )


def _state_id(one: BrokerAnswers, state: str | None) -> str | None:
    if state in _STATE_IDS:
        return _STATE_IDS[state]
    return one.ha.ha_client_runtime_info.rocketrio_state_id if one.ha else None


def _unknown_state(one: BrokerAnswers) -> str:
    return REFUSED if one.is_refused else NOT_REACHABLE


def _problem(one: BrokerAnswers, *of_replication: str | None) -> str | None:
    """Return everything that is wrong, each problem once: a broker may refuse messages because of one."""
    if one.problem is not None:
        return one.problem
    own = one.ha.rocketrio.problems if one.ha and one.ha.rocketrio else []
    return "; ".join(dict.fromkeys(filter(None, [*of_replication, *own]))) or None


def _slave_state(
    one: BrokerAnswers, master: BrokerAnswers | None, connection: HAConnectionRuntimeInfo | None
) -> str | None:
    if one.problem is not None:
        return _unknown_state(one)
    reported = one.ha and one.ha.ha_client_runtime_info.rocketrio_state
    if reported:
        return reported
    if connection is not None:
        return CONNECTED
    return NOT_CONNECTED if master is not None and master.ha is not None else None


def _bytes_behind(
    one: BrokerAnswers, master: BrokerAnswers | None, connection: HAConnectionRuntimeInfo | None
) -> int | None:
    if connection is not None:
        # Below 0 the slave has what its master lacks, so how much it has of the master's log is unknown.
        return connection.diff if connection.diff >= 0 else None
    end, masters = _end(one), None if master is None else _end(master)
    if end is None or masters is None:
        return None
    # A slave that answered after its master may have more by then: when the master answered, it lacked nothing.
    return masters - end if masters > end else 0


def _seconds_behind(
    client: HAClientRuntimeInfo | None, connection: HAConnectionRuntimeInfo | None
) -> float | None:
    if connection is not None and connection.rocketrio_seconds_behind is not None:
        return connection.rocketrio_seconds_behind
    return client.rocketrio_level_age if client else None


def _begin(one: BrokerAnswers) -> int | None:
    if one.ha is not None and one.ha.rocketrio is not None:
        return one.ha.rocketrio.min_offset
    return one.broker.min_physical_offset


def _end(one: BrokerAnswers) -> int | None:
    if one.ha is None:
        return one.broker.max_physical_offset
    if one.ha.rocketrio is not None:
        return one.ha.rocketrio.max_offset
    if one.ha.master:
        return one.ha.master_commit_log_max_offset
    return one.ha.ha_client_runtime_info.max_offset


def _epoch(one: BrokerAnswers) -> str | None:
    own = one.ha and one.ha.rocketrio
    return f"{own.epoch}/{own.epoch_id}" if own and own.epoch is not None else None


def _configured(one: BrokerAnswers) -> str | None:
    own = one.ha and one.ha.rocketrio
    if not own or own.configured_role is None:
        return None
    return f"{own.configured_role} {own.configured_broker_id}"


def _role(one: BrokerAnswers) -> str:
    if one.ha is not None and one.ha.rocketrio is not None:
        return one.ha.rocketrio.role
    reported = one.broker.broker_role
    return one.broker.role if reported is None else _ROLES.get(reported, reported)
