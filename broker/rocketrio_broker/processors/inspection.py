"""Console queries for queue entries (321), producers (328), a group's topics and subscription (343, 345), and events
(71002).

Answers to: AdminBrokerProcessor's queryConsumeQueue, getAllProducerInfo, queryTopicsByConsumer,
querySubscriptionByConsumer.
Unlike Java: each entry of a queue says whether the group would receive it, not only entries with extension files.
"""

from typing import Final

import trio

from rocketrio_broker.access.needs import ADDRESS, GET, C, G, T
from rocketrio_broker.processors.long_answers import JoinedBody, steps_of
from rocketrio_broker.processors.tag_expression import ALL, is_tag_type
from rocketrio_broker.requests.declaration import answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.record_filter import CHOSEN, Entry
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.events import events_to_json
from rocketrio_protocol.bodies.heartbeat import SubscriptionData
from rocketrio_protocol.bodies.inspection import (
    ConsumeQueueData,
    GroupSubscription,
    ProducerInfo,
    ProducerTableInfo,
    QueryConsumeQueueBody,
)
from rocketrio_protocol.bodies.route import TopicList
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import admin, inspection
from rocketrio_protocol.remoting.channel import Channel

ENTRIES_LIMIT: Final = 1000
"""The most queue entries in one answer: 100 kB of JSON."""

NO_FILTER_DATA: Final = "null"
"""The filter data that Apache's brokers report for a subscription by tags: they compile nothing for it."""


class InspectionProcessor:
    """Answers console queries for queue entries, producers and subscriptions."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    @answers(inspection.QueryConsumeQueueRequestHeader, needs=T(GET), known_by=ADDRESS)
    def queue_entries(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(inspection.QueryConsumeQueueRequestHeader)
        bounds = self._broker.store.queue_bounds(header.topic, header.queue_id)
        if bounds is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!"
            )
        entries = self._broker.store.queue_entries(
            header.topic,
            header.queue_id,
            max(header.queue_offset, bounds[0]),
            max(0, min(header.count, ENTRIES_LIMIT)),
        )
        body = QueryConsumeQueueBody([ConsumeQueueData(*entry) for entry in entries], *bounds)
        if header.consumer_group is not None:
            self._judge(channel, body, header.consumer_group, header.topic, entries)
        return request.response(body=body.to_classic_json())

    def _judge(
        self,
        channel: Channel,
        body: QueryConsumeQueueBody,
        group: str,
        topic: str,
        entries: list[Entry],
    ) -> None:
        """Set for each entry whether the group would receive it, and omit those that would take too long."""
        subscription = self._broker.consumers.subscription(group, topic)
        if subscription is None:
            body.filter_data = f"{group}@{topic} is not online!"
            return
        body.subscription_data = subscription
        is_by_tags = is_tag_type(subscription.expression_type)
        body.filter_data = NO_FILTER_DATA if is_by_tags else subscription.sub_string
        verdicts = self._verdicts(channel, subscription, entries)
        del body.queue_data[len(verdicts) :]
        for shown, is_chosen in zip(body.queue_data, verdicts, strict=True):
            shown.eval = is_chosen

    def _verdicts(
        self, channel: Channel, subscription: SubscriptionData, entries: list[Entry]
    ) -> list[bool]:
        if is_tag_type(subscription.expression_type):
            codes = set(subscription.code_set)
            takes_all = subscription.sub_string == ALL or not codes
            return [takes_all or code in codes for _, _, code in entries]
        matches = self._broker.sql_expressions.filter(
            channel,
            subscription.expression_type,
            subscription.sub_string,
            self._broker.config.broker,
        )
        return [code in CHOSEN for _, _, code in self._broker.store.with_verdicts(entries, matches)]

    @answers(
        inspection.GetAllProducerInfoRequestHeader, needs=C(GET), known_by=ADDRESS, limited=True
    )
    async def producers(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        now_ms, now = self._broker.wall_clock.now_ms(), trio.current_time()
        body = JoinedBody(ProducerTableInfo().to_classic_json(), "data")
        for group in list(self._broker.producers.group_channel_table):
            clients, shown = self._broker.producers.clients(group), []
            for numbers in steps_of(range(len(clients))):
                some = [
                    ProducerInfo(
                        client.client_id,
                        f"/{client.channel.remote_addr}",
                        client.language.name,
                        client.version,
                        now_ms - round((now - client.last_update) * 1000),
                    )
                    for client in clients[numbers.start : numbers.stop]
                ]
                shown.append(fastjson.dumps(some)[1:-1])
                await trio.lowlevel.checkpoint()
            if shown:
                body.add_entries(b"%b:[%b]" % (fastjson.dumps(group), b",".join(shown)))
        return request.response(body=body.joined())

    @answers(inspection.QueryTopicsByConsumerRequestHeader, needs=G(GET, "group"), known_by=ADDRESS)
    def topics_of_group(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(inspection.QueryTopicsByConsumerRequestHeader)
        topics = TopicList(
            self._broker.consumer_offsets.topics_of_group(header.group), self._broker.address
        )
        return request.response(body=topics.to_classic_json())

    @answers(
        inspection.QuerySubscriptionByConsumerRequestHeader,
        needs=(T(GET), G(GET, "group")),
        known_by=ADDRESS,
    )
    def subscription(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(inspection.QuerySubscriptionByConsumerRequestHeader)
        known = self._broker.consumers.subscription(header.group, header.topic)
        body = GroupSubscription(header.group, header.topic, known)
        return request.response(body=body.to_classic_json())

    @answers(admin.GetEventsRequestHeader, needs=C(GET))
    def events(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(admin.GetEventsRequestHeader)
        ring = self._broker.events
        found = ring.since(
            after=header.after_offset,
            since_ms=header.since_millis,
            kinds=header.kinds.split(",") if header.kinds else (),
        )
        answer = admin.GetEventsResponseHeader(ring.next_number, ring.name_of_ring)
        return request.response(answer, events_to_json(found))
