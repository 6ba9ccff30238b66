"""What the batch reader is compared with: a source that only yields, and one that makes rows one by one.

Both classes are made in functions, so that Spark ships their code: workers cannot import this file.
"""

from collections.abc import Callable, Iterator
from typing import Any


def generator_source() -> Any:
    """`generator`: the same columns from memory, nothing fetched or decoded: what Spark allows, the API's limit."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, options: dict[str, str], schema: Any) -> None:
            self.options, self.columns = options, schema

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(2)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            from datetime import UTC, datetime

            import pyarrow
            from pyspark.sql.pandas.types import to_arrow_schema

            rows, size, at_once = int(self.options["rows"]) // 2, int(self.options["size"]), 8192
            unique_key = "7F00000100002A139A5505D000000000"
            values = {
                "topic": "bench100", "broker_name": "broker-a", "queue_id": 1, "queue_offset": 123456,
                "keys": "order-00000001", "tags": "red", "body": b"x" * size,
                "born_time": datetime.now(UTC), "store_time": datetime.now(UTC),
                "properties": {"KEYS": "order-00000001", "UNIQ_KEY": unique_key, "TAGS": "red"},
            }  # fmt: skip
            schema = to_arrow_schema(self.columns, timezone="UTC")
            arrays = [pyarrow.array([values[field.name]] * at_once, field.type) for field in schema]
            batch = pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
            for done in range(0, rows, at_once):
                yield batch.slice(0, min(at_once, rows - done))

    class Generator(DataSource):
        @classmethod
        def name(cls) -> str:
            return "generator"

        def schema(self) -> str:
            raise AssertionError("a schema is given")

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader({name: self.options[name] for name in ("rows", "size")}, schema)

    return Generator


def row_source() -> Any:
    """`rows`: fetches as ours does, but makes an object of each message and a tuple of each object."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, options: dict[str, str], schema: Any) -> None:
            self.options, self.names = options, schema.names

        def _ours(self) -> Any:
            from rocketrio.spark.source import RocketMQDataSource

            source = RocketMQDataSource(self.options)
            return source.reader(source.schema())

        def partitions(self) -> list[InputPartition]:
            partitions: list[InputPartition] = self._ours().partitions()
            return partitions

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            from datetime import UTC, datetime

            from rocketrio.spark.reading.fetch import fetch_task
            from rocketrio.spark.reading.options import parse_read_options
            from rocketrio.spark.reading.plan import ReadTask
            from rocketrio.spark.runtime import process_runtime
            from rocketrio_protocol.message import decode_messages

            options, runtime = parse_read_options(self.options), process_runtime()
            task = ReadTask.from_value(partition.value)

            async def produce(handover: Any) -> None:
                client = await runtime.client(options.name_servers)
                await fetch_task(task, options, handover, client)

            def at(timestamp_ms: int) -> datetime:
                return datetime.fromtimestamp(timestamp_ms / 1000, UTC)

            getters: dict[str, Callable[[Any], object]] = {
                "topic": lambda m: m.topic, "broker_name": lambda m: "broker-a",
                "queue_id": lambda m: m.queue_id, "queue_offset": lambda m: m.queue_offset,
                "keys": lambda m: m.keys, "tags": lambda m: m.tags, "body": lambda m: bytes(m.body),
                "born_time": lambda m: at(m.born_time_ms),
                "store_time": lambda m: at(m.store_time_ms),
                "properties": lambda m: dict(m.properties),
            }  # fmt: skip
            wanted = [getters[name] for name in self.names]
            for block in runtime.blocks(produce):
                for _, _, body in block.pieces:
                    for message in decode_messages(body):
                        yield tuple(get(message) for get in wanted)

    class Rows(DataSource):
        @classmethod
        def name(cls) -> str:
            return "rows"

        def schema(self) -> str:
            raise AssertionError("a schema is given")

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader(dict(self.options), schema)

    return Rows
