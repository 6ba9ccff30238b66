"""What a broker's role asks of it while it runs: a master takes over before it takes writes, a slave follows.

    master  end of following: everything whole into the queues, the part of a record cut off
            | no other live master of this name | what a slave has and this log lacks is fetched
            | tables and offsets of its slaves taken over | writes | registered | delayed messages and transactions
    slave   writes refused, waiting sends answered | follows its master's log and tables | registered

A role lives in a cancel scope; `change` ends it and begins the other. Connections, tables and listeners go on.

Invariant: a master takes no write while another live master of its name is known, and leads nobody (leadership.py).
Invariant: it takes none before its queues are complete and its slaves were asked for messages and offsets.
Answers to: BrokerController.changeToMaster, changeToSlave.
Unlike Java: a slave registers at once and learns its master from the answer; there it waits for the next period.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from rocketrio_broker.broker_parts import BrokerParts
from rocketrio_broker.config import BrokerConfig, LiveConfig, Role
from rocketrio_broker.config_file import ConfigFileError
from rocketrio_broker.ha.group_transfer import GroupTransferService
from rocketrio_broker.ha.slave import SlaveReplication, SlaveStatistics
from rocketrio_broker.leadership import NOT_TAKEN_OVER
from rocketrio_broker.registration import BrokerRegistration
from rocketrio_broker.watermark import Watermark
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.topic_config import TopicConfig

logger = logging.getLogger("rocketrio_broker")

OTHER_MASTER_LOOK: Final = 5.0
"""Seconds until a master that stands aside looks again whether the other one is gone."""

LEAST_QUEUES: Final = 4
"""Of a topic whose messages came from a broker that did not say how many it had (clients' defaultTopicQueueNums)."""

ROOM_LOOK: Final = 5.0
"""Seconds until a master whose disk cannot keep its topics tries again."""

GATHER_AGAIN_AFTER: Final = 1.0
"""Seconds until the slaves are asked for offsets a second time: registration is then through."""


class RoleService:
    """Keeps one broker in its role."""

    def __init__(
        self,
        parts: BrokerParts,
        *,
        registration: BrokerRegistration,
        group_transfer: GroupTransferService,
        follow: Callable[[], SlaveReplication],
        fetch: Callable[[Callable[[str], None]], Awaitable[object]],
        gather: Callable[[], Awaitable[object]],
        find_other_master: Callable[[str | None], Awaitable[str | None]],
    ) -> None:
        """`follow` makes a slave's side of replication, `gather` takes over the slaves' tables and offsets.

        `fetch` gets what only slaves have of the log; it is given what to call when that takes long.
        `find_other_master` is given where one was last.
        """
        self.slave: SlaveReplication | None = None
        """The slave's side of replication; None on a master."""
        self.settled = Watermark()
        """Counts the times that a role began to serve."""
        self._parts = parts
        self._config: LiveConfig = parts.config
        self._leadership = parts.leadership
        self._store = parts.store
        self._registration = registration
        self._group_transfer = group_transfer
        self._make_slave = follow
        self._fetch = fetch
        self._gather = gather
        self._task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
        self._find_other_master = find_other_master
        self._last_master: str | None = None
        self._topics_known_to: int | None = None
        self._scope = trio.CancelScope()
        self._turn = trio.Lock()
        self._has_taken_over = False

    def __repr__(self) -> str:
        return f"<RoleService {self._config.broker.role}>"

    def slave_statistics(self) -> SlaveStatistics | None:
        """A slave's view of its replication; None on a master."""
        return None if self.slave is None else self.slave.statistics()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Live in the role of the settings, and in those that come; started once the first may be served."""
        self._task_status = task_status
        while True:
            with trio.CancelScope() as self._scope:
                if self._config.broker.is_slave:
                    await self._follow()
                else:
                    await self._lead()
            if self._scope.cancelled_caught:
                logger.info("role changed role=%s", self._config.broker.role)

    async def change(self, role: Role, broker_id: int) -> None:
        """Take another role, or id; returns once it serves. Raises ConfigError, and changes nothing, for a wrong pair.

        A cancel leaves the change under way.
        """
        async with self._turn:
            before = self._config.broker
            try:
                after: BrokerConfig = attrs.evolve(before, role=role, broker_id=broker_id)
            except ValueError as error:
                raise ConfigError(f"No broker has this role and id: {error}") from error
            if after == before:
                return
            if not after.is_slave and not before.is_slave:
                # A master stays one: only what its sends wait for is another matter from now on.
                self._parts.waiting_answers.answer_all()
                self._config.replace(after)
                self._expect_acknowledgements()
                logger.info("role changed role=%s", role)
                return
            if after.is_slave:
                self._store.refuse_writes("this broker becomes a slave")
            else:
                self._last_master = self._registration.master.addr
                # Not before it takes writes: an Apache name server would list it at once.
                self._registration.hold()
            settled = self.settled.value
            self._parts.waiting_answers.answer_all()
            self._config.replace(after)
            self._scope.cancel()
            await self.settled.wait_past(settled)

    async def _follow(self) -> None:
        self._store.is_slave = True
        self._leadership.follow()
        self._parts.queue_locks.clear()
        self._expect_acknowledgements()
        self.slave = self._make_slave()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.slave.run)
                self._settle()
        finally:
            self._topics_known_to = self.slave.synchronize.topics_known_to
            self.slave = None

    async def _lead(self) -> None:
        """Returns when a name server refused this master: then all begins again."""
        store, registration = self._store, self._registration
        # Before anything is waited for: the setter below completes the queues, and would open for writes.
        self._leadership.stand_aside()
        store.is_slave = False
        store.refuse_writes(NOT_TAKEN_OVER)
        self._has_taken_over = False
        self._expect_acknowledgements()
        while (other := await self._other_master()) is not None:
            self._stand_aside(other)
            self._settle()
            await trio.sleep(OTHER_MASTER_LOOK)
        self._leadership.stand_aside()
        refusals = registration.refusals.value
        known_to = store.max_physical_offset
        if self._topics_known_to is not None:
            known_to = min(known_to, self._topics_known_to)
        await self._fetch(self._stand_by)
        self._expect_acknowledgements()
        await self._gather()
        self._parts.deleted_topics.follow()
        self._leadership.lead()
        await self._insist_on_topics(known_to)
        self._topics_known_to = None
        store.take_writes()
        self._has_taken_over = True
        logger.info("writes are taken offset=%d", store.max_physical_offset)
        self._settle()
        async with trio.open_nursery() as nursery:
            for service in self._parts.leading_services():
                await nursery.start(service.run)
            nursery.start_soon(self._gather_again)
            await registration.refusals.wait_past(refusals)
            nursery.cancel_scope.cancel()

    async def _gather_again(self) -> None:
        """For what was committed to a slave until this master was registered."""
        await trio.sleep(GATHER_AGAIN_AFTER)
        await self._gather()

    def _expect_acknowledgements(self) -> None:
        self._group_transfer.change_role(
            is_required=self._config.broker.role == "sync-master",
            max_physical_offset=self._store.max_physical_offset,
        )

    async def _other_master(self) -> str | None:
        """Who else is master: one that lives, or one for whose sake a name server refused this one."""
        registration = self._registration
        live = await self._find_other_master(self._last_master)
        if live is not None:
            self._last_master = live
            registration.hold()
            return live
        refusing = registration.other_masters
        if not refusing:
            return None
        # It goes on trying to register: that tells when the name is free.
        registration.register_now()
        self._last_master = min(refusing.values())
        return self._last_master

    def _stand_aside(self, other: str) -> None:
        name = self._config.broker.broker_name
        reason = (
            f"{name} has another live master, at {other}: stop one of the two, or make it a slave"
        )
        if self._store.refusal != reason:
            logger.error("no writes are taken reason=%s", reason)
        self._store.refuse_writes(reason)
        self._leadership.stand_aside(reason, other=other)

    async def _insist_on_topics(self, known_to: int) -> None:
        """With a full disk no topic can be made, and no message taken either: only reads are served."""
        while True:
            try:
                self._make_topics(known_to)
                return
            except ConfigFileError as error:
                logger.error("no writes are taken reason=%s", error)
                self._stand_by(str(error))
                await trio.sleep(ROOM_LOOK)

    def _make_topics(self, known_to: int) -> None:
        """Topics of messages from this address on that came from another broker, and that nobody told of."""
        topics = self._parts.topics
        for topic, queues in self._store.queues().items():
            is_known = topics.topic_config(topic) is not None
            if is_known or all(queue.last_physical_end <= known_to for queue in queues.values()):
                continue
            count = max(*queues, LEAST_QUEUES - 1) + 1
            topics.update(TopicConfig(topic, read_queue_nums=count, write_queue_nums=count))
            logger.warning(
                "topic of replicated messages was not known and is made topic=%s queues=%d",
                topic, count,
            )  # fmt: skip

    def _stand_by(self, reason: str) -> None:
        """Serve what can be read, for it may take long until writes can be taken."""
        self._store.refuse_writes(reason)
        self._settle()

    def _settle(self) -> None:
        """The role serves: whoever waits for that may go on, and the name servers are told."""
        # A disk that is full refuses writes too; it will have room again, and this is the master all the same.
        if self._config.broker.broker_id != MASTER_ID or self._has_taken_over:
            self._registration.register_now()
        status, self._task_status = self._task_status, trio.TASK_STATUS_IGNORED
        status.started()
        self.settled.advance(self.settled.value + 1)
