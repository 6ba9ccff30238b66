"""Decodes fetched records into record batches of one schema, compares tags, and handles damaged messages.

Invariant: a batch has exactly the schema that Spark expects.
Invariant: if everything decodes and no tags are wanted, each record is processed once only.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketrio.spark.errors import DecodeError
from rocketrio.spark.reading.fetch import Block
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.salvage import Problem, salvage
from rocketrio.spark.reading.schema import (
    BROKER_NAME,
    HEADERS,
    PARTITION,
    TIMESTAMP_TYPE,
    protocol_columns,
)
from rocketrio_protocol.columns.arrays import number_array, runs, text_array
from rocketrio_protocol.columns.decode import decode_columns
from rocketrio_protocol.columns.starts import record_starts
from rocketrio_protocol.errors import ConfigError, ProtocolError
from rocketrio_protocol.record.compression import InflateBudget, TooMuchToInflateError

LOG_APPEND_TIME: Final = 1
"""Kafka's code for a time that the broker set (TimestampType.LOG_APPEND_TIME)."""

logger = logging.getLogger("rocketrio.spark.decoding")


@attrs.frozen
class _Rows:
    """The decoded rows of a block."""

    columns: dict[str, Any]
    count: int
    counts: list[int] | None = None
    """The rows of each piece, if decoding has already counted them."""
    damaged: list[int] = attrs.Factory(list)
    """Rows that are kept although a part of them cannot be read."""


class BlockDecoder:
    """Decodes fetched records into record batches of one schema.

    `first_partitions` is needed for the column `partition`: topic to broker to the number of its queue 0.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: Any,
        first_partitions: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self._options = options
        self._schema = schema
        self._first_partitions = first_partitions or {}
        self._sources = protocol_columns(schema.names, options)
        wanted = list(self._sources.values())
        tags = options.subscription.tags
        self._tags = None if tags is None else text_array(sorted(tags), pa.string())
        if tags is not None:
            wanted.append("tags")
        self._wanted = tuple(dict.fromkeys(wanted)) or ("queue_id",)

    def batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield one batch, perhaps empty, or several if compressed bodies are too large for one. Raises as `decode`."""
        waiting = [block]
        while waiting:
            block = waiting.pop()
            try:
                batch = self.decode(block)
            except TooMuchToInflateError as error:
                first, others = block.split(error.fitting)
                waiting += [part for part in (others, first) if part.pieces]
            else:
                yield batch

    def decode(self, block: Block) -> pa.RecordBatch:
        """Return one batch, which may be empty. Raises DecodeError, which names a range, and TooMuchToInflateError."""
        rows = self._decoded(block)
        columns = rows.columns
        arrays = []
        for field in self._schema:
            source = self._sources.get(field.name)
            if source is None:
                array = self._from_ranges(field.name.lower(), block, rows)
            elif field.name.lower() == HEADERS:
                array = _headers(columns[source], field.type)
            else:
                array = columns[source]
            arrays.append(array if array.type == field.type else array.cast(field.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch if self._tags is None else self._with_tags(batch, rows)

    def _decoded(self, block: Block) -> _Rows:
        pieces = block.pieces
        chunk = pieces[0][2] if len(pieces) == 1 else b"".join(body for _, _, body in pieces)
        options = self._options
        try:
            columns = decode_columns(
                chunk, self._wanted, inflate=options.inflate, check_crc=options.check_crc
            )
        except ConfigError as error:  # a codec that is not installed
            raise _unreadable(pieces[0][0], str(error)) from error
        except TooMuchToInflateError:
            raise
        except ProtocolError:
            return self._salvaged(block)
        return _Rows(columns, len(columns[self._wanted[0]]))

    def _salvaged(self, block: Block) -> _Rows:
        """Decode a block that contains damage piece by piece, because each piece comes from one range."""
        policy = self._options.on_corrupt_message
        parts: list[dict[str, Any]] = []
        counts: list[int] = []
        damaged: list[int] = []
        budget = InflateBudget()
        for part, _, body in block.pieces:
            try:
                saved = salvage(
                    body,
                    self._wanted,
                    inflate=self._options.inflate,
                    check_crc=self._options.check_crc,
                    keeps_damaged=policy == "null",
                    budget=budget,
                )
            except (
                TooMuchToInflateError
            ) as error:  # It counts only whole messages: halve until it fits.
                raise TooMuchToInflateError(max(1, block.rows // 2), error.limit) from error
            except ConfigError as error:
                raise _unreadable(part, str(error)) from error
            if saved.problems:
                first = _damage(part, saved.problems[0])
                if policy == "fail":
                    raise first from saved.problems[0].error
                logger.warning(
                    "damaged messages range=%s count=%d policy=%s first=%s",
                    part, len(saved.problems), policy, first,
                )  # fmt: skip
                if policy == "null":
                    damaged += [sum(counts) + problem.row for problem in saved.problems]
            parts.append(saved.columns)
            counts.append(saved.row_count)
        columns = {name: pa.concat_arrays([part[name] for part in parts]) for name in self._wanted}
        return _Rows(columns, sum(counts), counts, damaged)

    def _with_tags(self, batch: pa.RecordBatch, rows: _Rows) -> pa.RecordBatch:
        """Return the rows that have one of the tags; brokers compare only hashes of tags."""
        passes = pc.is_in(rows.columns["tags"], value_set=self._tags)
        if passes.true_count == rows.count:
            return batch
        kept = np.unpackbits(
            np.frombuffer(passes.buffers()[1], np.uint8), count=rows.count, bitorder="little"
        )
        kept[rows.damaged] = 1  # Their tags may be what is damaged.
        return batch.take(number_array(np.flatnonzero(kept)))

    def _from_ranges(self, name: str, block: Block, rows: _Rows) -> Any:
        """Return a column that is known from the ranges and not from the records."""
        if name == TIMESTAMP_TYPE.lower():
            return number_array(np.full(rows.count, LOG_APPEND_TIME, np.int32))
        ranges = [part for part, _, _ in block.pieces]
        if name == PARTITION:
            numbers = np.array([self._partition(part) for part in ranges], np.int32)
            return number_array(np.repeat(numbers, _counts(block, rows)))
        assert name == BROKER_NAME.lower(), name
        return runs([part.broker_name for part in ranges], _counts(block, rows))

    def _partition(self, part: QueueRange) -> int:
        return self._first_partitions[part.topic][part.broker_name] + part.queue_id


def _counts(block: Block, rows: _Rows) -> list[int]:
    """Return how many rows each piece has."""
    if rows.counts is not None:
        return rows.counts
    counts = [count for _, count, _ in block.pieces]
    if sum(counts) != rows.count:  # Offsets with gaps: count the records themselves.
        counts = [len(record_starts(body)) for _, _, body in block.pieces]
    return counts


def _headers(maps: Any, kind: Any) -> Any:
    """Return all properties as Kafka's headers, in their stored order; they share buffers under other names."""
    values = maps.items.cast(pa.binary())
    entries = pa.StructArray.from_arrays([maps.keys, values], fields=list(kind.value_type))
    if maps.null_count:
        missing = np.array(maps.is_null().to_pylist())
        validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    else:
        validity = None
    offsets = maps.offsets.buffers()[1]
    return pa.Array.from_buffers(
        kind, len(maps), [validity, offsets], children=[entries], offset=maps.offset
    )


def _damage(part: QueueRange, problem: Problem) -> DecodeError:
    place = "a message" if problem.queue_offset is None else f"offset {problem.queue_offset}"
    return _unreadable(
        part, f"{place}: {problem.error}. onCorruptMessage=skip or null reads all others"
    )


def _unreadable(part: QueueRange, why: str) -> DecodeError:
    queue = f"{part.topic}@{part.broker_name}:{part.queue_id}"
    return DecodeError(f"messages of {queue} cannot be decoded: {why}")
