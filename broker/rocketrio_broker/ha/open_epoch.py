"""Opens an epoch on a broker that is about to take writes: a number above all that it can find out, and a random id.

It asks every broker of its name that a survey found for the greatest number that broker knows, and announces its own. A
broker that answers reports nothing more on the connection it had to a master, and says how far its log goes; if all of
that is here, no later PUT_OK of an earlier master can rely on that member, unless the member follows that master again,
which the master records (`Epoch.joined`).

Invariant: the epoch's line, and all of the log before it, is on the disk before a write is taken.
Invariant: nothing is claimed about a member that cannot be asked.
Answers to: the controller's ElectMaster, which gives numbers to all brokers of a name.
"""

import logging
import random
from collections.abc import Callable, Iterable
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.connection import HAConnection
from rocketrio_broker.ha.epochs import common_boundary
from rocketrio_broker.ha.exchange import ask_welcome, greeting_of
from rocketrio_broker.ha.lost_epochs import recover_epochs
from rocketrio_broker.ha.peers import CALL_TIMEOUT, Identity
from rocketrio_broker.ha.survey import PeerView, Survey, Surveyor
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.store.epochs import ANONYMOUS, SYNC
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.exchange import Epoch, Welcome
from rocketrio_protocol.remoting.ports import Dial

logger = logging.getLogger("rocketrio_broker.ha")

ASK_LIMIT: Final = CALL_TIMEOUT
"""Seconds for all peers together; a later answer is ignored."""
ASKED_FOR: Final = 60.0
"""Seconds for which answers stay valid: a master that stands aside tries repeatedly, and each query costs slaves a new
connection."""
ROUNDS: Final = 4
"""How often the peers are asked, each time with a greater number, when one of them knew an equal or greater one."""


@attrs.frozen
class _Asked:
    """The answers of the peers, and the state of this log at that time."""

    number: int
    covers: dict[str, int]
    time: float
    log_end: int
    epoch_changes: int


class EpochOpener:
    """Opens the epochs of one broker: call `open` each time it is about to take writes."""

    def __init__(
        self,
        store: MessageStore,
        *,
        surveyor: Surveyor,
        dial: Dial,
        config: Callable[[], BrokerConfig],
        connections: list[HAConnection],
        rng: random.Random,
    ) -> None:
        """`dial` reaches replication ports; `connections` are the slaves that are connected now."""
        self._store = store
        self._surveyor = surveyor
        self._broker_name = surveyor.peers.broker_name
        self._dial = dial
        self._config = config
        self._connections = connections
        self._rng = rng
        self._asked: _Asked | None = None

    def __repr__(self) -> str:
        return f"<EpochOpener of {self._broker_name}>"

    def new_name(self) -> str:
        """Return a random name for a member or an epoch."""
        return f"{self._rng.getrandbits(64):016x}"

    async def begin(self) -> None:
        """Give the data directory its name. Raises OSError."""
        config = self._config()
        await self._store.epochs.begin(
            new_name=self.new_name, reports_disk=config.ha_acknowledge == "disk"
        )

    async def recover(self, found: Survey, *, counted_in: str | None = None) -> None:
        """Get the epochs of this log back from a peer if this directory has lost them. Never fails.

        `counted_in` names the last epoch that this broker's offsets knew of the log that it has.
        """
        if not (self._store.epochs.lines or self._store.commit_log.is_empty):
            await recover_epochs(
                self._store, found, surveyor=self._surveyor, dial=self._dial, counted_in=counted_in
            )

    async def ask(self, found: Survey | None = None) -> None:
        """Ask the peers in preparation of the next `open`, unless they were asked recently. Never fails.

        `found`: ask the brokers that have answered there; without it, those that answer now.

        This may run at the same time as other queries. A later change at a peer does no harm, because the peer knows
        the number.
        """
        if not self._was_asked():
            found = found or await self._surveyor.survey()
            for addr in sorted(found.views.keys() - {view.addr for view in found.answered}):
                _log_unasked(addr, found.views[addr].problem)
            number, covers = await self._ask_all(found.answered)
            self._asked = _Asked(number, covers, trio.current_time(), *self._log_state())

    def _was_asked(self) -> bool:
        asked = self._asked
        return (
            asked is not None
            and asked.time + ASKED_FOR > trio.current_time()
            and asked.number > self._store.epochs.highest
            and (asked.log_end, asked.epoch_changes) == self._log_state()
        )

    def _log_state(self) -> tuple[int, int]:
        return self._store.max_physical_offset, self._store.epochs.changes.value

    async def open(self) -> Epoch:
        """Open the next epoch; the caller must append nothing meanwhile. Raises OSError if the disk takes no line."""
        store, config = self._store, self._config()
        epochs = store.epochs
        if not epochs.member:
            await self.begin()
        # The line vouches for the logs of other members (`covers`): what it vouches for must survive a power cut.
        await store.flush()
        await self.ask()
        assert self._asked is not None
        number, covers = self._asked.number, self._asked.covers
        epoch = Epoch(
            number=number,
            id=self.new_name(),
            start=store.max_physical_offset,
            member=epochs.member,
            mode=SYNC if config.role == "sync-master" else "async",
            in_sync_slaves=config.in_sync_slaves,
            covers={**covers, epochs.member: epochs.whole_above},
            joined={ANONYMOUS: 0} if self._has_anonymous_slave() else {},
        )
        if epoch.mode == SYNC:
            # Before the epoch: its first report is noted in the file that this opens.
            await store.acknowledged.begin_at(epoch.start)
        await epochs.open(epoch)
        logger.info(
            "epoch begins number=%d id=%s start=%d mode=%s had_all_of=%s",
            epoch.number, epoch.id, epoch.start, epoch.mode, ",".join(sorted(epoch.covers)),
        )  # fmt: skip
        return epoch

    def _has_anonymous_slave(self) -> bool:
        """Return whether a slave that does not identify itself is connected: its connection outlives epochs."""
        return any(connection.is_anonymous for connection in self._connections)

    async def _ask_all(self, peers: Iterable[PeerView]) -> tuple[int, dict[str, int]]:
        """Return the number to take, and the members whose whole logs are here."""
        number = self._store.epochs.highest + 1
        for _ in range(ROUNDS):
            answers = await self._ask(peers, number)
            highest = max((answer.highest for answer in answers), default=0)
            covers = {
                answer.member: answer.whole_above for answer in answers if self._has_all_of(answer)
            }
            # One of them knows this number, perhaps as a promise to another broker that opens an epoch now: take a
            # greater one, and ask again, so that all have promised the number that is taken.
            if highest < number:
                return number, covers
            number = highest + 1
        # Not all have promised it: nothing is claimed about any of them.
        return number, {}

    def _has_all_of(self, answer: Welcome) -> bool:
        store = self._store
        if not answer.end:
            return bool(answer.member)
        boundary = common_boundary(
            store.epochs.lines, store.max_physical_offset, answer.epochs, answer.end
        )
        return bool(answer.member) and boundary is not None and boundary.address >= answer.end

    async def _ask(self, peers: Iterable[PeerView], number: int) -> list[Welcome]:
        answers: list[Welcome] = []

        async def ask(view: PeerView, identity: Identity) -> None:
            try:
                transport = await self._dial(identity.required_ha_addr(view.addr))
                try:
                    greeting = greeting_of(self._store, opens=number)
                    answers.append(await ask_welcome(transport, greeting))
                finally:
                    await transport.aclose()
            except (Error, OSError) as error:
                _log_unasked(view.addr, error)

        with trio.move_on_after(ASK_LIMIT):
            async with trio.open_nursery() as nursery:
                for view in peers:
                    if view.identity is not None and view.is_rocketrio(self._broker_name):
                        nursery.start_soon(ask, view, view.identity)
        return answers


def _log_unasked(addr: str, problem: Exception | None) -> None:
    logger.info("an epoch begins without asking peer=%s reason=%s", addr, problem)
