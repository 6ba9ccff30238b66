"""Administration: topics, progress of groups, single messages; and brokers, by `broker_admin`.

Invariant: what could not be asked is None or an error, never zero.
Invariant: a change is done when every broker it concerns has confirmed it; an error names the first that did not.
Answers to: DefaultMQAdminExt.
Unlike Java: statistics are asked of a slave where the master is away, and say so by being there at all.
"""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Unpack

import attrs
import trio

from rocketrio.admin_calls import AdminCalls
from rocketrio.admin_values import QueueOffsets, TopicDescription
from rocketrio.api import NOT_FOUND
from rocketrio.broker_admin import BrokerAdmin
from rocketrio.instance import ClientInstance, ClientOptions, given_or_own
from rocketrio.offset_store import check_offset
from rocketrio.outgoing import DEFAULT_TOPIC_QUEUE_NUMS
from rocketrio.routing import FindBrokerResult, subscribe_queues
from rocketrio.routing.queues import broker_names
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import (
    BrokerError,
    ConfigError,
    Error,
    NotReachable,
    QueryNotFound,
    RouteNotFound,
)
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.message_id import parse_offset_message_id
from rocketrio_protocol.remoting.ports import join_addr
from rocketrio_protocol.stats import ConsumerConnection, ConsumeStats
from rocketrio_protocol.topic_config import READ_WRITE
from rocketrio_protocol.topic_names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    topic_name_problem,
)

QUERY_MAX_MESSAGES: Final = 32  # defaultQueryMaxNum
MAX_QUEUES: Final = 65_535

logger = logging.getLogger("rocketrio.admin")


@asynccontextmanager
async def open_admin(
    *, client: ClientInstance | None = None, **client_options: Unpack[ClientOptions]
) -> AsyncGenerator["Admin"]:
    """An admin that lives as long as the block; it uses `client`, or opens one with the other arguments."""
    async with given_or_own(client, client_options) as used:
        yield Admin(used, AdminCalls(used.api))


@attrs.define(eq=False)
class Admin(BrokerAdmin):
    """Made by `open_admin`. Every method raises NotReachable when no name server answers.

    What concerns brokers rather than what they hold is in `broker_admin.py`.
    """

    # --------------------------------------------------------------------------------------- topics

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = DEFAULT_TOPIC_QUEUE_NUMS,
        cluster: str | None = None,
        perm: int = READ_WRITE,
        order: bool = False,
    ) -> list[str]:
        """Create a topic, or change it, on every master (of one cluster); their broker names.

        Raises ConfigError for a name or number that cannot be, RouteNotFound without such a master, BrokerError when
        one refuses. When it returns the name servers know the topic.
        """
        problem = topic_name_problem(topic)
        if problem is None and not 1 <= queues <= MAX_QUEUES:
            problem = f"queues={queues} is not between 1 and {MAX_QUEUES}"
        if problem is not None:
            raise ConfigError(problem)
        masters = await self._masters(cluster)
        for addr in masters.values():
            await self.calls.create_topic(addr, topic, queues=queues, perm=perm, order=order)
        return sorted(masters)

    async def delete_topic(self, topic: str) -> list[str]:
        """Remove a topic from its brokers and from all name servers; the broker names.

        Raises RouteNotFound when no name server knows it.
        """
        await self.client.refresh_topic_route(topic)
        route = await self.client.topic_route(topic)
        for broker in route.broker_datas:
            master = broker.broker_addrs.get(MASTER_ID)
            if master is None:
                raise RouteNotFound(
                    f"broker {broker.broker_name} has no master now, and only a master deletes topics",
                    topic=topic,
                    remedy="Start it and delete again",
                )
            await self.calls.delete_topic(master, topic)
            for broker_id, addr in broker.broker_addrs.items():
                if broker_id != MASTER_ID:
                    await self._delete_on_slave(addr, topic)
        await self.client.name_servers.delete_topic(topic)
        self.client.routing.topic_route_table.pop(topic, None)
        return broker_names(route)

    async def _delete_on_slave(self, addr: str, topic: str) -> None:
        # Apache's 4.9 slaves refuse it and copy what the master has; those of other versions need it.
        try:
            await self.calls.delete_topic(addr, topic)
        except (BrokerError, NotReachable) as error:
            logger.info("slave keeps topic=%s addr=%s error=%s", topic, addr, error)

    async def topics(self, *, include_system: bool = False) -> list[str]:
        """Names of all topics; those of RocketMQ itself and of groups only if asked for."""
        names = await self.client.name_servers.topics()
        if include_system:
            return sorted(names)
        info = await self.cluster_info()
        hidden = SYSTEM_TOPICS | set(info.cluster_addr_table) | set(info.broker_addr_table)
        hidden |= {f"{cluster}_REPLY_TOPIC" for cluster in info.cluster_addr_table}
        prefixes = (RETRY_PREFIX, DEAD_LETTER_PREFIX, SYSTEM_TOPIC_PREFIX)
        return sorted(
            name for name in names if name not in hidden and not name.startswith(prefixes)
        )

    async def topic(self, topic: str) -> TopicDescription:
        """Where a topic lives, and the bounds of its queues. Raises RouteNotFound."""
        await self.client.refresh_topic_route(topic)
        route = await self.client.topic_route(topic)
        return TopicDescription(topic, route, await self._bounds(subscribe_queues(topic, route)))

    async def offsets(self, topic: str, group: str) -> list[QueueOffsets]:
        """Bounds of every queue, and how far a group has committed. Raises RouteNotFound.

        A number that no broker could tell is None, and so is the committed offset of a group without one. Brokers
        before 5.0 answer 0 instead where the queue's first messages are still in memory.
        """
        await self.client.refresh_topic_route(topic)
        route = await self.client.topic_route(topic)
        return await self._bounds(subscribe_queues(topic, route), group)

    async def reset_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Put a group elsewhere, queue by queue: back or forward, and newer than what its members committed anywhere.

        Members that run keep their position. Of a queue set back they commit nothing more until it is taken over
        again, which starts there: stop them first, or let them `seek`. To an Apache broker it is one more commit, which
        the next one of a running member overwrites. Raises NotReachable, BrokerError for the first queue that could
        not be reset, ConfigError for a number that is no offset. A cancel leaves open which queues are.
        """
        for queue, offset in offsets.items():
            check_offset(queue, offset)

            async def reset(
                broker: FindBrokerResult, queue: MessageQueue = queue, offset: int = offset
            ) -> None:
                await self.client.api.update_consumer_offset(
                    broker.addr, group, queue, offset, reset=True
                )

            await self.client.topic_route(queue.topic)
            await self.client.ask_broker(queue, reset, insist_on_master=True)

    async def _bounds(
        self, queues: Sequence[MessageQueue], group: str | None = None
    ) -> list[QueueOffsets]:
        found: dict[MessageQueue, QueueOffsets] = {}

        async def look(queue: MessageQueue) -> None:
            found[queue] = await self._queue_offsets(queue, group)

        async with trio.open_nursery() as nursery:
            for queue in queues:
                nursery.start_soon(look, queue)
        return [found[queue] for queue in queues]

    async def _queue_offsets(self, queue: MessageQueue, group: str | None) -> QueueOffsets:
        api = self.client.api

        async def ask_committed(broker: FindBrokerResult) -> int | None:
            assert group is not None
            offset = await api.query_consumer_offset(broker.addr, group, queue, zero_if_young=False)
            return None if offset is NOT_FOUND else offset

        async def ask_min(broker: FindBrokerResult) -> int | None:
            return await api.min_offset(broker.addr, queue)

        async def ask_max(broker: FindBrokerResult) -> int | None:
            return await api.max_offset(broker.addr, queue)

        questions = [ask_min, ask_max] + ([] if group is None else [ask_committed])
        answers: list[int | None] = [None, None, None]
        for index, question in enumerate(questions):
            try:
                answers[index] = await self.client.ask_broker(
                    queue, question, insist_on_master=question is ask_committed
                )
            except Error as error:
                logger.warning("offset unknown queue=%s error=%s", queue, error)
        return QueueOffsets(queue, *answers)

    # --------------------------------------------------------------------------------------- groups

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Progress of a group as all masters see it. Raises BrokerError when one refuses."""
        stats = ConsumeStats()
        for addr in (await self._masters(None)).values():
            found = await self.calls.consume_stats(addr, group, topic)
            stats.offset_table.update(found.offset_table)
            stats.consume_tps += found.consume_tps
        return stats

    async def consumer_connections(self, group: str) -> ConsumerConnection:
        """Who is connected for a group, as the first master says that knows any. Raises ConsumerNotOnline."""
        failure: Error | None = None
        for addr in (await self._masters(None)).values():
            try:
                return await self.calls.consumer_connections(addr, group)
            except BrokerError as error:
                failure = error
        assert failure is not None
        raise failure

    # ------------------------------------------------------------------------------------- messages

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """The message at the place its offset id names. Raises LocalProtocolError, BrokerError."""
        ip, port, physical_offset = parse_offset_message_id(offset_message_id)
        return await self.calls.view_message(join_addr(ip, port), physical_offset)

    async def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = QUERY_MAX_MESSAGES,
        begin_ms: int = 0,
        end_ms: int | None = None,
        is_unique_id: bool = False,
    ) -> list[MessageExt]:
        """Messages with a key, or with a producer's id, in the order they were stored; empty if there are none.

        Times are store times in epoch ms. Raises RouteNotFound, and NotReachable when a broker cannot be asked.
        """
        route = await self.client.topic_route(topic)
        found: list[MessageExt] = []
        for broker in route.broker_datas:
            queue = MessageQueue(topic, broker.broker_name, 0)

            async def ask(at: FindBrokerResult, name: str = broker.broker_name) -> list[MessageExt]:
                return await self.calls.query_message(
                    at.addr,
                    topic,
                    key,
                    max_messages=max_messages,
                    begin_ms=begin_ms,
                    end_ms=end_ms,
                    is_unique_id=is_unique_id,
                    broker_name=name,
                )

            try:
                found += await self.client.ask_broker(queue, ask)
            except QueryNotFound:
                continue
        found.sort(key=lambda message: (message.store_timestamp_ms, message.physical_offset))
        # A broker finds keys by their hash.
        if is_unique_id:
            return [message for message in found if message.message_id == key]
        return [message for message in found if key in message.keys.split(" ")]
