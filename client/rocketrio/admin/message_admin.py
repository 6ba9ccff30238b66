"""What happened to one message, what groups have done with it, and its delivery to a member that an operator chose.

Invariant: a value that could not be read is None or an error, never zero.
Answers to: DefaultMQAdminExtImpl (messageTrackDetail, consumeMessageDirectly), QueryMsgTraceByIdSubCommand.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import trio

from rocketrio.admin.admin import Admin
from rocketrio.admin.admin_calls import MEMBER_TIMEOUT
from rocketrio.admin.message_status import GroupAnswers, GroupTrack, judged
from rocketrio.admin.message_trace import (
    GroupCopy,
    MessageTrace,
    Reported,
    topic_of,
    trace_steps,
)
from rocketrio.cluster.api import NOT_FOUND, Offset
from rocketrio.routing import FindBrokerResult
from rocketrio.tracing.decoding import decode_trace
from rocketrio.tracing.encoding import ConsumeBegun, ConsumeEnded
from rocketrio_protocol.bodies.running_info import ConsumeMessageDirectlyResult
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.consumer import ConsumeMessageDirectlyRequestHeader
from rocketrio_protocol.errors import (
    ConsumerNotOnlineError,
    Error,
    RouteNotFoundError,
)
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.names import TRACE_TOPIC, dead_letter_topic, retry_topic
from rocketrio_protocol.remoting.ports import join_addr
from rocketrio_protocol.remoting.tasks import ungrouped

TRACE_MAX_MESSAGES: Final = 64
"""The most trace messages that a broker returns for one key, whatever it is asked for (maxsMsgsNumBatch)."""
PARALLEL_GROUPS: Final = 16
"""The groups that are asked about at the same time."""


async def message_trace(
    admin: Admin,
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
        found = await admin.query_message(
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
            groups |= set(await admin.readers_of(topic))
        except Error as error:
            failed.append(f"groups of {topic}: {error.what}")
    copies = await _copies(admin, message_id, groups, failed)
    steps = trace_steps(message_id, reported, copies)
    return MessageTrace(
        message_id, topic, trace_topic if has_topic else None, steps, damaged, is_cut, failed
    )


async def _copies(
    admin: Admin, message_id: str, groups: Iterable[str], failed: list[str]
) -> list[GroupCopy]:
    copies: list[GroupCopy] = []
    limit = trio.Semaphore(PARALLEL_GROUPS)

    async def ask(group: str, topic: str, is_dead: bool) -> None:
        async with limit:
            try:
                found = await admin.query_message(topic, message_id, is_unique_id=True)
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
    admin: Admin, message: MessageExt, *, group: str | None = None
) -> list[GroupTrack]:
    """Return what each group that reads the message's topic has done with it, or only `group`.

    The statuses are those of Apache's tools, see message_status.py. Brokers of 5.3 do not report groups that have
    members but have never committed. Raises RouteNotFoundError, NotReachableError if no broker lists the groups,
    and GroupNotExistError for a `group` that no broker knows.
    """
    if group is not None:
        await admin.group(group)
        names = [group]
    else:
        names = await admin.readers_of(message.topic)
    tracks: list[GroupTrack] = []
    limit = trio.Semaphore(PARALLEL_GROUPS)

    async def ask(name: str) -> None:
        async with limit:
            tracks.append(judged(name, message, await _group_answers(admin, name, message)))

    with ungrouped():
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(ask, name)
    return sorted(tracks, key=lambda one: one.group)


async def _group_answers(admin: Admin, group: str, message: MessageExt) -> GroupAnswers:
    if not message.broker_name:
        host = join_addr(*message.store_host)
        return GroupAnswers(None, None, f"no broker is registered at {host}, which stored it")
    queue = MessageQueue(message.topic, message.broker_name, message.queue_id)

    async def ask(broker: FindBrokerResult) -> Offset:
        return await admin.client.api.query_consumer_offset(
            broker.addr, group, queue, zero_if_young=False
        )

    try:
        try:
            members = await admin.consumer_connections(group)
        except ConsumerNotOnlineError:
            members = None
        await admin.client.topic_route(queue.topic)
        offset = await admin.client.ask_broker(queue, ask, insist_on_master=True)
    except Error as error:
        return GroupAnswers(None, None, error.what)
    return GroupAnswers(members, None if offset is NOT_FOUND else offset)


async def deliver(
    admin: Admin, message: MessageExt, group: str, client_id: str
) -> ConsumeMessageDirectlyResult:
    """Have a member of a group handle a message now, whatever it has committed; no offset moves.

    The result says how its handler ended. Raises ConsumerNotOnlineError if the message's broker knows no such
    member, BrokerError if the member cannot (one that receives in a loop has no handler) or takes longer than 10
    seconds, and NotReachableError. After a cancel the handler goes on.
    """
    addr = await _master_of(admin, message)
    found = await admin.calls.consumer_connections(addr, group)
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
    return await admin.calls.read(addr, header, what, timeout=MEMBER_TIMEOUT)


async def _master_of(admin: Admin, message: MessageExt) -> str:
    broker = (await admin.cluster_info()).broker_addr_table.get(message.broker_name)
    if broker is None or MASTER_ID not in broker.broker_addrs:
        raise RouteNotFoundError(
            f"broker {message.broker_name or join_addr(*message.store_host)!r}, which has the message, "
            "has no master now",
            remedy="Check the name servers, or wait until it is back",
        )
    return broker.broker_addrs[MASTER_ID]
