"""Messages of a topic, by ids and keys; what happened to one; its delivery to a member that an operator chose.

Invariant: a value that could not be read is None or an error, never zero.
Answers to: DefaultMQAdminExtImpl (queryMessage, viewMessage, messageTrackDetail, consumeMessageDirectly),
QueryMsgTraceByIdSubCommand, DecodeMessageIdCommond (`mqadmin DecodeMessageId`), MessageClientIDSetter.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

import attrs
import trio

from rocketrio.admin.admin_calls import MEMBER_TIMEOUT
from rocketrio.admin.browse import TopicMessages
from rocketrio.admin.cluster_questions import in_parallel
from rocketrio.admin.dead_letters import DeadLetters
from rocketrio.admin.message_status import GroupAnswers, GroupTrack, judged
from rocketrio.admin.message_trace import GroupCopy, MessageTrace, Reported, topic_of, trace_steps
from rocketrio.admin.topics import TopicAdmin
from rocketrio.arguments import epoch_ms
from rocketrio.cluster.api import NOT_FOUND, Offset
from rocketrio.routing import FindBrokerResult
from rocketrio.routing.queues import broker_names
from rocketrio.tracing.decoding import decode_trace
from rocketrio.tracing.encoding import ConsumeBegun, ConsumeEnded
from rocketrio_protocol.bodies.running_info import ConsumeMessageDirectlyResult
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.consumer import ConsumeMessageDirectlyRequestHeader
from rocketrio_protocol.commands.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketrio_protocol.errors import (
    ConsumerNotOnlineError,
    Error,
    LocalProtocolError,
    QueryNotFoundError,
    RemoteProtocolError,
    RouteNotFoundError,
)
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.names import TRACE_TOPIC, dead_letter_topic, retry_topic
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.remoting.ports import join_addr
from rocketrio_protocol.remoting.tasks import ungrouped

QUERY_MAX_MESSAGES: Final = 32  # defaultQueryMaxNum

_END_OF_TIME: Final = 2**63 - 1

TRACE_MAX_MESSAGES: Final = 64
"""The most trace messages that a broker returns for one key, whatever it is asked for (maxsMsgsNumBatch)."""

PARALLEL_GROUPS: Final = 16
"""The groups that are asked about at the same time."""

_TAIL = 24
"""Digits of a producer's id after its address: process, instance, time and counter."""


@attrs.frozen
class IdParts:
    """The two readings of an id."""

    message_id: str
    broker_address: str | None
    """As an offset id: the broker that stored it. None if no broker can have this port, as for the next."""
    physical_offset: int | None
    producer_host: str | None
    """As a producer's id: its address. None for an id of another form, as for the next."""
    process_id: int | None
    """The lower 16 bits."""
    created: datetime | None
    """When it was made: the month is not in the id, so the last month in which that time has passed is taken."""


class MessageAdmin(TopicAdmin):
    """The methods of `Admin` about messages."""

    __slots__ = ()

    def messages(
        self, topic: str, *, broker_name: str | None = None, queue_id: int | None = None
    ) -> TopicMessages:
        """Return the messages of a topic, or of some queues of it, see browse.py."""
        return TopicMessages(self.client, topic, broker_name, queue_id)

    def dead_letters(self, group: str) -> DeadLetters:
        """Return the dead letters of a consumer group, see dead_letters.py."""
        return DeadLetters(self.client, group)

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """Return the message whose place the offset id names. Raises LocalProtocolError, BrokerError.

        Its `broker_name` is empty if no broker is registered with the address in the id.
        """
        ip, port, physical_offset = parse_offset_message_id(offset_message_id)
        if not 0 < port < 65_536:
            raise LocalProtocolError(
                f"{offset_message_id!r} does not name a broker",
                remedy="Take `offset_message_id`; by its producer's id `query_message` finds a message",
            )
        addr = join_addr(ip, port)
        what = f"no message at physical offset {physical_offset}"
        messages = await self.calls.read(addr, ViewMessageRequestHeader(physical_offset), what)
        if len(messages) != 1:
            raise RemoteProtocolError(f"{what}: {len(messages)} came", broker_addr=addr)
        [found] = messages
        with suppress(Error):
            found.broker_name = await self._name_at(addr)
        return self.client.namespace.message(found)

    async def _name_at(self, addr: str) -> str:
        for name, broker in (await self.cluster_info()).broker_addr_table.items():
            if addr in broker.broker_addrs.values():
                return name
        return ""

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
        RouteNotFoundError, NotReachableError if a broker cannot be asked, and ConfigError for a time without a zone.
        """
        begin_ms = 0 if begin_time is None else epoch_ms("begin_time", begin_time)
        end_ms = None if end_time is None else epoch_ms("end_time", end_time)
        route = await self.client.topic_route(topic)

        # `_UNIQUE_KEY_QUERY` is never sent: it only means "at most 32", and servers disagree whether it is signed.
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=max(max_messages, QUERY_MAX_MESSAGES) if is_unique_id else max_messages,
            begin_timestamp=begin_ms,
            end_timestamp=_END_OF_TIME if end_ms is None else end_ms,
        )

        async def ask_broker(name: str) -> list[MessageExt]:
            async def ask(at: FindBrokerResult) -> list[MessageExt]:
                messages = await self.calls.read(at.addr, header, f"no message with key {key!r}")
                for message in messages:
                    message.broker_name = name
                return messages

            try:
                return await self.client.ask_broker(MessageQueue(topic, name, 0), ask)
            except QueryNotFoundError:
                return []

        answers = await in_parallel(broker_names(route), ask_broker)
        found = [message for answer in answers for message in answer]
        found.sort(key=lambda message: (message.store_time_ms, message.physical_offset))
        found = [self.client.namespace.message(message) for message in found]
        # A broker finds keys by their hash, so other keys may be among the answers.
        if is_unique_id:
            return [message for message in found if message.message_id == key]
        return [message for message in found if key in message.keys.split(" ")]

    async def message_trace(
        self,
        message_id: str,
        *,
        topic: str | None = None,
        trace_topic: str = TRACE_TOPIC,
        begin_time: datetime | None = None,
        end_time: datetime | None = None,
    ) -> MessageTrace:
        """Return what happened to a message, by the id of its producer; see message_trace.py.

        Times limit which trace messages are read. Retries and dead letters are looked up for the groups in the trace,
        and for those of the topic: of `topic`, or of the one that the trace names. Without a trace topic there are
        only these. Raises NotReachableError if a broker of the trace topic cannot be asked.
        """
        reported: list[Reported] = []
        damaged, has_topic, is_cut = 0, True, False
        try:
            found = await self.query_message(
                trace_topic,
                message_id,
                max_messages=TRACE_MAX_MESSAGES,
                begin_time=begin_time,
                end_time=end_time,
            )
        except RouteNotFoundError:
            found, has_topic = [], False
        for message in found:
            if message.body_error is not None:
                damaged += 1
                continue
            decoded = decode_trace(message.body.decode("utf-8", "replace"))
            damaged += decoded.damaged
            host = join_addr(*message.born_host)
            reported += [Reported(record, host) for record in decoded.records]
        is_cut = len(found) >= TRACE_MAX_MESSAGES
        topic = topic or topic_of(message_id, reported)
        groups = {
            one.record.group
            for one in reported
            if isinstance(one.record, ConsumeBegun | ConsumeEnded) and one.record.group
        }
        failed: list[str] = []
        if topic is not None:
            try:
                groups |= set(await self.readers_of(topic))
            except Error as error:
                failed.append(f"groups of {topic}: {error.what}")
        copies = await self._copies(message_id, groups, failed)
        steps = trace_steps(message_id, reported, copies)
        return MessageTrace(
            message_id, topic, trace_topic if has_topic else None, steps, damaged, is_cut, failed
        )

    async def _copies(
        self, message_id: str, groups: Iterable[str], failed: list[str]
    ) -> list[GroupCopy]:
        copies: list[GroupCopy] = []
        limit = trio.Semaphore(PARALLEL_GROUPS)

        async def ask(group: str, topic: str, is_dead: bool) -> None:
            async with limit:
                try:
                    found = await self.query_message(topic, message_id, is_unique_id=True)
                except RouteNotFoundError:
                    return
                except Error as error:
                    failed.append(f"{topic}: {error.what}")
                    return
            copies.extend(GroupCopy(group, is_dead, message) for message in found)

        with ungrouped():
            async with trio.open_nursery() as nursery:
                for group in groups:
                    nursery.start_soon(ask, group, retry_topic(group), False)
                    nursery.start_soon(ask, group, dead_letter_topic(group), True)
        return copies

    async def message_status(
        self, message: MessageExt, *, group: str | None = None
    ) -> list[GroupTrack]:
        """Return what each group that reads the message's topic has done with it, or only `group`.

        The statuses are those of Apache's tools, see message_status.py. Brokers of 5.3 do not report groups that have
        members but have never committed. Raises RouteNotFoundError, NotReachableError if no broker lists the groups,
        and GroupNotExistError for a `group` that no broker knows.
        """
        if group is not None:
            await self.group(group)
            names = [group]
        else:
            names = await self.readers_of(message.topic)
        tracks: list[GroupTrack] = []
        limit = trio.Semaphore(PARALLEL_GROUPS)

        async def ask(name: str) -> None:
            async with limit:
                tracks.append(judged(name, message, await self._group_answers(name, message)))

        with ungrouped():
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(ask, name)
        return sorted(tracks, key=lambda one: one.group)

    async def _group_answers(self, group: str, message: MessageExt) -> GroupAnswers:
        if not message.broker_name:
            host = join_addr(*message.store_host)
            return GroupAnswers(None, None, f"no broker is registered at {host}, which stored it")
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)

        async def ask(broker: FindBrokerResult) -> Offset:
            return await self.client.api.query_consumer_offset(
                broker.addr, group, queue, zero_if_young=False
            )

        try:
            try:
                members = await self.consumer_connections(group)
            except ConsumerNotOnlineError:
                members = None
            await self.client.topic_route(queue.topic)
            offset = await self.client.ask_broker(queue, ask, insist_on_master=True)
        except Error as error:
            return GroupAnswers(None, None, error.what)
        return GroupAnswers(members, None if offset is NOT_FOUND else offset)

    async def deliver(
        self, message: MessageExt, group: str, client_id: str
    ) -> ConsumeMessageDirectlyResult:
        """Have a member of a group handle a message now, whatever it has committed; no offset moves.

        The result says how its handler ended. Raises ConsumerNotOnlineError if the message's broker knows no such
        member, BrokerError if the member cannot (one that receives in a loop has no handler) or takes longer than 10
        seconds, and NotReachableError. After a cancel the handler goes on.
        """
        addr = await self._master_of(message)
        found = await self.calls.consumer_connections(addr, group)
        if client_id not in {member.client_id for member in found.connection_set}:
            raise ConsumerNotOnlineError(
                f"the broker of the message knows no member {client_id} of {group}",
                broker_addr=addr,
                remedy=f"`rocketrio group members {group}` lists them",
            )
        header = ConsumeMessageDirectlyRequestHeader(
            group,
            client_id,
            message.offset_message_id,
            broker_name=message.broker_name,
            topic=message.topic,
        )
        what = f"{message.message_id} not delivered to {client_id}"
        return await self.calls.read(addr, header, what, timeout=MEMBER_TIMEOUT)

    async def _master_of(self, message: MessageExt) -> str:
        broker = (await self.cluster_info()).broker_addr_table.get(message.broker_name)
        if broker is None or MASTER_ID not in broker.broker_addrs:
            raise RouteNotFoundError(
                f"broker {message.broker_name or join_addr(*message.store_host)!r}, which has the message, "
                "has no master now",
                remedy="Check the name servers, or wait until it is back",
            )
        return broker.broker_addrs[MASTER_ID]


def id_parts(message_id: str, now: datetime) -> IdParts:
    """Return what is inside an id, without asking any broker. Raises LocalProtocolError for a text that is not an id.

    Both ids have 32 or 56 digits, so either reading may be the right one; a reading that cannot be is None.
    """
    ip, port, offset = parse_offset_message_id(message_id)
    is_place = 0 < port < 65_536 and offset >= 0
    head = message_id[:-_TAIL]
    host = str(ip_address(bytes.fromhex(head))) if len(head) in (8, 32) else None
    digits = message_id[-_TAIL:]
    millis = int(digits[12:20], 16)
    created = None if host is None else _time(millis, now)
    return IdParts(
        message_id,
        join_addr(ip, port) if is_place else None,
        offset if is_place else None,
        host if created is not None else None,
        int(digits[:4], 16) if created is not None else None,
        created,
    )


def _time(millis: int, now: datetime) -> datetime | None:
    """Return the time this long after the begin of this month, or of the last one if that is still to come."""
    month = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    # Java begins the month in its own time zone.
    for start in (month, (month - timedelta(days=1)).replace(day=1)):
        time = start + timedelta(milliseconds=millis)
        if time <= now + timedelta(days=1):
            return time
    return None
