"""Statistics of topics and groups: 202, 208, 300, 303, 317, and rates: 315.

Answers to: AdminBrokerProcessor; RocketMQ reference, section 2.11.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import trio

from rocketrio_broker.access.needs import ADDRESS, GET, C, G, T
from rocketrio_broker.offsets.ends import end_for
from rocketrio_broker.processors.long_answers import JoinedBody, steps_of
from rocketrio_broker.requests.declaration import answers
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import admin
from rocketrio_protocol.errors import BrokerSystemError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.times import age_ms


class ConsumeStatsProcessor:
    """Answers requests for the progress in each queue."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    @answers(admin.GetTopicStatsInfoRequestHeader, needs=T(GET), known_by=ADDRESS, limited=True)
    async def topic_stats_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(admin.GetTopicStatsInfoRequestHeader)
        topic = self._broker.topics.topic_config(header.topic)
        if topic is None:
            return _topic_not_exist(request, header.topic)
        body = JoinedBody(TopicStatsTable().to_json(), "offsetTable")
        for queue_ids in steps_of(range(topic.write_queue_nums)):
            table = {
                self._queue(header.topic, queue_id): self._topic_offset(header.topic, queue_id)
                for queue_id in queue_ids
            }
            body.add(TopicStatsTable(table).to_json())
            await trio.lowlevel.checkpoint()
        return request.response(body=body.joined())

    def _topic_offset(self, topic: str, queue_id: int) -> TopicOffset:
        low, high = self._bounds(topic, queue_id)
        return TopicOffset(
            min_offset=low,
            max_offset=high,
            last_update_timestamp=self._store_time(topic, queue_id, high - 1, missing=0),
        )

    @answers(admin.GetConsumeStatsRequestHeader, needs=G(GET), known_by=ADDRESS, limited=True)
    async def consume_stats(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(admin.GetConsumeStatsRequestHeader)
        group = header.consumer_group
        topics = (
            [header.topic] if header.topic else self._broker.consumer_offsets.topics_of_group(group)
        )
        body, _ = await self._progress_body(group, list(self._consumed_topics(group, topics)))
        return request.response(body=body)

    @answers(admin.QueryTopicConsumeByWhoRequestHeader, needs=T(GET), known_by=ADDRESS)
    def topic_consume_by_who(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(admin.QueryTopicConsumeByWhoRequestHeader)
        groups = self._broker.consumers.groups_of_topic(header.topic)
        groups += self._broker.consumer_offsets.groups_of_topic(header.topic)
        return request.response(body=GroupList(list(dict.fromkeys(groups))).to_json())

    @answers(
        admin.QueryConsumeTimeSpanRequestHeader,
        needs=(T(GET), G(GET, "group")),
        known_by=ADDRESS,
        limited=True,
    )
    async def consume_time_span(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(admin.QueryConsumeTimeSpanRequestHeader)
        topic = self._broker.topics.topic_config(header.topic)
        if topic is None:
            return _topic_not_exist(request, header.topic)
        body = JoinedBody(QueryConsumeTimeSpanBody().to_json(), "consumeTimeSpanSet")
        for queue_ids in steps_of(range(topic.write_queue_nums)):
            spans = [self._time_span(header.group, header.topic, each) for each in queue_ids]
            body.add(QueryConsumeTimeSpanBody(spans).to_json())
            await trio.lowlevel.checkpoint()
        return request.response(body=body.joined())

    @answers(admin.GetBrokerConsumeStatsRequestHeader, needs=C(GET), known_by=ADDRESS, limited=True)
    async def broker_consume_stats(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(admin.GetBrokerConsumeStatsRequestHeader)
        topics_of_group: defaultdict[str, list[str]] = defaultdict(list)
        for topic, group in list(self._broker.consumer_offsets.table):
            topics_of_group[group].append(topic)
        empty = ConsumeStatsList(broker_addr=self._broker.address).to_classic_json()
        body, total_diff = JoinedBody(empty, "consumeStatsList"), 0
        for group in list(self._broker.groups.subscription_group_table):
            stats = []
            for topic in self._consumed_topics(group, topics_of_group[group]):
                config = self._broker.topics.topic_config(topic)
                if header.is_order and (config is None or not config.order):
                    continue
                progress, diff = await self._progress_body(group, [topic])
                stats.append(progress)
                total_diff += diff
            body.add_entries(b"{%b:[%b]}" % (fastjson.dumps(group), b",".join(stats)))
            await trio.lowlevel.checkpoint()
        return request.response(body=body.joined(b'],"totalDiff":%d}' % total_diff))

    @answers(admin.ViewBrokerStatsDataRequestHeader, needs=C(GET), known_by=ADDRESS)
    def view_broker_stats_data(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(admin.ViewBrokerStatsDataRequestHeader)
        data = self._broker.stats.stats_data(header.stats_name, header.stats_key)
        if data is None:
            raise BrokerSystemError(
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        return request.response(body=data.to_json())

    def _consumed_topics(self, group: str, topics: list[str]) -> Iterator[str]:
        """Yield the topics that exist, and that the group still subscribes to if it is connected."""
        connected = self._broker.consumers.group(group)
        for topic in topics:
            if self._broker.topics.topic_config(topic) is None:
                continue
            if (
                connected is not None
                and connected.subscription_table
                and topic not in connected.subscription_table
            ):
                continue
            yield topic

    async def _progress_body(self, group: str, topics: Sequence[str]) -> tuple[bytes, int]:
        """Return the progress of a group on topics as ConsumeStats, and the number of messages it has not consumed."""
        tps = sum(self._broker.stats.group_get_tps(topic, group) for topic in topics)
        body, diff = JoinedBody(ConsumeStats({}, tps).to_json(), "offsetTable"), 0
        for topic in topics:
            config = self._broker.topics.topic_config(topic)
            for queue_ids in steps_of(range(0 if config is None else config.read_queue_nums)):
                stats = ConsumeStats(self._progress(group, topic, queue_ids), tps)
                body.add(stats.to_json())
                diff += stats.total_diff
                await trio.lowlevel.checkpoint()
        return body.joined(), diff

    def _progress(
        self, group: str, topic: str, queue_ids: range
    ) -> dict[MessageQueue, OffsetWrapper]:
        table = {}
        for queue_id in queue_ids:
            # As in Java, nothing committed is shown as 0.
            consumed = max(0, self._broker.consumer_offsets.query_offset(group, topic, queue_id))
            high = end_for(self._broker.store, topic, queue_id, consumed)
            table[self._queue(topic, queue_id)] = OffsetWrapper(
                broker_offset=high,
                consumer_offset=consumed,
                last_timestamp=self._store_time(topic, queue_id, consumed - 1, missing=0),
                pull_offset=self._broker.pull_offsets.of(
                    group, topic, queue_id, committed=consumed, end=high
                ),
            )
        return table

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        low, high = self._bounds(topic, queue_id)
        consumed = self._broker.consumer_offsets.query_offset(group, topic, queue_id)
        span = QueueTimeSpan.of(self._queue(topic, queue_id))
        span.min_time_stamp = self._store_time(topic, queue_id, low)
        span.max_time_stamp = self._store_time(topic, queue_id, high - 1)
        span.consume_time_stamp = (
            self._store_time(topic, queue_id, consumed - 1) if consumed > 0 else span.min_time_stamp
        )
        next_stored = self._store_time(topic, queue_id, max(consumed, 0))
        now_ms = self._broker.wall_clock.now_ms()
        span.delay_time = 0 if next_stored < 0 else age_ms(next_stored, now_ms)
        return span

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._broker.config.broker.broker_name, queue_id)

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._broker.store.queue_bounds(topic, queue_id) or (0, 0)

    def _store_time(self, topic: str, queue_id: int, offset: int, *, missing: int = -1) -> int:
        stored = self._broker.store.store_time_at(topic, queue_id, offset) if offset >= 0 else None
        return missing if stored is None else stored


def _topic_not_exist(request: RemotingCommand, topic: str) -> RemotingCommand:
    return request.response(code=ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist")
