"""The batch reader: it plans partitions on the driver and yields Arrow record batches in tasks.

Records are decoded by columns on Spark's own thread while a trio loop fetches ahead (`runtime`, `fetch`).
Invariant: a reader and its partitions hold plain values only: they are pickled and sent to executors.
"""

from collections.abc import Iterator

import pyarrow as pa
import trio
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketrio.spark.reading.decoding import BlockDecoder
from rocketrio.spark.reading.fetch import Block, fetch_task
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.plan import EVERYTHING, Narrowing, ReadTask
from rocketrio.spark.reading.planning import plan_batch
from rocketrio.spark.reading.schema import arrow_schema, check_schema
from rocketrio.spark.runtime import Handover, process_runtime


class RocketMQBatchReader(DataSourceReader):
    """Reads the ranges between two positions once."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster for the ranges and divide them into tasks. Raises SparkSourceError."""
        return self._planned(self._options, EVERYTHING)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition. Raises SparkSourceError."""
        return self._rows(partition, self._options)

    def _planned(self, options: ReadOptions, narrowing: Narrowing) -> list[InputPartition]:
        tasks = trio.run(plan_batch, options, narrowing)
        return [InputPartition(task.to_value()) for task in tasks]

    def _rows(
        self, partition: InputPartition | None, options: ReadOptions
    ) -> Iterator[pa.RecordBatch]:
        # Spark replaces an empty list of partitions by one partition without a value.
        if partition is None or partition.value is None:
            return
        task = ReadTask.from_value(partition.value)
        schema = arrow_schema(self._schema)
        decoder = BlockDecoder(options, schema, task.first_partitions)
        runtime = process_runtime()

        async def produce(handover: Handover[Block]) -> None:
            client = await runtime.client(options.name_servers, options.access)
            await fetch_task(task, options, handover, client)

        for block in runtime.blocks(produce):
            for batch in decoder.batches(block):
                if batch.num_rows:
                    yield batch
