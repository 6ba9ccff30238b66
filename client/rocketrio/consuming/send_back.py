"""Hands a message whose handler failed back to its group: it is redelivered later, or goes to the dead-letter topic.

The broker that holds the message stores it again (36). If that broker cannot be reached or refuses, the message is sent
to the group's retry topic on any master, as Java's consumer does.

Invariant: a message counts as handed back only when a master has confirmed that it is stored.
Answers to: DefaultMQPushConsumerImpl.sendMessageBack; RocketMQ reference, sections 2.8 and 9.6.
Unlike Java: all masters of the retry topic are tried, and the delay level applies there too.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Final, Literal, TypeAlias

import attrs

from rocketrio.client import ClientInstance
from rocketrio.cluster.heartbeat import BROADCASTING, ConsumerMembership
from rocketrio.hooks import Reader
from rocketrio.limits import DEFAULT_TOPIC_QUEUE_NUMS
from rocketrio.producing.delays import level_for
from rocketrio.producing.send_result import read_send_result
from rocketrio_protocol.commands.consumer import (
    BROKER_DECIDES_LEVEL,
    DEAD_LETTER_LEVEL,
    FIRST_RETRY_LEVEL,
    ConsumerSendMsgBackRequestHeader,
)
from rocketrio_protocol.commands.send import AUTO_CREATE_TOPIC_KEY, SendMessageRequestHeaderV2
from rocketrio_protocol.errors import (
    AccessRefusedError,
    ConfigError,
    Error,
    NotReachableError,
    RouteNotFoundError,
)
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.names import CLIENT_INNER_PRODUCER, retry_topic
from rocketrio_protocol.record.layout import COMPRESSION_TYPE_MASK, SysFlag
from rocketrio_protocol.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    encode_properties,
)

SEND_BACK_TIMEOUT: Final = 5.0
"""Seconds for one attempt; a broker may wait that long for its slaves (consumerSendMessageBack)."""
MAX_RECONSUME_TIMES: Final = 16
"""Redeliveries before the dead-letter topic (maxReconsumeTimes)."""
_SHORTEST: Final = timedelta.resolution

_KEPT_FLAGS: Final = int(SysFlag.COMPRESSED) | COMPRESSION_TYPE_MASK

logger = logging.getLogger("rocketrio.consumer")


class GiveUp(Enum):
    """The type of `GIVE_UP`."""

    GIVE_UP = "give up"


GIVE_UP: Final = GiveUp.GIVE_UP
"""Used in place of a delay: the message goes to the dead-letter topic and is not redelivered."""

HandBack: TypeAlias = Callable[[MessageExt, int], Awaitable[None]]
"""Returns when the group has the message again; the number is the delay level."""

RetryDelay: TypeAlias = timedelta | Literal[GiveUp.GIVE_UP] | None
"""When a message is redelivered; None waits longer each time."""


@attrs.define(eq=False)
class SendBack:
    """Hands back the messages of one group member."""

    client: ClientInstance
    member: ConsumerMembership
    max_reconsume_times: int = MAX_RECONSUME_TIMES

    async def send_back(self, message: MessageExt, delay_level: int) -> None:
        """Return when the message is stored again. Raises Error if no broker stored it; a cancel leaves that open."""
        hooks = self.client.hooks
        if hooks is None:
            await self._send_back(message, delay_level)
            return
        reader = Reader(self.client, self.member.group)
        with hooks.settling(reader, message, is_dead=self._is_dead(message, delay_level)):
            await self._send_back(message, delay_level)

    async def _send_back(self, message: MessageExt, delay_level: int) -> None:
        try:
            await self._to_its_broker(message, delay_level)
        except AccessRefusedError:
            raise
        except Error as error:
            logger.info(
                "not handed back to its broker message_id=%s error=%s", message.message_id, error
            )
            # Also after a lost answer: it may then come twice, which is better than not at all.
            await self._to_any_broker(message, delay_level)
        if retry_topic(self.member.group) not in self.client.routing.topic_route_table:
            self.member.rebalance_now.wake()  # The topic exists by now.

    async def _to_its_broker(self, message: MessageExt, delay_level: int) -> None:
        addr = self.client.routing.find_broker_address_in_publish(message.broker_name)
        if addr is None:
            raise NotReachableError(
                f"no master of {message.broker_name} is known", topic=message.topic
            )
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self.member.group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=self.max_reconsume_times,
            broker_name=message.broker_name,
        )
        await self.client.api.call(
            addr,
            header,
            what="message not handed back",
            topic=message.topic,
            timeout=SEND_BACK_TIMEOUT,
        )

    async def _to_any_broker(self, message: MessageExt, delay_level: int) -> None:
        topic = retry_topic(self.member.group)
        route = await self.client.topic_route(topic)
        failure: Error | None = None
        names = {broker.broker_name for broker in route.broker_datas}
        # The message's own broker comes last: it has just failed.
        for name in sorted(names, key=lambda name: (name == message.broker_name, name)):
            addr = self.client.routing.find_broker_address_in_publish(name)
            if addr is None:
                continue
            header = self._header(message, delay_level)
            try:
                answer = await self.client.api.pool.call(
                    addr, header, message.stored_body, timeout=SEND_BACK_TIMEOUT
                )
                # Raises unless the broker has stored it: a message that counts as handed
                # back is committed here, and lost if it was not.
                read_send_result(answer, MessageQueue(topic, name, header.queue_id), (), addr=addr)
            except Error as error:
                failure = error
            else:
                return
        raise failure or RouteNotFoundError("no master serves it", topic=topic)

    def _is_dead(self, message: MessageExt, delay_level: int) -> bool:
        """Return whether the message becomes a dead letter."""
        return (
            delay_level <= DEAD_LETTER_LEVEL or message.reconsume_times >= self.max_reconsume_times
        )

    def _header(self, message: MessageExt, delay_level: int) -> SendMessageRequestHeaderV2:
        times = message.reconsume_times
        properties = message.properties
        properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.message_id)
        properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
        is_dead = self._is_dead(message, delay_level)
        if is_dead:
            properties.pop(PROPERTY_DELAY_TIME_LEVEL, None)
        else:
            properties[PROPERTY_DELAY_TIME_LEVEL] = str(delay_level or FIRST_RETRY_LEVEL + times)
        return SendMessageRequestHeaderV2(
            CLIENT_INNER_PRODUCER,
            retry_topic(self.member.group),
            AUTO_CREATE_TOPIC_KEY,
            DEFAULT_TOPIC_QUEUE_NUMS,
            0,
            message.sys_flag & _KEPT_FLAGS,
            self.client.wall_clock.now_ms(),
            message.flag,
            encode_properties(properties),
            reconsume_times=times + 1,
            # More redeliveries than allowed make it a dead letter.
            max_reconsume_times=0 if is_dead else self.max_reconsume_times,
        )


@attrs.define(eq=False)
class Delivery:
    """The redelivery rules of one consumer."""

    send_back: SendBack | None
    """None if no group takes messages back."""
    hand_back: HandBack | None
    """What `run` does with a message whose handler failed; None if the failure ends the run."""
    max_reconsume_times: int | None
    delay_levels: tuple[timedelta, ...]

    @classmethod
    def of(
        cls,
        client: ClientInstance,
        member: ConsumerMembership | None,
        times: int | None,
        delay_levels: tuple[timedelta, ...],
    ) -> "Delivery":
        """Return the rules for a member of a group, a broadcasting member, or a consumer of named queues."""
        if member is None:
            return cls(None, None, times, delay_levels)
        if member.message_model == BROADCASTING:
            return cls(None, _drop, times, delay_levels)
        send_back = SendBack(client, member, MAX_RECONSUME_TIMES if times is None else times)
        return cls(send_back, send_back.send_back, times, delay_levels)


async def _drop(message: MessageExt, delay_level: int) -> None:
    # As in Java: no group takes it back, because it failed at this member only.
    logger.warning("dropped, as its consumer broadcasts message_id=%s", message.message_id)


def check_delay(delay: RetryDelay) -> None:
    """Raise ConfigError for a delay of the wrong type or a negative one."""
    if delay is None or delay is GIVE_UP:
        return
    if not isinstance(delay, timedelta) or delay < timedelta(0):
        raise ConfigError(
            f"delay={delay!r} must be a timedelta that is not negative, None for a longer wait each time,"
            " or GIVE_UP for the dead-letter topic"
        )


def retry_level(delay: RetryDelay, levels: Sequence[timedelta]) -> int:
    """Return the brokers' level for a delay: the shortest level that is at least as long.

    Raises LocalProtocolError for a delay beyond the longest level.
    """
    if delay is None:
        return BROKER_DECIDES_LEVEL
    if delay is GIVE_UP:
        return DEAD_LETTER_LEVEL
    return level_for(max(delay, _SHORTEST), levels)  # Level 0 would wait longer each time.
