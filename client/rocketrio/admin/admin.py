"""Administration of topics and single messages; `group_admin` adds groups, `broker_admin` adds brokers.

Invariant: a value that could not be read is None or an error, never zero.
Invariant: a change is complete when every broker concerned has confirmed it; an error names the first that did not.
Answers to: DefaultMQAdminExt.
Unlike Java: statistics come from a slave while the master is away, which shows only in that they are there at all.
"""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, Unpack

import attrs
import msgspec

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.admin_values import TopicDescription
from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.admin.dead_letters import DeadLetters
from rocketrio.admin.group_admin import GroupAdmin
from rocketrio.arguments import epoch_ms
from rocketrio.client import ClientInstance
from rocketrio.connect import ClientOptions, given_or_own
from rocketrio.producing.outgoing import DEFAULT_TOPIC_QUEUE_NUMS
from rocketrio.routing import FindBrokerResult, subscribe_queues
from rocketrio.routing.queues import broker_names
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import (
    BrokerError,
    ConfigError,
    Error,
    LocalProtocolError,
    NoBrokerRegistered,
    NotReachable,
    QueryNotFound,
    RequestCodeNotSupported,
    RouteNotFound,
)
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    topic_name_problem,
)
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.remoting.ports import join_addr

QUERY_MAX_MESSAGES: Final = 32  # defaultQueryMaxNum
MAX_QUEUES: Final = 65_535

logger = logging.getLogger("rocketrio.admin")


@asynccontextmanager
async def open_admin(
    *, client: ClientInstance | None = None, **client_options: Unpack[ClientOptions]
) -> AsyncGenerator["Admin"]:
    """Open an admin for the length of the block; it uses `client`, or opens one with the other arguments."""
    async with given_or_own(client, client_options, open_admin) as used:
        yield Admin(used, AdminCalls(used.api))


@attrs.define(eq=False)
class Admin(GroupAdmin):
    """The administration of a cluster; `open_admin` creates it. Every method raises NotReachable without a name server.

    The methods for consumer groups are in `group_admin.py`, those for brokers in `broker_admin.py`.
    """

    def dead_letters(self, group: str) -> DeadLetters:
        """Return the dead letters of a consumer group, see dead_letters.py."""
        return DeadLetters(self.client, group)

    # --------------------------------------------------------------------------------------- topics

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        cluster: str | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
    ) -> dict[str, TopicConfig]:
        """Create or change a topic on every master (of one cluster); return its new settings by broker name.

        Settings that are not given stay as a broker has them; a new topic gets 4 queues to read and to write,
        unordered. With fewer queues than before, the messages of the others are hidden. `attributes` are those of
        RocketMQ 5, for example `{"message.type": "FIFO"}`; None removes one.

        Raises ConfigError for an invalid name or number, RouteNotFound without such a master, BrokerError if one
        refuses. When it returns, the name servers know the topic.
        """
        problem = topic_name_problem(topic)
        if problem is None and queues is not None and not 1 <= queues <= MAX_QUEUES:
            problem = f"queues={queues} is not between 1 and {MAX_QUEUES}"
        for name, value in (attributes or {}).items():
            if not name or set("+-=,") & set(name) or set("=,") & set(value or ""):
                problem = (
                    f"the attribute {name}={value} cannot be: its name is empty or has one of + - = , in it, "
                    "or its value one of = ,"
                )
        if problem is not None:
            raise ConfigError(problem)
        long_name = self.client.namespace.wrapped(topic)
        given: dict[str, Any] = {
            "read_queue_nums": queues,
            "write_queue_nums": queues,
            "perm": perm,
            "order": order,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        new = TopicConfig(long_name, DEFAULT_TOPIC_QUEUE_NUMS, DEFAULT_TOPIC_QUEUE_NUMS)
        made: dict[str, TopicConfig] = {}
        for broker_name, addr in sorted((await self._masters(cluster)).items()):
            known = (await self.calls.topics(addr)).get(long_name, new)
            config = msgspec.structs.replace(known, topic_name=topic, **changes)
            await self.calls.update_topic(addr, config, attributes or {})
            if attributes:
                config = await self._with_attributes(addr, config)
            made[broker_name] = config
        return made

    async def _with_attributes(self, addr: str, config: TopicConfig) -> TopicConfig:
        """Return the settings as the broker keeps them: brokers of RocketMQ 4 ignore attributes silently."""
        try:
            kept = await self.calls.topic(addr, config.topic_name)
        except RequestCodeNotSupported as error:
            raise ConfigError(
                f"the broker {addr} runs RocketMQ 4, which has no topic attributes",
                remedy="Omit the attributes, or name a cluster of RocketMQ 5 or rocketrio brokers",
            ) from error
        return msgspec.structs.replace(config, attributes=kept.attributes)

    async def delete_topic(self, topic: str) -> list[str]:
        """Remove a topic from its brokers and from all name servers; return the broker names.

        Raises RouteNotFound if no name server knows it.
        """
        # The client's stored route may be old: it may name a former master.
        route = await self.client.name_servers.topic_route(topic)
        if route is None:
            error = await self.client.name_servers.unknown_topic(topic)
            if isinstance(error, NoBrokerRegistered):
                raise error
            raise RouteNotFound(
                error.what,
                topic=topic,
                remedy="`rocketrio topic list` shows what there is to delete",
            )
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
        # Apache's 4.9 slaves refuse it and copy the deletion from the master; slaves of other versions need it.
        try:
            await self.calls.delete_topic(addr, topic)
        except (BrokerError, NotReachable) as error:
            logger.info("slave keeps topic=%s addr=%s error=%s", topic, addr, error)

    async def topics(self, *, include_system: bool = False) -> list[str]:
        """Return the names of all topics, of one namespace; topics of RocketMQ itself and of groups only if requested.

        Raises RouteNotFound while no broker is registered.
        """
        info = await registered_brokers(self.client)
        names = self.client.namespace.known(await self.client.name_servers.topics())
        if include_system:
            return sorted(names)
        hidden = SYSTEM_TOPICS | set(info.cluster_addr_table) | set(info.broker_addr_table)
        hidden |= {f"{cluster}_REPLY_TOPIC" for cluster in info.cluster_addr_table}
        prefixes = (RETRY_PREFIX, DEAD_LETTER_PREFIX, SYSTEM_TOPIC_PREFIX)
        return sorted(
            name for name in names if name not in hidden and not name.startswith(prefixes)
        )

    async def topic(self, topic: str) -> TopicDescription:
        """Return where a topic is stored, and the bounds of its queues. Raises RouteNotFound."""
        await self.client.refresh_topic_route(topic)
        route = await self.client.topic_route(topic)
        bounds = await self._bounds(subscribe_queues(topic, route))
        attributes = {name: await self._attributes(topic, name) for name in broker_names(route)}
        return TopicDescription(topic, route, bounds, attributes)

    async def _attributes(self, topic: str, broker_name: str) -> dict[str, str] | None:
        async def ask(at: FindBrokerResult) -> dict[str, str]:
            return (await self.calls.topic(at.addr, topic)).attributes

        try:
            return await self.client.ask_broker(MessageQueue(topic, broker_name, 0), ask)
        except Error as error:
            logger.info("attributes unknown topic=%s broker=%s error=%s", topic, broker_name, error)
            return None

    # ------------------------------------------------------------------------------------- messages

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """Return the message whose place the offset id names. Raises LocalProtocolError, BrokerError."""
        ip, port, physical_offset = parse_offset_message_id(offset_message_id)
        if not 0 < port < 65_536:
            raise LocalProtocolError(
                f"{offset_message_id!r} does not name a broker",
                remedy="Take `offset_message_id`; by its producer's id `query_message` finds a message",
            )
        found = await self.calls.view_message(join_addr(ip, port), physical_offset)
        return self.client.namespace.message(found)

    async def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = QUERY_MAX_MESSAGES,
        begin_time: datetime | None = None,
        end_time: datetime | None = None,
        is_unique_id: bool = False,
    ) -> list[MessageExt]:
        """Return the messages with a key, or with a producer's id, in the order of storing; empty if there are none.

        With `begin_time` or `end_time`, aware datetimes, only messages stored then or later, or then or earlier. Raises
        RouteNotFound, NotReachable if a broker cannot be asked, and ConfigError for a time without a zone.
        """
        begin_ms = 0 if begin_time is None else epoch_ms("begin_time", begin_time)
        end_ms = None if end_time is None else epoch_ms("end_time", end_time)
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
        found.sort(key=lambda message: (message.store_time_ms, message.physical_offset))
        found = [self.client.namespace.message(message) for message in found]
        # A broker finds keys by their hash, so other keys may be among the answers.
        if is_unique_id:
            return [message for message in found if message.message_id == key]
        return [message for message in found if key in message.keys.split(" ")]
