"""A slave's copies of what the log does not contain: topics, consumer offsets, delay offsets, consumer groups.

One round sends 21, 43, 45 and 201, in this order. Topics and groups are replaced when their data version differs;
offsets are merged by their versions, in both directions (offset_copy.py); the body of 45 is written to delayOffset.json
unchanged, once this disk has the log that it applies to. The users of a rocketrio master (71032) are copied too, so
that both decide alike about requests; a master sends them only over a link on which both ends have proved themselves.

Invariant: what was committed here while the master was away stays, unless a reset there is newer.
Invariant: nothing is copied from a master whose log is not followed: a master that lost its data knows no topics.
Invariant: nothing is copied from a rocketrio master that stands aside: before it leads, it asks this broker for topics
that it lacks.
Answers to: SlaveSynchronize; RocketMQ reference, section 7.
Unlike Java: the offsets of a rocketrio master are copied every second, so that few commits are unknown when it fails.
Unlike Java: a round also starts whenever replication begins to follow a master, not only periodically.
Unlike Java: an error ends the round and is logged once, where each of Java's steps always ignores its own errors.
Unlike Java: topics are requested at the ordinary port, which answers 21 in every version; Java asks at port - 2.
"""

import logging
from collections.abc import Callable
from secrets import token_hex
from typing import Final

import attrs
import trio

from rocketrio_broker.access.control import AccessControl
from rocketrio_broker.access.users_file import decode_users
from rocketrio_broker.ha.errors import NotLeadingError
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.offset_copy import OffsetCopy
from rocketrio_broker.ha.peers import CALL_TIMEOUT, PeerCaller, ask
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.store.read_gate import ReadGate
from rocketrio_broker.tables.config_file import ConfigFile, read_table
from rocketrio_broker.tables.groups import SubscriptionGroupManager
from rocketrio_broker.tables.topics import TopicConfigManager
from rocketrio_broker.waiting.watermark import Watermark, wait_any_past
from rocketrio_protocol.bodies.offsets import DelayOffsetWrapper, VersionedConsumerOffsets
from rocketrio_protocol.bodies.topics import SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from rocketrio_protocol.codes import MASTER_ID, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.access import (
    GetSealedUsersRequestHeader,
    GetSealedUsersResponseHeader,
)
from rocketrio_protocol.commands.admin import (
    GetAllConsumerOffsetRequestHeader,
    GetAllDelayOffsetRequestHeader,
    GetAllDelayOffsetResponseHeader,
    GetAllSubscriptionGroupConfigRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
)
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.link import ANSWER_NONCE_SIZE, AnswerSeal
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.pool import check

logger = logging.getLogger("rocketrio_broker.ha")

SYNC_PERIOD: Final = 10.0
"""Seconds between rounds, as in 4.9 (4.4 and 5.x: a minute)."""
OFFSETS_PERIOD: Final = 1.0
"""Seconds between copies of the offsets alone from a rocketrio master: its latest commits are unknown here for that
long."""
OFFSETS_REST: Final = 20
"""The pause after a copy, as a multiple of its duration: large tables are not copied all the time."""
RETRY_PAUSE: Final = 1.0
"""Seconds until a failed round is tried again; doubles up to the period."""


@attrs.frozen
class SlaveSynchronizeStatistics:
    """The state of a slave's copies."""

    master_addr: str | None
    rounds: int
    """The number of rounds that succeeded since the start."""
    last_round_age: float | None
    """Seconds since the last successful round; None before it."""
    last_problem: str | None
    """Why the last round failed; None if it succeeded."""


class SlaveSynchronize:
    """Copies a master's tables repeatedly."""

    def __init__(
        self,
        *,
        call: PeerCaller,
        master: MasterAddress,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumer_offsets: ConsumerOffsetManager,
        delay_offset_file: ConfigFile,
        flushed: Watermark,
        gate: ReadGate,
        followed: Watermark,
        is_following: Callable[[], bool] = lambda: True,
        own_name: Callable[[], tuple[int, str | None]] | None = None,
        epoch: Callable[[], str | None] = lambda: None,
        access: AccessControl | None = None,
        answers: Callable[[], AnswerSeal | None] = lambda: None,
        period: float = SYNC_PERIOD,
    ) -> None:
        """`master` is where the master answers requests; `followed` grows when replication begins to follow its log.

        `is_following` returns whether it follows the log now.
        `flushed` is how much of the log this disk has, `gate` how much of it is confirmed.
        `epoch` returns the last epoch of this log, as readers name it.
        `access` has the users of this broker, if access control is on; `answers` returns what opens the master's.
        `own_name` returns what is sent to the master: this broker's id, and the address of this end of the replication
        stream.
        """
        self._call = call
        self._master = master
        self._topics = topics
        self._groups = groups
        self._offset_copy = OffsetCopy(consumer_offsets, epoch=epoch)
        self._delay_offset_file = delay_offset_file
        self._flushed = flushed
        self._gate = gate
        self._followed = followed
        self._is_following = is_following
        self._own_name = own_name or (lambda: (MASTER_ID, None))
        self._access = access
        self._answers = answers
        self._is_refused_users = False
        self._period = period
        self._delay_offsets = b""
        self._early_delay_offsets: tuple[bytes, int] | None = None
        """A body that applies to a log that is not here yet, and the end of that log."""
        self._problem: Error | OSError | None = None
        self._last_round_time: float | None = None
        self.rounds = Watermark()
        """Counts the rounds that succeeded; parts that need the tables copied wait on it."""
        self.topics_known_to: int | None = None
        """The topics of all messages before this address are known here, except for those deleted since; None before
        the first copy."""

    def __repr__(self) -> str:
        return f"<SlaveSynchronize from {self._master.value or 'no master yet'}>"

    @property
    def is_master_rocketrio(self) -> bool:
        """Whether the master is a rocketrio broker, as far as its tables show."""
        return self._offset_copy.is_versioned

    def statistics(self) -> SlaveSynchronizeStatistics:
        last = self._last_round_time
        return SlaveSynchronizeStatistics(
            master_addr=self._master.value,
            rounds=self.rounds.value,
            last_round_age=None if last is None else trio.current_time() - last,
            last_problem=None if self._problem is None else str(self._problem),
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Copy until cancelled: when replication begins to follow a master, and periodically while it does."""
        task_status.started()
        pause = RETRY_PAUSE
        while True:
            addr = await self._master.wait_known()
            change, followed = self._master.changes.value, self._followed.value
            wait = self._period
            # A master that lost its data has no topics either; its log is not followed,
            # so its empty table deletes nothing here.
            if self._is_following():
                try:
                    await self.sync_all(addr)
                    self._log_success(addr)
                    pause = RETRY_PAUSE
                except (Error, OSError) as error:  # OSError: this disk is full
                    self._log_failure(addr, error)
                    wait, pause = min(pause, self._period), pause * 2
            with trio.move_on_after(wait):
                async with trio.open_nursery() as nursery:
                    if self._problem is None and self._offset_copy.is_versioned:
                        nursery.start_soon(self._follow_offsets, addr)
                    await wait_any_past((self._master.changes, change), (self._followed, followed))
                    nursery.cancel_scope.cancel()

    async def sync_all(self, addr: str) -> None:
        """Copy all tables once. Raises the error that stopped it; what was copied before that stays."""
        # Read before the question: topics of messages that come later may not be in the answer.
        known_to = self._flushed.value
        response = await self._call(addr, GetAllTopicConfigRequestHeader(), timeout=CALL_TIMEOUT)
        check(response, "The master's topics", broker_addr=addr)
        # Before anything is replaced: until it leads, it may lack topics of which this broker has the only copy.
        if response.header(GetAllTopicConfigResponseHeader).stands_aside:
            raise NotLeadingError("The master does not lead (yet)", broker_addr=addr)
        topics = read_table(response.body, TopicConfigSerializeWrapper, what="topics")
        if self._topics.replace(topics):
            logger.info("topics copied master=%s", addr)
        self.topics_known_to = known_to
        await self._copy_consumer_offsets(addr)
        await self._copy_delay_offsets(addr)
        groups = await self._ask(addr, GetAllSubscriptionGroupConfigRequestHeader())
        if self._groups.replace(read_table(groups, SubscriptionGroupWrapper, what="groups")):
            logger.info("consumer groups copied master=%s", addr)
        await self._copy_users(addr)

    async def _follow_offsets(self, addr: str) -> None:
        """Copy the offsets alone between two rounds."""
        pause = OFFSETS_PERIOD
        while True:
            await trio.sleep(pause)
            if not self._is_following():
                return
            started = trio.current_time()
            try:
                await self._copy_consumer_offsets(addr)
                await self._copy_delay_offsets(addr)
                await self._copy_users(addr)
            except (Error, OSError) as error:
                logger.debug(
                    "offsets not copied, the next round will master=%s error=%s", addr, error
                )
                return
            pause = max(OFFSETS_PERIOD, OFFSETS_REST * (trio.current_time() - started))

    async def _copy_consumer_offsets(self, addr: str) -> None:
        # Taken before the question: after a new connection the answer may come from a master that restarted with less.
        contact = addr, self._followed.value
        request = GetAllConsumerOffsetRequestHeader(versions=True)
        broker_id, ha_addr = self._own_name()
        if ha_addr is not None:
            request.broker_id, request.ha_addr = broker_id, ha_addr
        body = await self._ask(addr, request)
        offsets = read_table(body, VersionedConsumerOffsets, what="consumer offsets")
        for newer_here in self._offset_copy.take(offsets, contact=contact):
            answer = await self._call(addr, newer_here, timeout=CALL_TIMEOUT)
            logger.info(
                "offset sent to the master group=%s topic=%s queue_id=%d offset=%d answer=%d",
                newer_here.consumer_group, newer_here.topic, newer_here.queue_id,
                newer_here.commit_offset, answer.code,
            )  # fmt: skip

    async def _copy_delay_offsets(self, addr: str) -> None:
        response = await self._call(addr, GetAllDelayOffsetRequestHeader(), timeout=CALL_TIMEOUT)
        if response.code == ResponseCode.SYSTEM_ERROR:
            return  # A master answers this if it has no such file: it has delivered no delayed message yet.
        body = bytes(check(response, "The master's delay offsets", broker_addr=addr).body)
        if not body:
            return
        read_table(body, DelayOffsetWrapper, what="delay offsets")
        log_end = response.header(GetAllDelayOffsetResponseHeader).log_end_offset or 0
        # The first body is kept until its log is here: a newer one would always have to wait for more log.
        early = self._early_delay_offsets or (body, log_end)
        now = min(self._flushed.value, self._gate.end.value)
        if log_end <= now:
            early = body, log_end
        self._early_delay_offsets = early if early[1] > now else None
        if early[1] <= now and early[0] != self._delay_offsets:
            self._delay_offset_file.write_bytes(early[0])
            self._delay_offsets = early[0]

    async def _copy_users(self, addr: str) -> None:
        """Copy the users of a rocketrio master, unless files of an operator name them here or there."""
        access = self._access
        if access is None or access.is_managed_by_files or not self.is_master_rocketrio:
            return
        answers = self._answers()
        nonce = token_hex(ANSWER_NONCE_SIZE)
        request = GetSealedUsersRequestHeader(
            access.digest, None if answers is None else answers.link, nonce
        )
        response = await self._call(addr, request, timeout=CALL_TIMEOUT)
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return  # Access control is off at the master, or its version is an earlier one.
        self._note_users_refusal(addr, response)
        if response.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            return
        check(response, "The master's users", broker_addr=addr)
        access.is_copied = response.header(GetSealedUsersResponseHeader).version is not None
        body = bytes(response.body)
        if body and answers is not None:
            body = answers.open(body, question=nonce.encode())
        if not body:
            return
        users = decode_users(body, f"the users of {addr}")
        if users.table.users or users.version.counter:  # A master without data knows no users yet.
            access.keep(users)
            logger.info("users copied master=%s count=%s", addr, access.count)

    def _note_users_refusal(self, addr: str, response: RemotingCommand) -> None:
        """Log once that the master does not send its users."""
        is_refused = response.code == ResponseCode.SERVICE_NOT_AVAILABLE
        if is_refused and not self._is_refused_users:
            logger.warning(
                "users not copied, each broker has its own master=%s reason=%s",
                addr,
                response.remark,
            )
        self._is_refused_users = is_refused

    async def _ask(self, addr: str, request: RequestHeader) -> bytes:
        return await ask(
            self._call, addr, request, f"Copying from the master ({request.code.name})"
        )

    def _log_success(self, addr: str) -> None:
        if self._problem is not None or not self.rounds.value:
            logger.info("tables are as the master's master=%s", addr)
        self._problem = None
        self._last_round_time = trio.current_time()
        self.rounds.advance(self.rounds.value + 1)

    def _log_failure(self, addr: str, error: Error | OSError) -> None:
        self._offset_copy.lost_contact()
        if self._problem is None:
            level = logging.INFO if isinstance(error, NotLeadingError) else logging.WARNING
            logger.log(level, "tables not copied, will retry master=%s reason=%s", addr, error)
        else:
            logger.debug("tables not copied again master=%s reason=%s", addr, error)
        self._problem = error
