"""Asks the brokers of a name, each once and all at the same time, and keeps their answers as values.

    106        name servers   which brokers of the name they list
    71003      brokers        who they are, what they do, and where their logs end (26, 28 and 907 of Apache's)
    greeting   brokers        which epochs their logs have, for those who want to know that
    907        brokers        whom they follow, and how, for those who want to know that

`judgement.py` decides, without I/O, what follows from the answers. An answer says how things were when it was given:

    who a broker is, and where it serves its log   holds for all steps of one take-over, which takes seconds
    no answer                                      the same: a broker that is silent is not waited for again. If it
                                                   starts meanwhile, it looks for masters itself, and finds this one
    where a log ends                               is asked again before it is used, if it is older than `FRESH_FOR`,
                                                   and after anything was fetched
    whether another master leads or claims         holds for one decision, and is asked again once others can see that
                                                   this broker claims: of two that claim at once, one finds the other;
                                                   the same answers show logs that came back since

A request that makes the other broker promise or do something is no part of a survey, and is sent when it counts: the
greeting that announces an epoch (`open_epoch.py`), the steps of a hand-over. Nor are the tables (`gather_offsets.py`).

The name servers' list alone is no survey either, which would ask all brokers in it too: the list says which ids are
taken (`slave_ids.py`), which slaves to remember (`known_slaves.py`) or to hand over to, and which ids those have that
are connected (`live_slaves.py`). And before a master serves without a slave's offsets, it asks a name server for the
list until it answers (`gather_offsets.py`), where a survey asks once. All ask by `Peers.listed`, which alone reads the
answer and limits it.

Invariant: a survey changes nothing at the brokers that are asked.
Invariant: it takes no longer than its limit, and a broker without an answer is in it, with the reason.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import Final, TypeAlias

import attrs
import trio

from rocketrio_broker.ha.exchange import ask_welcome
from rocketrio_broker.ha.peers import (
    CALL_TIMEOUT,
    Identity,
    Peers,
    ask,
    ask_identity,
    ask_log_end,
)
from rocketrio_broker.ha.torn_end import PeerLog
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.admin import GetBrokerHAStatusRequestHeader
from rocketrio_protocol.errors import Error, NotReachableError
from rocketrio_protocol.ha.exchange import Greeting, Welcome
from rocketrio_protocol.ha.status import HARuntimeInfo
from rocketrio_protocol.remoting.ports import Dial

ASK_LIMIT: Final = CALL_TIMEOUT
"""Seconds for all name servers and the brokers that they list together."""
FRESH_FOR: Final = 0.5
"""Seconds for which the answer where a log ends may be used."""


@attrs.frozen
class PeerView:
    """What one broker has answered."""

    addr: str
    identity: Identity | None = None
    """Who it is; None if it did not answer."""
    log_end: int | None = None
    """The address at which its log ends; None if that is not known."""
    answered_at: float = -inf
    welcome: Welcome | None = None
    """Its answer to a greeting of the replication link; None if it was not asked, or is no rocketrio broker."""
    status: HARuntimeInfo | None = None
    problem: Error | None = None
    """Why something that it was asked is not known."""

    def identified(self, identity: Identity) -> "PeerView":
        """Return the view of a broker that has just said who it is."""
        return PeerView(self.addr, identity, identity.log_end, trio.current_time())

    @property
    def ha_addr(self) -> str | None:
        """Where it serves its log; None if it has not said that."""
        return None if self.identity is None else self.identity.ha_addr

    @property
    def log(self) -> PeerLog | None:
        """Where its log can be read, and how far it goes; None if the broker has not said both."""
        if self.identity is None or self.ha_addr is None or self.log_end is None:
            return None
        return PeerLog(self.ha_addr, self.log_end, self.identity.is_rocketrio, self.addr)

    @property
    def stream(self) -> str:
        """The address of its end of the stream on which it follows; empty if it has named none."""
        status = self.status
        return (status and status.ha_client_runtime_info.rocketrio_local_addr) or ""

    def is_of(self, broker_name: str) -> bool:
        """Return whether the broker says that it has this name."""
        return self.identity is not None and self.identity.broker_name == broker_name

    def is_slave_of(self, broker_name: str) -> bool:
        """Return whether the broker says that it is one of this name, and not its master."""
        one = self.identity
        return (
            one is not None
            and self.is_of(broker_name)
            and (one.broker_id != MASTER_ID or one.role == "slave")
        )

    def is_given_away(self, broker_name: str) -> bool:
        """Return whether a broker of another name has the address now."""
        return self.identity is not None and self.identity.broker_name not in (None, broker_name)

    def is_rocketrio(self, broker_name: str) -> bool:
        """Return whether it is a broker of this name that knows epochs."""
        return self.identity is not None and self.identity.is_rocketrio and self.is_of(broker_name)


Question: TypeAlias = Callable[[PeerView], Awaitable[PeerView]]
"""Asks one broker something, and returns the view with the answer. Raises Error or OSError."""


@attrs.frozen(kw_only=True)
class Survey:
    """The answers of one round, or of several, the latest of each peer."""

    broker_name: str = ""
    own_addr: str = ""
    listed: Mapping[str, Mapping[int, str]] = attrs.field(factory=dict)
    """What each name server that has answered lists of the name: id to address."""
    silent_servers: Mapping[str, Error] = attrs.field(factory=dict)
    """The name servers that have not answered, and why."""
    remembered: frozenset[str] = frozenset()
    """Slaves that name servers listed earlier."""
    also: frozenset[str] = frozenset()
    """Brokers that were asked too: they may have something, but nothing depends on their answers. One that is listed as
    master is among them if it says that it is a slave: name servers may not hear that for a while."""
    views: Mapping[str, PeerView] = attrs.field(factory=dict)
    """What the brokers answered, by address."""

    @property
    def expected(self) -> frozenset[str]:
        """The slaves of the name, as far as they are known."""
        listed = {
            addr
            for one in self.listed.values()
            for broker_id, addr in one.items()
            if broker_id != MASTER_ID and addr != self.own_addr
        }
        return self.remembered | listed

    @property
    def answered(self) -> list[PeerView]:
        """The brokers that have said who they are."""
        return [view for view in self.views.values() if view.identity is not None]

    def joined(self, later: "Survey") -> "Survey":
        """Return both rounds together; what the later one knows counts."""
        silent = {**self.silent_servers, **later.silent_servers}
        return attrs.evolve(
            self,
            listed={**self.listed, **later.listed},
            silent_servers={
                addr: error for addr, error in silent.items() if addr not in later.listed
            },
            remembered=self.remembered | later.remembered,
            also=self.also | later.also,
            views={**self.views, **later.views},
        )


class Surveyor:
    """Asks the peers of one broker."""

    def __init__(
        self,
        peers: Peers,
        *,
        dial: Dial,
        greeting: Callable[[], Greeting],
        is_proved: bool = False,
    ) -> None:
        """`dial` reaches replication ports, and authenticates the broker there if `is_proved`.

        `greeting` describes this broker's log, for a broker that is asked for its epochs.
        """
        self.peers = peers
        self.is_proved = is_proved
        self._greeting = greeting
        self._dial = dial

    def __repr__(self) -> str:
        return f"<Surveyor of {self.peers.broker_name}>"

    async def survey(
        self,
        also: Iterable[str] = (),
        *,
        limit: float = ASK_LIMIT,
        but: Collection[str] = (),
        slaves_only: bool = False,
    ) -> Survey:
        """Ask all name servers, the brokers that they list, the remembered slaves, and those in `also`. Never fails.

        Brokers in `but` are not asked; with `slaves_only`, neither are those that are listed as master.
        """
        peers, also = self.peers, frozenset(also)
        remembered = frozenset(peers.remembered())
        asking = _Asking(peers, {peers.own_addr, *but}, then=self.log_end)
        listed: dict[str, Mapping[int, str]] = {}
        # Each is silent until it has answered: the limit may end the round at any await.
        silent_servers = {addr: no_answer(addr) for addr in peers.name_servers}

        async def ask_name_server(addr: str) -> None:
            try:
                listed[addr] = await peers.listed(addr)
            except Error as error:
                silent_servers[addr] = error
                return
            del silent_servers[addr]
            for broker_id, broker in listed[addr].items():
                if broker_id != MASTER_ID or not slaves_only:
                    asking.begin(broker)

        with trio.move_on_after(limit):
            async with trio.open_nursery() as asking.nursery:
                for addr in sorted(remembered | also):
                    asking.begin(addr)
                for addr in peers.name_servers:
                    asking.nursery.start_soon(ask_name_server, addr)
        views = asking.result()
        slaves = (view.addr for view in views if view.is_slave_of(peers.broker_name))
        return Survey(
            broker_name=peers.broker_name,
            own_addr=peers.own_addr,
            listed={addr: listed[addr] for addr in peers.name_servers if addr in listed},
            silent_servers=silent_servers,
            remembered=remembered,
            also=also.union(slaves),
            views={view.addr: view for view in views},
        )

    async def survey_of(self, addr: str) -> Survey:
        """Ask one broker alone, as if it were the only slave. Never fails."""
        return Survey(
            broker_name=self.peers.broker_name,
            own_addr=self.peers.own_addr,
            remembered=frozenset({addr}),
            views={view.addr: view for view in await self.ask([addr], limit=ASK_LIMIT)},
        )

    async def ask(
        self,
        peers: Iterable[str | PeerView],
        *,
        limit: float,
        then: Question | None = None,
        enough: Callable[[PeerView], bool] = lambda _: False,
    ) -> list[PeerView]:
        """Ask some brokers who they are, `then` something else, until one has answered `enough`. Never fails.

        A broker that comes as a view has said already who it is.
        """
        then = then or self.log_end
        asking = _Asking(self.peers, {self.peers.own_addr}, then=then, enough=enough)
        with trio.move_on_after(limit):
            async with trio.open_nursery() as asking.nursery:
                for peer in peers:
                    asking.begin(peer)
        return asking.result()

    # --- questions to a broker that has said who it is: each returns the view with the answer -----

    async def log_end(self, view: PeerView) -> PeerView:
        """Ask where the log ends (28), and what a master is about (907), if the broker has not said so."""
        identity, question = view.identity, self.peers.question
        if identity is None or view.log_end is not None:
            return view
        if view.is_given_away(self.peers.broker_name):
            return view
        if view.is_of(self.peers.broker_name) and identity.broker_id == MASTER_ID:
            with suppress(Error):  # Apache's brokers before 5.0 do not know the request.
                body = await ask(question, view.addr, GetBrokerHAStatusRequestHeader())
                if (own := HARuntimeInfo.from_json(body).rocketrio) is not None:
                    return view.identified(
                        attrs.evolve(
                            identity,
                            is_rocketrio=True,
                            role=own.role,
                            claims=own.claims,
                            log_end=own.max_offset,
                        )
                    )
        return attrs.evolve(view, log_end=await ask_log_end(question, view.addr))

    async def epochs(self, view: PeerView) -> PeerView:
        """Ask a rocketrio broker of this name which epochs its log has."""
        if view.identity is None or not view.is_rocketrio(self.peers.broker_name):
            return view  # Apache's brokers have no epochs.
        transport = await self._dial(view.identity.required_ha_addr(view.addr))
        try:
            return attrs.evolve(view, welcome=await ask_welcome(transport, self._greeting()))
        finally:
            await transport.aclose()

    async def status(self, view: PeerView) -> PeerView:
        """Ask how the replication of a broker goes."""
        # Signed: the peer may want an account for it. A stranger who is listed can
        # use the proof nowhere else (docs/decisions/0071).
        body = await ask(self.peers.call, view.addr, GetBrokerHAStatusRequestHeader())
        return attrs.evolve(view, status=HARuntimeInfo.from_json(body))


class _Asking:
    """The brokers that are asked in one round, each in a task of its own."""

    nursery: trio.Nursery

    def __init__(
        self,
        peers: Peers,
        but: Collection[str],
        *,
        then: Question,
        enough: Callable[[PeerView], bool] = lambda _: False,
    ) -> None:
        self._peers = peers
        self._asked = {*but}
        self._then = then
        self._enough = enough
        self._views: dict[str, PeerView] = {}

    def begin(self, peer: str | PeerView) -> None:
        """Ask a broker, unless it was asked already."""
        view = PeerView(peer) if isinstance(peer, str) else peer
        if view.addr not in self._asked:
            self._asked.add(view.addr)
            # Before it is asked: if the limit ends the round, the broker is in the result with this reason.
            self._views[view.addr] = attrs.evolve(view, problem=no_answer(view.addr))
            self.nursery.start_soon(self._ask, view)

    async def _ask(self, view: PeerView) -> None:
        try:
            if view.identity is None:
                identity = await ask_identity(self._peers.question, view.addr)
                view = view.identified(identity)
                self._views[view.addr] = attrs.evolve(view, problem=no_answer(view.addr))
            view = self._views[view.addr] = await self._then(view)
        except Error as error:
            self._views[view.addr] = attrs.evolve(view, problem=error)
        except OSError as error:
            self._views[view.addr] = attrs.evolve(view, problem=no_answer(view.addr, str(error)))
        if self._enough(view):
            self.nursery.cancel_scope.cancel()

    def result(self) -> list[PeerView]:
        """Return what the brokers have answered, in the order of their addresses."""
        return [self._views[addr] for addr in sorted(self._views)]


def no_answer(addr: str, why: str = "No answer in time") -> Error:
    """Return the problem of a peer that has not answered."""
    return NotReachableError(why, broker_addr=addr)
