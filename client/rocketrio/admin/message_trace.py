"""What happened to one message, step by step: `admin.message_trace()`.

Producers and consumers that trace (`open_client(trace=True)`, Java's `enableMsgTrace`) write what they did to a topic.
A message that was sent back is stored again in its group's retry topic, and in the end among the dead letters: these
steps come from the brokers, also for clients that do not trace.

    sent        stored by a broker, or not: `result` says which     retried     stored again for its group
    committed   its transaction was; or `rolled back`                dead        stored among the group's dead letters
    delivered   passed to a member's handler                        recalled    withdrawn before its time
    handled     the handler ended well; or `failed`

`trace_steps` is a function of what was found.

Invariant: a time that no record has is None; such a step follows the one that belongs to it.
Answers to: QueryMsgTraceByIdSubCommand (`mqadmin queryMsgTraceById`), TraceView.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import attrs

from rocketrio.counts import counted
from rocketrio.tracing.decoding import DecodedRecord, Recalled
from rocketrio.tracing.encoding import (
    UNKNOWN,
    ConsumeBegun,
    ConsumeEnded,
    ConsumeReturn,
    Published,
    TransactionEnded,
)
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.times import time_of

_DECISIONS = {"COMMIT_MESSAGE": "committed", "ROLLBACK_MESSAGE": "rolled back"}


@attrs.frozen
class TraceStep:
    """One thing that happened to a message."""

    time: datetime | None
    what: str
    """`sent`, `committed`, `rolled back`, `undecided`, `delivered`, `handled`, `failed`, `retried`, `dead`,
    `recalled`."""
    group: str | None
    """The producer's or the consumer's group."""
    client_host: str | None
    """The address of the client that reported it; None for steps that brokers know."""
    where: str | None
    """The broker that stored it, as its address, or as broker, queue and offset."""
    milliseconds: int | None
    """How long it took, if that was measured."""
    result: str


@attrs.frozen
class Reported:
    """A record of a trace, and the address of the client that sent it."""

    record: DecodedRecord
    client_host: str


@attrs.frozen
class GroupCopy:
    """A message as it was stored again for a group: in its retry topic, or among its dead letters."""

    group: str
    is_dead: bool
    message: MessageExt


@attrs.frozen
class MessageTrace:
    """What is known of a message."""

    message_id: str
    topic: str | None
    """The topic that it was sent to; None if no record says that."""
    trace_topic: str | None
    """Where the records come from; None if there is no such topic."""
    steps: Sequence[TraceStep]
    """In the order of time."""
    damaged: int
    """The number of trace records that could not be decoded."""
    is_cut: bool
    """Whether there may be more records: brokers return 64 trace messages at most."""
    problems: Sequence[str]
    """What could not be looked up, and why: there may be retries and dead letters there."""


def trace_steps(
    message_id: str, reported: Iterable[Reported], copies: Iterable[GroupCopy] = ()
) -> list[TraceStep]:
    """Return the steps of a message from trace records (others' are omitted) and its copies for groups, in order."""
    steps: list[TraceStep] = []
    begun: dict[tuple[str, str], ConsumeBegun] = {}
    mine = [one for one in reported if message_id in one.record.message.message_id.split(",")]
    for one in mine:
        if isinstance(one.record, ConsumeBegun):
            begun[one.record.request_id, one.record.message.message_id] = one.record
    for one in mine:
        if isinstance(one.record, ConsumeEnded):
            key = one.record.request_id, one.record.message.message_id
            steps.append(_ended(one.record, begun.get(key), one.client_host))
        else:
            steps.append(_step(one.record, one.client_host))
    steps += [_copied(copy) for copy in copies]
    # Records of one millisecond keep the order of a message's life.
    steps.sort(key=lambda step: (_sort_time(step), _ORDER.index(step.what)))
    return list(dict.fromkeys(steps))


_ORDER = [
    *("sent", "recalled", "undecided", "committed", "rolled back"),
    *("retried", "delivered", "failed", "handled", "dead"),
]


def _sort_time(step: TraceStep) -> float:
    return float("inf") if step.time is None else step.time.timestamp()


def _step(
    record: Published | ConsumeBegun | TransactionEnded | Recalled, client_host: str
) -> TraceStep:
    time = time_of(record.time_ms)
    match record:
        case Published():
            result = "ok" if record.is_success else "not stored as safe as asked for"
            if record.kind:
                result += f", {record.kind.name.lower().replace('_', ' ')}"
            return TraceStep(
                time, "sent", record.group, client_host, record.broker_addr, record.cost_ms, result
            )
        case ConsumeBegun():
            again = record.reconsume_times
            result = "first time" if not again else f"redelivery {again}"
            return TraceStep(time, "delivered", record.group, client_host, None, None, result)
        case TransactionEnded():
            what = _DECISIONS.get(record.state, "undecided")
            result = "at a broker's check" if record.is_from_check else "by the producer"
            where = record.broker_addr
            return TraceStep(time, what, record.group, client_host, where, None, result)
        case Recalled():
            result = "ok" if record.is_success else "failed"
            return TraceStep(time, "recalled", record.group, client_host, None, None, result)


def _ended(record: ConsumeEnded, begun: ConsumeBegun | None, client_host: str) -> TraceStep:
    # Clients of a cloud omit time and group: those of its beginning say them.
    time_ms = record.time_ms or (0 if begun is None else begun.time_ms + record.cost_ms)
    group = record.group or (None if begun is None else begun.group)
    is_success = record.result is ConsumeReturn.SUCCESS
    return TraceStep(
        time_of(time_ms),
        "handled" if is_success else "failed",
        group,
        client_host,
        None,
        record.cost_ms,
        record.result.name.lower().replace("_", " "),
    )


def _copied(copy: GroupCopy) -> TraceStep:
    message = copy.message
    return TraceStep(
        time_of(message.store_time_ms),
        "dead" if copy.is_dead else "retried",
        copy.group,
        None,
        f"{message.broker_name}/{message.queue_id} {message.queue_offset}",
        None,
        f"sent back {counted(message.reconsume_times, 'time')}",
    )


def topic_of(message_id: str, reported: Iterable[Reported]) -> str | None:
    """Return the topic that a message was sent to, as its producer reported it; None if no record says it."""
    for one in reported:
        message = one.record.message
        if message_id in message.message_id.split(",") and message.topic not in ("", UNKNOWN):
            return message.topic
    return None
