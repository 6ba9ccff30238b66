"""The batch reader: plans partitions on the driver, yields Arrow record batches in tasks.

Records are decoded by columns on Spark's own thread while a trio loop fetches ahead (`runtime`, `fetch`).
Invariant: a reader and its partitions hold plain values only: they are pickled and sent to executors.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import trio
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketrio.spark.errors import DecodeError
from rocketrio.spark.fetch import Block, fetch_task
from rocketrio.spark.options import ReadOptions
from rocketrio.spark.plan import ReadTask
from rocketrio.spark.planning import plan_batch
from rocketrio.spark.runtime import Handover, process_runtime
from rocketrio.spark.schema import arrow_schema, check_schema, protocol_columns
from rocketrio_protocol.arrow_arrays import number_array, repeated, text_array
from rocketrio_protocol.columns import decode_columns
from rocketrio_protocol.errors import ConfigError, ProtocolError
from rocketrio_protocol.record_starts import record_starts


class RocketMQBatchReader(DataSourceReader):
    """Reads the ranges between two positions once."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster what there is, and cut it into tasks. Raises SparkSourceError."""
        tasks = trio.run(plan_batch, self._options)
        return [InputPartition(task.to_value()) for task in tasks]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Raises SparkSourceError."""
        # Spark turns an empty list of partitions into one without a value.
        if partition is None or partition.value is None:
            return
        task = ReadTask.from_value(partition.value)
        schema = arrow_schema(self._schema)
        decoder = BlockDecoder(self._options, schema)

        runtime = process_runtime()

        async def produce(handover: Handover[Block]) -> None:
            client = await runtime.client(self._options.name_servers)
            await fetch_task(task, self._options, handover, client)

        for block in runtime.blocks(produce):
            yield decoder.decode(block)


class BlockDecoder:
    """Turns fetched records into record batches of one schema."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._sources = protocol_columns(schema.names, options)
        self._wanted = tuple(dict.fromkeys(self._sources.values())) or ("queue_id",)

    def decode(self, block: Block) -> pa.RecordBatch:
        """One batch. Raises DecodeError naming the brokers the block came from."""
        pieces = block.pieces
        chunk = pieces[0][2] if len(pieces) == 1 else b"".join(body for _, _, body in pieces)
        options = self._options
        try:
            columns = decode_columns(
                chunk, self._wanted, inflate=options.inflate, check_crc=options.check_crc
            )
        except (ProtocolError, ConfigError) as error:  # damage, or a codec that is not installed
            names = ", ".join(sorted({name for name, _, _ in pieces}))
            raise DecodeError(f"messages of {names} cannot be decoded: {error}") from error
        row_count = len(columns[self._wanted[0]])
        arrays = []
        for field in self._schema:
            source = self._sources.get(field.name)
            array = _broker_names(block, row_count) if source is None else columns[source]
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _broker_names(block: Block, row_count: int) -> Any:
    """The column that no record knows of."""
    names = [name for name, _, _ in block.pieces]
    if len(set(names)) == 1:
        return repeated([names[0]], row_count)
    rows = [rows for _, rows, _ in block.pieces]
    if sum(rows) != row_count:  # offsets with gaps: count the records themselves
        rows = [len(record_starts(body)) for _, _, body in block.pieces]
    places = np.repeat(np.arange(len(names)), rows)
    return text_array(names, pa.string()).take(number_array(places))
