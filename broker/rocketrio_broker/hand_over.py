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

from rocketrio_broker.config import BrokerConfig, Role
from rocketrio_broker.config_file import ConfigFileError
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.connection import HAConnection
from rocketrio_broker.ha.peers import Peers, ask, ask_identity
from rocketrio_broker.queue_locks import KeptLocks
from rocketrio_broker.refusal import RefusedError
from rocketrio_broker.role_file import PendingHandOver, RoleAndId, RoleFile
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.refusals import Refuser
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.codes import MASTER_ID, ResponseCode
from rocketrio_protocol.commands.admin import (
    GetBrokerHAStatusRequestHeader,
    HandOverResponseHeader,
    TakeOverRequestHeader,
    TakeOverResponseHeader,
)
from rocketrio_protocol.errors import AccessRefusedError, BrokerError, Error
from rocketrio_protocol.frame import Body
from rocketrio_protocol.ha.status import HARuntimeInfo
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
TOKEN_LIFETIME: Final = 5.0
"""Seconds for which a follower stays prepared."""
TABLES_LIMIT: Final = 0.5
"""Seconds for the last copy of the master's tables."""
BEHIND_LIMIT: Final = 4 << 20
"""Bytes that a follower may be behind when a hand-over begins: it gets them while writes wait."""
ASK_PAUSE: Final = 0.02
"""Seconds between two checks whether the follower takes writes."""

State: TypeAlias = Literal["prepared", "void", "taken", "leads"]


@attrs.frozen
class Follower:
    """A slave that can take over."""

    id: int
    addr: str
    ha_addr: str | None
    connection: HAConnection


class HandOver:
    """The master's side of a hand-over."""

    def __init__(
        self,
        broker: BrokerState,
        *,
        role_file: RoleFile,
        pool: ChannelPool,
    ) -> None:
        self._broker = broker
        self._role = broker.role_service
        self._role_file = role_file
        self._ha_service = broker.ha_service
        self._peers = broker.peers
        self._pool = pool
        self._held = broker.held_writes
        self._rng = broker.rng

    def __repr__(self) -> str:
        return f"<HandOver of {self._peers.own_addr}>"

    async def run(self, to_id: int | None, *, dry_run: bool = False) -> HandOverResponseHeader:
        """Change places with slave `to_id`, or with the one that lacks least; return which slave that is, or would be.

        Raises RefusedError with the reason. Then this broker is still the master, or does not know the outcome, as the
        reason says.
        """
        async with self._role.turn:
            self._check_leads()
            follower = await self._chosen(to_id)
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
            self._role.hands_over = True
            try:
                await self._hand_over(follower, channel, token, began=began)
            finally:
                self._role.hands_over = False
            report.log_end_offset = store.max_physical_offset
            report.millis = round((trio.current_time() - began) * 1000)
            logger.info(
                "handed over to=%s id=%d millis=%d", follower.addr, follower.id, report.millis
            )
            return report

    # ------------------------------------------------------------------------------- who takes over

    def _check_leads(self) -> None:
        if not self._broker.leadership.leads:
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"this broker does not lead: {self._broker.leadership.reason}",
            )
        # The successor would take writes for a log of which it is not known whether it should continue.
        if why := self._broker.store.refusals.of(Refuser.SECOND_HISTORY):
            raise _refused(f"this broker takes no writes: {why}")

    async def _chosen(self, to_id: int | None) -> Follower:
        name = self._peers.broker_name
        listed = await self._listed()
        if to_id is not None:
            if to_id not in listed:
                known = ", ".join(f"{id_} at {addr}" for id_, addr in listed.items()) or "none"
                raise _refused(f"{name} has no slave {to_id}; the name servers list {known}")
            listed = {to_id: listed[to_id]}
        found: list[Follower] = []
        reasons: list[str] = []

        async def examine(broker_id: int, addr: str) -> None:
            try:
                found.append(await self._examined(broker_id, addr))
            except RefusedError as refusal:
                reasons.append(f"{broker_id} at {addr} {refusal.remark}")

        async with trio.open_nursery() as nursery:
            for broker_id, addr in listed.items():
                nursery.start_soon(examine, broker_id, addr)
        if not found:
            why = "; ".join(sorted(reasons)) or "no slave is registered"
            raise _refused(f"no slave of {name} can take over: {why}")
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

    async def _examined(self, broker_id: int, addr: str) -> Follower:
        """Return the slave if it can take over. Raises RefusedError with the obstacle."""
        try:
            identity = await ask_identity(self._peers.question, addr)
            body = await ask(self._peers.call, addr, GetBrokerHAStatusRequestHeader())
            status = HARuntimeInfo.from_json(body)
        except AccessRefusedError as error:
            raise _refused(
                f"does not say who it is ({error.remark}): give both the same inner account; while it is of an earlier "
                "version, name its host in acl_plain_signatures_from here"
            ) from error
        except BrokerError:
            raise _refused("is an Apache broker, which cannot take over while it runs") from None
        except Error as error:
            raise _refused(f"cannot be asked: {error.what}") from error
        if status.rocketrio is None:
            raise _refused("is an Apache broker, which cannot take over while it runs")
        if status.rocketrio.role != "slave":
            raise _refused(f"is {status.rocketrio.role}")
        client = status.ha_client_runtime_info
        if client.rocketrio_state != HAClientState.FOLLOWING.value:
            problem = client.rocketrio_last_problem
            raise _refused(f"is {client.rocketrio_state}" + (f": {problem}" if problem else ""))
        by_addr = {one.addr: one for one in self._ha_service.connections}
        connection = by_addr.get(client.rocketrio_local_addr or "")
        if connection is None:
            raise _refused("has no replication connection to this master")
        behind = self._broker.store.max_physical_offset - connection.slave_ack_offset
        if behind > BEHIND_LIMIT:
            raise _refused(f"is {behind} bytes behind, more than {BEHIND_LIMIT}")
        return Follower(broker_id, addr, identity.ha_addr, connection)

    # -------------------------------------------------------------------------------------- the steps

    async def _connected(self, follower: Follower) -> Channel:
        try:
            return await self._pool.channel(follower.addr)
        except Error as error:
            raise _refused(f"slave {follower.id} cannot be reached: {error}") from error

    async def _prepare(self, channel: Channel, follower: Follower, token: str) -> None:
        try:
            await self._step(channel, follower.addr, "prepare", token)
        except Error as error:
            reason = error.remark or error.what
            raise _refused(
                f"slave {follower.id} at {follower.addr} does not take over: {reason}"
            ) from error

    async def _hand_over(
        self, follower: Follower, channel: Channel, token: str, *, began: float
    ) -> None:
        broker = self._broker
        master = broker.config.broker
        slave = attrs.evolve(master, role="slave", broker_id=follower.id)
        pending = PendingHandOver(follower.addr, token, RoleAndId.of(master))
        self._held.hold()
        broker.store.refusals.refuse(
            Refuser.HAND_OVER, f"this broker hands over to {follower.addr}"
        )
        try:
            await self._catch_up(follower)
            self._check_leads()
            await self._role_file.hold(slave, pending=pending)
            state = await self._take(follower, channel, token)
            if state == "void":
                raise _refused(f"slave {follower.id} did not take over")
        except Error as error:
            # The follower was not asked to take over, or answered that it never will.
            await self._remain()
            broker.store.refusals.lift(Refuser.HAND_OVER)
            self._held.release()
            logger.warning("not handed over to=%s reason=%s", follower.addr, error)
            raise error if isinstance(error, RefusedError) else _refused(str(error)) from error
        except trio.Cancelled:
            self._held.release()  # If `take` was sent, the next start asks.
            raise
        try:
            if state is None:
                await self._step_down(slave, follower)
                raise _refused(
                    f"slave {follower.id} at {follower.addr} did not answer whether it took over: this broker takes no "
                    "writes, asks it, and is master again if it did not; `rocketrio broker role` decides at once"
                )
            await self._follow_on(slave)
            await self._step_down(slave, follower)
            with trio.move_on_at(began + HOLD_LIMIT):
                if state == "leads" or await self._leads(follower, token):
                    return
        finally:
            self._held.release()
        with trio.move_on_after(LEADS_LIMIT):
            if await self._leads(follower, token):
                return
        logger.warning("the new master takes no writes yet addr=%s", follower.addr)

    async def _step_down(self, slave: BrokerConfig, follower: Follower) -> None:
        """Become the follower's slave; from then on the role refuses writes."""
        await self._role.step_down(slave, follower.addr, follower.ha_addr)
        self._broker.store.refusals.lift(Refuser.HAND_OVER)

    async def _catch_up(self, follower: Follower) -> None:
        """Wait until the follower has the whole log and waiting sends are answered.

        Raises RefusedError after a limit.
        """
        store, connection = self._broker.store, follower.connection
        end = store.max_physical_offset
        with trio.move_on_after(CATCH_UP_LIMIT):
            await connection.acknowledged.wait_reached(end)
            while len(self._broker.waiting_answers):  # noqa: ASYNC110
                await trio.sleep(ASK_PAUSE)
        if connection.slave_ack_offset < end:
            raise _refused(
                f"slave {follower.id} did not get the last {end - connection.slave_ack_offset} bytes in "
                f"{CATCH_UP_LIMIT:g} s"
            )

    async def _take(self, follower: Follower, channel: Channel, token: str) -> State | None:
        """Order the follower to take over and return its answer; None if the outcome is not known."""
        if channel.closed:
            raise _refused(f"slave {follower.id} has gone")
        try:
            with trio.fail_after(ORDER_LIMIT):
                return await self._step(channel, follower.addr, "take", token)
        except BrokerError as error:
            raise _refused(f"slave {follower.id} refused: {error.remark or error.what}") from error
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


def _refused(reason: str) -> RefusedError:
    return RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, reason)


class TakeOver:
    """The follower's side of a hand-over."""

    def __init__(self, broker: BrokerState, *, role_file: RoleFile) -> None:
        self._broker = broker
        self._role = broker.role_service
        self._role_file = role_file
        self._registration = broker.registration
        self._one_at_a_time = trio.Lock()
        self._token = ""
        self._until = 0.0

    def __repr__(self) -> str:
        return f"<TakeOver prepared={bool(self._token)}>"

    async def step(self, header: TakeOverRequestHeader, body: Body = b"") -> State:
        """Do one step; the body of `take` has the locks of orderly queues.

        Raises RefusedError; then nothing changed.
        """
        if header.broker_name != self._broker.config.broker.broker_name:
            raise _refused(f"this is a broker of {self._broker.config.broker.broker_name}")
        async with self._one_at_a_time:
            if header.step == "prepare":
                self._check(header)
                self._token, self._until = header.token, trio.current_time() + TOKEN_LIFETIME
                return "prepared"
            if header.step == "take":
                return await self._take(header, body)
            return self._outcome(header.token)

    def _check(self, header: TakeOverRequestHeader) -> None:
        slave = self._role.slave
        if slave is None or not self._broker.config.broker.is_slave:
            raise _refused(f"it is {self._broker.config.broker.role}")
        if self._role.turn.locked():
            raise _refused("its role is being changed")
        if slave.client.state is not HAClientState.FOLLOWING:
            raise _refused(f"it is {slave.client.state.value}")
        followed = self._registration.master.addr
        if followed not in (None, header.master_addr):
            raise _refused(f"it follows {followed}")

    async def _take(self, header: TakeOverRequestHeader, body: Body) -> State:
        token, self._token = self._token, ""
        if header.token != token or trio.current_time() > self._until:
            raise _refused("it is not prepared for this any more")
        self._check(header)
        await self._copy_tables(header.master_addr)
        try:
            # A power cut would remove recent copies, and then there is no master to copy them from.
            await self._broker.sync_tables()
        except ConfigFileError as error:
            raise _refused(str(error)) from error
        if trio.current_time() > self._until:
            raise _refused("it was too slow")
        end = self._broker.store.max_physical_offset
        if end != header.log_end_offset:
            raise _refused(f"its log ends at {end}, not at {header.log_end_offset}")
        locks = fastjson.loads(body, KeptLocks, what="queue locks") if body else None
        try:
            await self._role.succeed(
                cast(Role, header.role), token=header.token, former=header.master_addr
            )
        except ConfigFileError as error:
            raise _refused(str(error)) from error
        self._broker.queue_locks.inherit(locks)
        return "taken"

    async def _copy_tables(self, master_addr: str) -> None:
        """Copy what is committed at the master so far. What is not copied in time is gathered later, as master."""
        slave = self._role.slave
        if slave is not None:
            with trio.move_on_after(TABLES_LIMIT):
                try:
                    await slave.synchronize.sync_all(master_addr)
                except (Error, OSError) as error:
                    logger.warning("tables not copied at the hand-over reason=%s", error)

    def _outcome(self, token: str) -> State:
        """Return the outcome for a token. Afterwards the token cannot be used to take over any more."""
        if token == self._role_file.taken:
            return "leads" if self._broker.leadership.leads else "taken"
        if token == self._token:
            self._token = ""
        return "void"
