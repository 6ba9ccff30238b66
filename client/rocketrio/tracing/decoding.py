r"""Decodes the records of a trace message: those of rocketrio's clients, and those of Java's of every version.

The forms are those of `encoding.py`. Older Java clients omit fields at the end: the offset id of a Pub, and of a
SubAfter the return code, or the time and the group, which clients of a cloud always omit. Clients of 5.3.2 and later
also write

    Recall 1 time 1 region 1 group 1 topic 1 id 1 success 2

Invariant: a record that cannot be decoded is left out and counted: the others of its message are worth reading.
Answers to: TraceDataEncoder.decoderFromTraceDataString.
"""

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from rocketrio.tracing.encoding import (
    FIELD_END,
    RECORD_END,
    UNKNOWN,
    ConsumeBegun,
    ConsumeEnded,
    ConsumeReturn,
    MessageKind,
    Published,
    Traced,
    TransactionEnded,
)


@attrs.frozen
class Recalled:
    """A delayed message was withdrawn before its time (5.3.2 and later)."""

    message: Traced
    time_ms: int
    group: str
    is_success: bool


@attrs.frozen
class Decoded:
    """The records of a trace message, and the number of those that could not be decoded."""

    records: "Sequence[DecodedRecord]"
    damaged: int


DecodedRecord = Published | ConsumeBegun | ConsumeEnded | TransactionEnded | Recalled


def decode_trace(text: str) -> Decoded:
    """Return the records of the body of a trace message."""
    records: list[DecodedRecord] = []
    damaged = 0
    for line in text.split(RECORD_END):
        if not line:
            continue
        kind, *fields = line.split(FIELD_END)
        try:
            records.append(_DECODERS[kind](fields))
        except (KeyError, IndexError, ValueError):
            damaged += 1
    return Decoded(records, damaged)


def _published(fields: Sequence[str]) -> Published:
    # Eleven fields are there always, the success is the last or follows the offset id.
    has_offset_id = len(fields) > 12
    return Published(
        Traced(fields[3], fields[4], _known(fields[5]), _known(fields[6]) or ""),
        int(fields[0]),
        fields[1],
        fields[2],
        fields[7],
        int(fields[8]),
        int(fields[9]),
        MessageKind(int(fields[10])),
        fields[11] if has_offset_id else UNKNOWN,
        _is_true(fields[12 if has_offset_id else 11]),
    )


def _consume_begun(fields: Sequence[str]) -> ConsumeBegun:
    keys = _known(fields[6]) if len(fields) > 6 else None
    message = Traced("", fields[4], keys=keys or "")
    return ConsumeBegun(message, int(fields[0]), fields[1], fields[2], fields[3], int(fields[5]))


def _consume_ended(fields: Sequence[str]) -> ConsumeEnded:
    is_success = _is_true(fields[3])
    # Java 5 also has codes for its orderly consumers that older ones lack.
    code = fields[5] if len(fields) > 5 else ""
    known = {str(int(each)) for each in ConsumeReturn}
    result = ConsumeReturn.SUCCESS if is_success else ConsumeReturn.FAILED
    if not is_success and code in known and code != str(int(ConsumeReturn.SUCCESS)):
        result = ConsumeReturn(int(code))
    has_time = len(fields) > 7
    return ConsumeEnded(
        Traced("", fields[1], keys=(_known(fields[4]) or "") if len(fields) > 4 else ""),
        int(fields[6]) if has_time else 0,
        fields[7] if has_time else "",
        fields[0],
        int(fields[2]),
        result,
    )


def _transaction_ended(fields: Sequence[str]) -> TransactionEnded:
    return TransactionEnded(
        Traced(fields[3], fields[4], _known(fields[5]), _known(fields[6]) or ""),
        int(fields[0]),
        fields[1],
        fields[2],
        fields[7],
        fields[9],
        fields[10],
        _is_true(fields[11]),
    )


def _recalled(fields: Sequence[str]) -> Recalled:
    return Recalled(Traced(fields[3], fields[4]), int(fields[0]), fields[2], _is_true(fields[5]))


def _known(field: str) -> str | None:
    return None if field in (UNKNOWN, "") else field


def _is_true(field: str) -> bool:
    return field == "true"


_DECODERS: Final[dict[str, Callable[[Sequence[str]], DecodedRecord]]] = {
    "Pub": _published,
    "SubBefore": _consume_begun,
    "SubAfter": _consume_ended,
    "EndTransaction": _transaction_ended,
    "Recall": _recalled,
}
