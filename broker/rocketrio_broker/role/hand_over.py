"""A master changes places with one of its slaves, by request (71012, 71013); no other broker decides.

    master                                              follower
    examines its slaves, chooses one
    prepare ------------------------------------------> follows this master, notes the token
    keeps writes waiting; the log ends here
    waits until the follower has all of it
    file: slave, hand-over pending (synced)
    take, log end ------------------------------------> its log ends there; tables copied once more
                                                        file: master (synced)      <- the point of no return
    file: slave; follows <----------------------------- taken
    registers as a slave                                waits for that one to follow, registers, takes writes
    refuses the writes that waited: clients             leads
    find the new master

Until `take` is sent everything can be undone: the writes that waited are stored. If its answer is lost, the master asks
for the outcome: a follower that had not taken over when it was asked never will, and answers `void`. Until the follower
answers, the master is a slave that repeats the question, also after a restart, and is master again as soon as it gets
`void`. An operator may decide instead: `rocketrio broker role`.

Invariant: at most one of the two takes writes, whatever is lost and whichever of them dies.
Invariant: while the outcome is open the master claims nothing: a follower that took over and died does not follow it.
Invariant: a hand-over that fails leaves the master writing as before, unless the follower may have taken over.
Invariant: no hand-over begins beside an older log of this name (`ha/second_history.py`).
Answers to: nothing of 4.x; in 5.x the controller elects (ELECT_MASTER), and the outcome of waiting writes is uncertain.
"""

import logging
from typing import Final, Literal, TypeAlias, cast

import attrs
import trio

from rocketrio_broker.ha.connection import HAConnection
from rocketrio_broker.ha.judgement import why_not_follower
from rocketrio_broker.ha.peers import CALL_TIMEOUT, Peers
from rocketrio_broker.ha.survey import Surveyor
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.role.file import PendingHandOver, RoleAndId, RoleFile
from rocketrio_broker.role.service import FAR_BEHIND, RoleService
from rocketrio_broker.role.standing import HANDING_OVER, LEADING, Event, Standing
from rocketrio_broker.role.switchboard import Switchboard
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.refusals import Refuser
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.codes import MASTER_ID, ResponseCode
from rocketrio_protocol.commands.admin import (
    HandOverResponseHeader,
    TakeOverRequestHeader,
    TakeOverResponseHeader,
)
from rocketrio_protocol.errors import BrokerError, Error
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import ChannelPool, check

logger = logging.getLogger("rocketrio_broker.hand_over")

CATCH_UP_LIMIT: Final = 1.0
"""Seconds that writes wait for the follower to get the whole log; then the hand-over fails, and they are stored."""
ORDER_LIMIT: Final = 1.0
"""Seconds to wait for the answer to `take`, and as many again for asking about its outcome."""
HOLD_LIMIT: Final = 2.5
"""Seconds after which waiting writes are answered in any case: less than clients wait (3 s)."""
LEADS_LIMIT: Final = 5.0
"""Seconds for the follower to begin to take writes."""
ASK_PAUSE: Final = 0.02
"""Seconds between two checks whether the follower takes writes."""

EXAMINE_LIMIT: Final = 2 * CALL_TIMEOUT
"""Seconds for the slaves to say whom they follow, and how: two questions, one after the other."""

State: TypeAlias = Literal["prepared", "void", "taken", "leads"]


@attrs.frozen
class Follower:
    """A slave that can take over."""

    id: int
    addr: str
    ha_addr: str | None
    connection: HAConnection


class HandOverService:
    """The master's side of a hand-over."""

    def __init__(
        self,
        broker: BrokerState,
        role: RoleService,
        switchboard: Switchboard,
        *,
        surveyor: Surveyor,
        role_file: RoleFile,
        pool: ChannelPool,
    ) -> None:
        self._broker = broker
        self._role = role
        self._switchboard = switchboard
        self._role_file = role_file
        self._ha_service = broker.ha_service
        self._surveyor = surveyor
        self._peers = surveyor.peers
        self._pool = pool
        self._held = broker.held_writes
        self._rng = broker.rng

    def __repr__(self) -> str:
        return f"<HandOverService of {self._peers.own_addr}>"

    async def run(self, to_id: int | None, *, dry_run: bool = False) -> HandOverResponseHeader:
        """Change places with slave `to_id`, or with the one that lacks least; return which slave that is, or would be.

        Raises RefusedError with the reason. Then this broker is still the master, or does not know the outcome, as the
        reason says.
        """
        async with self._role.turn:
            self._check_leads(LEADING)
            follower = await self._chosen(to_id)
            if not dry_run:
                await self._role.gather_before_hand_over()
            token = f"{self._rng.getrandbits(128):032x}"
            channel = await self._connected(follower)
            await self._prepare(channel, follower, token)
            store = self._broker.store
            report = HandOverResponseHeader(
                follower.id,
                follower.addr,
                log_end_offset=store.max_physical_offset,
                slave_ack_offset=follower.connection.slave_ack_offset,
            )
            if dry_run:
                return report
            logger.info("hand-over begins to=%s id=%d", follower.addr, follower.id)
            began = trio.current_time()
            await self._hand_over(follower, channel, token, began=began)
            report.log_end_offset = store.max_physical_offset
            report.millis = round((trio.current_time() - began) * 1000)
            logger.info(
                "handed over to=%s id=%d millis=%d", follower.addr, follower.id, report.millis
            )
            return report

    # ------------------------------------------------------------------------------- who takes over

    def _check_leads(self, expected: Standing) -> None:
        standing = self._broker.standing
        if standing.now is not expected:
            raise refused(f"this broker does not lead: {standing.reason}")
        # Its successor would take writes for a log of which it is not known whether it should continue.
        if why := self._broker.store.refusals.of(Refuser.SECOND_HISTORY):
            raise refused(f"this broker takes no writes: {why}")

    async def _chosen(self, to_id: int | None) -> Follower:
        name = self._peers.broker_name
        listed = await self._listed()
        if to_id is not None:
            if to_id not in listed:
                known = ", ".join(f"{id_} at {addr}" for id_, addr in listed.items()) or "none"
                raise refused(f"{name} has no slave {to_id}; the name servers list {known}")
            listed = {to_id: listed[to_id]}
        asked = await self._surveyor.ask(
            listed.values(), then=self._surveyor.status, limit=EXAMINE_LIMIT
        )
        views = {view.addr: view for view in asked}
        connections = {one.addr: one for one in self._ha_service.connections}
        end = self._broker.store.max_physical_offset
        behind = {addr: end - one.slave_ack_offset for addr, one in connections.items()}
        found: list[Follower] = []
        reasons: list[str] = []
        for broker_id, addr in listed.items():
            view = views[addr]
            if (why := why_not_follower(view, behind, limit=FAR_BEHIND)) is not None:
                reasons.append(f"{broker_id} at {addr} {why}")
            else:
                found.append(Follower(broker_id, addr, view.ha_addr, connections[view.stream]))
        if not found:
            whys = "; ".join(sorted(reasons)) or "no slave is registered"
            raise refused(f"no slave of {name} can take over: {whys}")
        return min(found, key=lambda one: (-one.connection.slave_ack_offset, one.id))

    async def _listed(self) -> dict[int, str]:
        listed: dict[int, str] = {}
        for one in await self._peers.listed_by_all():
            listed.update(one)
        return {
            id_: addr
            for id_, addr in sorted(listed.items())
            if id_ != MASTER_ID and addr != self._peers.own_addr
        }

    # -------------------------------------------------------------------------------------- the steps

    async def _connected(self, follower: Follower) -> Channel:
        try:
            return await self._pool.channel(follower.addr)
        except Error as error:
            raise refused(f"slave {follower.id} cannot be reached: {error}") from error

    async def _prepare(self, channel: Channel, follower: Follower, token: str) -> None:
        try:
            await self._step(channel, follower.addr, "prepare", token)
        except Error as error:
            reason = error.remark or error.what
            raise refused(
                f"slave {follower.id} at {follower.addr} does not take over: {reason}"
            ) from error

    async def _hand_over(
        self, follower: Follower, channel: Channel, token: str, *, began: float
    ) -> None:
        broker = self._broker
        master = broker.config.broker
        slave = attrs.evolve(master, role="slave", broker_id=follower.id)
        pending = PendingHandOver(follower.addr, token, RoleAndId.of(master))
        self._check_leads(LEADING)  # It may have been replaced since it was asked.
        # Held and not refused: if this fails they are stored here, and their producers notice nothing.
        self._held.hold()
        self._switchboard.note(Event.HANDS_OVER, f"this broker hands over to {follower.addr}")
        try:
            await self._catch_up(follower)
            self._check_leads(HANDING_OVER)
            # The file before the order. Whatever dies now, this broker starts as a slave that asks; as a master it
            # would lead beside a follower that took over.
            await self._role_file.hold(slave, pending=pending)
            state = await self._take(follower, channel, token)
            if state == "void":
                raise refused(f"slave {follower.id} did not take over")
        except Error as error:
            # The follower was not asked to take over, or answered that it never will.
            await self._remain()
            if broker.standing.now is HANDING_OVER:  # It may have been replaced meanwhile.
                self._switchboard.note(Event.REMAINS)
            # Not before REMAINS: they would be refused.
            self._held.release()
            logger.warning("not handed over to=%s reason=%s", follower.addr, error)
            raise error if isinstance(error, RefusedError) else refused(str(error)) from error
        except trio.Cancelled:
            self._held.release()  # If `take` was sent, the next start asks.
            raise
        try:
            if state is None:
                # Its file still has the hand-over as open: it asks, also after a restart.
                await self._role.step_down(slave, follower.addr, follower.ha_addr)
                raise refused(
                    f"slave {follower.id} at {follower.addr} did not answer whether it took over: this broker takes no "
                    "writes, asks it, and is master again if it did not; `rocketrio broker role` decides at once"
                )
            await self._follow_on(slave)
            await self._role.step_down(slave, follower.addr, follower.ha_addr)
            with trio.move_on_at(began + HOLD_LIMIT):
                if state == "leads" or await self._leads(follower, token):
                    return
        finally:
            # This broker is a slave by now and refuses them: the clients look for the new master.
            self._held.release()
        with trio.move_on_after(LEADS_LIMIT):
            if await self._leads(follower, token):
                return
        logger.warning("the new master takes no writes yet addr=%s", follower.addr)

    async def _catch_up(self, follower: Follower) -> None:
        """Wait until the follower has the whole log and waiting sends are answered.

        Raises RefusedError after a limit.
        """
        store, connection = self._broker.store, follower.connection
        end = store.max_physical_offset
        with trio.move_on_after(CATCH_UP_LIMIT):
            await connection.acknowledged.wait_reached(end)
            # Once this broker has stepped down they are answered as late, although the follower has their messages.
            while len(self._broker.waiting_answers):  # noqa: ASYNC110
                await trio.sleep(ASK_PAUSE)
        if connection.slave_ack_offset < end:
            raise refused(
                f"slave {follower.id} did not get the last {end - connection.slave_ack_offset} bytes in "
                f"{CATCH_UP_LIMIT:g} s"
            )

    async def _take(self, follower: Follower, channel: Channel, token: str) -> State | None:
        """Order the follower to take over and return its answer; None if the outcome is not known."""
        if channel.closed:
            raise refused(f"slave {follower.id} has gone")
        try:
            with trio.fail_after(ORDER_LIMIT):
                return await self._step(channel, follower.addr, "take", token)
        # Only an answer is certain. Without one the follower may have taken over, and it alone knows.
        except BrokerError as error:
            raise refused(f"slave {follower.id} refused: {error.remark or error.what}") from error
        except (Error, trio.TooSlowError) as error:
            logger.warning(
                "the order was not answered, asking to=%s reason=%s", follower.addr, error
            )
        with trio.move_on_after(ORDER_LIMIT):
            while True:
                try:
                    return await ask_outcome(self._peers, follower.addr, token)
                except Error:
                    await trio.sleep(ASK_PAUSE)
        return None

    async def _leads(self, follower: Follower, token: str) -> bool:
        while True:
            try:
                if await ask_outcome(self._peers, follower.addr, token) == "leads":
                    return True
            except Error as error:
                logger.debug("not asked addr=%s error=%s", follower.addr, error)
            await trio.sleep(ASK_PAUSE)

    async def _remain(self) -> None:
        """Store that this broker starts as master again."""
        try:
            await self._role_file.hold(self._broker.config.broker)
        except ConfigFileError as error:
            # At its next start it would ask the follower, which answers that this broker remains master.
            logger.warning("the role is not kept reason=%s", error)

    async def _follow_on(self, slave: BrokerConfig) -> None:
        """Store that this broker starts as a slave again, and that the follower took over."""
        try:
            await self._role_file.hold(slave)
        except ConfigFileError as error:
            # At its next start it asks the follower, which answers that it took over.
            logger.warning("the outcome of the hand-over is not kept reason=%s", error)

    async def _step(self, channel: Channel, addr: str, step: str, token: str) -> State:
        broker, body = self._broker, b""
        header = _request(self._peers, step, token)
        if step == "take":
            header.role = broker.config.broker.role
            header.log_end_offset = broker.store.max_physical_offset
            if (locks := broker.queue_locks.kept(now=trio.current_time())) is not None:
                body = fastjson.dumps(locks)
        response = await channel.call(header, body, timeout=ORDER_LIMIT)
        check(response, "The slave's part of the hand-over", broker_addr=addr)
        return cast(State, response.header(TakeOverResponseHeader).state)


async def ask_outcome(peers: Peers, addr: str, token: str) -> State:
    """Ask the follower at `addr` whether it took over: `void`, `taken` or `leads`."""
    response = await peers.call(addr, _request(peers, "ask", token), timeout=ORDER_LIMIT)
    check(response, "Asking about a hand-over", broker_addr=addr)
    return cast(State, response.header(TakeOverResponseHeader).state)


def _request(peers: Peers, step: str, token: str) -> TakeOverRequestHeader:
    return TakeOverRequestHeader(step, token, peers.broker_name, peers.own_addr)


def refused(reason: str) -> RefusedError:
    """Return the refusal of a hand-over for this reason; the caller raises it."""
    return RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, reason)
