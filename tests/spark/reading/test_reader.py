"""The reader without a Spark session: partitions that travel, batches that Spark will take, errors that tell."""

import pickle
import sys

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StructType
from tests.spark.in_memory import batch_options, decoder
from tests.support.records import plain_record, plain_records
from tests.support.running_cluster import Running, cluster_fixture, full_topics, numbered

from rocketrio.spark.errors import DecodeError, OffsetOutOfRangeError
from rocketrio.spark.reading.decoding import BlockDecoder
from rocketrio.spark.reading.fetch import Block
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.reader import RocketMQBatchReader
from rocketrio.spark.reading.schema import ALL_COLUMNS, arrow_schema, table_schema

QUEUES, COUNT = 3, 400


_PART = QueueRange("orders", "broker-a", 3, 0, 100)


def _block(*pieces: tuple[str, int]) -> Block:
    block = Block()
    for name, count in pieces:
        part = QueueRange("orders", name, 3, 0, count)
        block.pieces.append((part, count, plain_records(count)))
    return block


@pytest.mark.parametrize(
    "columns", [",".join(ALL_COLUMNS), "body", "broker_name", "queue_offset,broker_name"]
)
def test_batches_have_exactly_the_schema_that_spark_checks(columns: str) -> None:
    options = batch_options(columns=columns)
    schema = arrow_schema(table_schema(options))
    batch = BlockDecoder(options, schema).decode(_block(("broker-a", 30)))
    assert batch.schema == schema
    assert batch.num_rows == 30
    batch.validate(full=True)


def test_rows_of_several_brokers_keep_their_names() -> None:
    batch = decoder(columns="queue_offset,broker_name").decode(_block(("a", 2), ("b", 1), ("a", 3)))
    assert batch.column(0).to_pylist() == [0, 1, 0, 0, 1, 2]
    assert batch.column(1).to_pylist() == ["a", "a", "b", "a", "a", "a"]


def test_broker_names_follow_the_records_where_offsets_have_gaps() -> None:
    block = _block(("a", 2), ("b", 1))
    block.pieces = [(part, rows + 5, body) for part, rows, body in block.pieces]
    assert decoder(columns="broker_name").decode(block).column(0).to_pylist() == ["a", "a", "b"]


def test_records_that_cannot_be_read_are_an_error_naming_the_broker() -> None:
    block = Block([(_PART, 1, b"x" * 200)])
    with pytest.raises(
        DecodeError, match=r"\[ROCKETMQ_DECODE\] messages of orders@broker-a:3 cannot be decoded"
    ):
        decoder().decode(block)


def test_checksums_are_compared_when_asked() -> None:
    block = Block([(_PART, 1, plain_record(body_crc=1))])
    assert decoder().decode(block).num_rows == 1
    with pytest.raises(DecodeError, match="does not match its checksum"):
        decoder(verifyCrc="true").decode(block)


def test_a_codec_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    record = plain_record(sys_flag=0x101, body=b"LZ4 frame")
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(
        DecodeError, match=r"LZ4, whose package is not installed.*pip install .*\[codecs\]"
    ):
        decoder().decode(Block([(_PART, 1, record)]))
    assert decoder(decompress="false").decode(Block([(_PART, 1, record)])).num_rows == 1


@pytest.mark.parametrize("partition", [None, InputPartition(None)])
def test_the_partition_spark_makes_of_none_is_empty(partition: InputPartition | None) -> None:
    options = batch_options()
    assert list(RocketMQBatchReader(options, table_schema(options)).read(partition)) == []


cluster = cluster_fixture(full_topics(orders=(QUEUES, COUNT)))


def _reader(cluster: Running, **given: str) -> RocketMQBatchReader:
    options = batch_options(nameServer=cluster.name_server, **given)
    return RocketMQBatchReader(options, table_schema(options))


@pytest.mark.real
def test_reader_and_partitions_travel_to_another_process_and_read_there(cluster: Running) -> None:
    reader = _reader(cluster, minPartitions="5", columns="queue_id,queue_offset,body,tags")
    partitions = reader.partitions()
    assert len(partitions) == 5
    found: dict[int, list[tuple[int, bytes, str]]] = {}
    for partition in partitions:
        travelled = pickle.loads(pickle.dumps((reader, partition)))
        for batch in travelled[0].read(travelled[1]):
            for row in batch.to_pylist():
                queue = found.setdefault(row["queue_id"], [])
                queue.append((row["queue_offset"], row["body"], row["tags"]))
    assert found == {
        queue_id: [(n, m.body, m.tags) for n, m in enumerate(numbered(queue_id, COUNT))]
        for queue_id in range(QUEUES)
    }


@pytest.mark.real
def test_small_queues_share_a_partition_and_a_batch(cluster: Running) -> None:
    (partition,) = _reader(cluster).partitions()
    (batch,) = _reader(cluster).read(partition)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows == QUEUES * COUNT


@pytest.mark.real
def test_a_loss_fails_the_planning_unless_it_is_tolerated(cluster: Running) -> None:
    ends = f'{{"orders":{{"broker-a":{{"0":{COUNT + 7},"1":-1,"2":10}}}}}}'
    with pytest.raises(OffsetOutOfRangeError, match=f"offsets {COUNT} to {COUNT + 7}"):
        _reader(cluster, endingOffsets=ends).partitions()
    tolerant = _reader(cluster, endingOffsets=ends, failOnDataLoss="false")
    batches = [batch for part in tolerant.partitions() for batch in tolerant.read(part)]
    assert sum(batch.num_rows for batch in batches) == 2 * COUNT + 10


@pytest.mark.real
def test_a_users_schema_keeps_its_names(cluster: Running) -> None:
    options = batch_options(nameServer=cluster.name_server)
    reader = RocketMQBatchReader(options, StructType().add("BODY", BinaryType()))
    (partition,) = reader.partitions()
    assert {tuple(batch.schema.names) for batch in reader.read(partition)} == {("BODY",)}
