"""Columns encoded as a task of a write does, and what comes out of it taken apart again."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rocketrio.spark.writing.options import WriteOptions
from rocketrio.spark.writing.rows import RowEncoder, Rows
from rocketrio.spark.writing.schema import WriteColumns
from rocketrio_protocol.record.batch import decode_batch
from rocketrio_protocol.record.message_id import UniqueIdGenerator
from rocketrio_protocol.record.properties import decode_properties

MAP = pa.map_(pa.string(), pa.string())
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {"properties": MAP, "delay_level": pa.int32(), "flag": pa.int32(), "partition": pa.int32()}


def encoder(fields: Mapping[str, Any], **options: Any) -> RowEncoder:
    places = {name: place for place, name in enumerate(fields)}
    ids = UniqueIdGenerator(
        ip="10.1.2.3", process_id=7, wall_clock_ms=lambda: 1_700_000_000_000, instance_hash=9
    )
    stamp = options.pop("stamp", None)
    options.setdefault("topic", None if "topic" in fields else "orders")
    return RowEncoder(
        WriteColumns(**places), WriteOptions(("h:1",), **options), ids, task_id=3, stamp=stamp
    )


def record_batch(fields: Mapping[str, Any]) -> Any:
    arrays = []
    for name, values in fields.items():
        kind = TYPES.get(name, pa.binary() if name == "body" else pa.string())
        arrays.append(values if isinstance(values, pa.Array) else pa.array(values, kind))
    return pa.RecordBatch.from_arrays(arrays, names=list(fields))


def encoded(fields: Mapping[str, Any], **options: Any) -> Rows:
    (rows,) = encoder(fields, **options).encode(record_batch(fields))
    return rows


def messages(rows: Rows) -> list[tuple[int, bytes, dict[str, str]]]:
    """Flag, body and properties but the id of each row."""
    found = []
    for entry in rows.entries.to_pylist():
        ((flag, body, properties),) = decode_batch(entry)
        named = decode_properties(properties)
        assert len(named.pop("UNIQ_KEY")) == 32
        found.append((flag, body, named))
    return found
