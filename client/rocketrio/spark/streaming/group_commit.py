"""Commits the progress of a stream for its group, so that tools can show the group's lag.

Spark's checkpoint alone decides where a query continues; the query never reads these commits.

Invariant: a committed offset is that of the next message to read, so a group that has read everything has no lag.
Invariant: nothing here fails a query: what was not committed is committed later.
Answers to: RemoteBrokerOffsetStore, for a reader that owns no queues and is not a member of a group.
"""

import logging
from collections.abc import Iterable
from math import inf
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.routing import FindBrokerResult
from rocketrio.spark.reading.offsets import OffsetTable
from rocketrio_protocol.bodies.topics import READ_WRITE
from rocketrio_protocol.commands.admin import CreateTopicRequestHeader
from rocketrio_protocol.errors import BrokerError, Error
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import AUTO_CREATE_TOPIC, retry_topic

COMMIT_TIMEOUT: Final = 2.0
"""Seconds that a poll may spend on commits."""

logger = logging.getLogger("rocketrio.spark.stream")


@attrs.define(eq=False)
class GroupCommit:
    """The progress of one group."""

    group: str
    interval: float
    failures: int = 0
    """Commits that no broker accepted, and polls whose time was over before all commits were sent."""
    _wanted: dict[MessageQueue, int] = attrs.Factory(dict)
    _settled: dict[MessageQueue, int] = attrs.Factory(dict)
    """The offsets that a master acknowledged."""
    _known_at: set[str] = attrs.Factory(set)
    """Names of the brokers to which this object has introduced the group."""
    _faults_seen: int = 0
    _sent_at: float = -inf
    _is_failing: bool = False

    def read_up_to(self, start: OffsetTable) -> None:
        """Note that Spark has finished everything before `start`."""
        self._wanted = dict(start)

    def finished(self, end: OffsetTable) -> None:
        """Note that Spark has finished a batch up to `end`; Spark reports this late, so offsets never go back here."""
        for queue, offset in end.items():
            self._wanted[queue] = max(offset, self._wanted.get(queue, 0))

    async def send(self, client: ClientInstance, *, at_once: bool) -> None:
        """Commit changed offsets, if the interval is over or `at_once`. Never raises an Error."""
        if self._faults_seen != client.faults.count:
            # A broker that was away may have come back with an older state.
            self._faults_seen = client.faults.count
            self._settled.clear()
        due = [queue for queue, at in self._wanted.items() if self._settled.get(queue) != at]
        now = trio.current_time()
        is_time = now - self._sent_at >= self.interval
        if not due or not (is_time or (at_once and not self._is_failing)):
            return
        self._sent_at = now
        failures = self.failures
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in sorted(due):
            by_broker.setdefault(queue.broker_name, []).append(queue)
        with trio.move_on_after(COMMIT_TIMEOUT) as scope:
            async with trio.open_nursery() as nursery:
                for queues in by_broker.values():
                    nursery.start_soon(self._commit, client, queues)
        if scope.cancelled_caught:
            self.failures += 1
            logger.info("commits not finished group=%s failures=%d", self.group, self.failures)
        self._is_failing = self.failures > failures

    async def _commit(self, client: ClientInstance, queues: Iterable[MessageQueue]) -> None:
        # One after the other: Apache's brokers lose one of two first commits that arrive together.
        for queue in queues:
            offset = self._wanted[queue]

            async def commit(
                found: FindBrokerResult, queue: MessageQueue = queue, offset: int = offset
            ) -> bool:
                await client.api.update_consumer_offset(found.addr, self.group, queue, offset)
                return not found.is_slave

            try:
                if queue.broker_name not in self._known_at:
                    await self._introduce(client, queue, offset)
                    self._known_at.add(queue.broker_name)
                if await client.ask_broker(queue, commit, insist_on_master=True):
                    self._settled[queue] = offset
            except Error as error:
                self.failures += 1
                logger.info(
                    "not committed group=%s queue=%s offset=%d failures=%d error=%s",
                    self.group, queue, offset, self.failures, error,
                )  # fmt: skip
                return  # The broker's other commits would wait as long.

    async def _introduce(self, client: ClientInstance, queue: MessageQueue, offset: int) -> None:
        """Make the group known to a broker as a consumer would, and warn if the group has members.

        A 5.x broker refuses the offsets of a group that never pulled; tools that show lag ask for the retry topic.
        """
        pulls = PullAPIWrapper(client, self.group)
        await pulls.pull_kernel(queue, offset, max_messages=1, suspend_timeout=0)
        found = client.routing.candidates(queue.broker_name)[0]
        try:
            members = await client.api.consumer_ids(found.addr, self.group)
        except BrokerError:  # Apache's brokers answer so for no members.
            members = []
        if members:
            logger.warning(
                "the consumer group has live members, they and this query overwrite each other's offsets"
                " group=%s count=%d members=%s remedy=%s",
                self.group, len(members), ", ".join(sorted(members)[:3]),
                "give the query a group of its own, or commitOffsets=false",
            )  # fmt: skip
        if await client.name_servers.topic_route(retry_topic(self.group)) is None:
            await self._create_retry_topic(client, found)

    async def _create_retry_topic(self, client: ClientInstance, found: FindBrokerResult) -> None:
        header = CreateTopicRequestHeader(
            topic=retry_topic(self.group),
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=1,
            write_queue_nums=1,
            perm=int(READ_WRITE),
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        try:
            await client.api.call(found.addr, header, what="the retry topic cannot be made")
        except BrokerError as error:
            # A permission may be missing; only Apache's tools need the topic.
            logger.info("no retry topic group=%s error=%s", self.group, error)
