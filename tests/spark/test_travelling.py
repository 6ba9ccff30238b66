"""What Spark sends to its workers: values alone, whatever the process that made them has open."""

import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructType

from rocketrio.client import ClientInstance
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.plan import ReadTask
from rocketrio.spark.runtime import process_runtime
from rocketrio.spark.source import RocketMQDataSource

NOBODY = "127.0.0.1:1"
OPTIONS = {"nameServer": NOBODY, "subscribe": "orders"}
LIVE = ("trio", "socket", "threading", "queue", "_thread", "asyncio", "select")
LIVE_OURS = (
    "rocketrio.client",
    "rocketrio.connect",
    "rocketrio.spark.runtime",
    "rocketrio_protocol.remoting",
)


def _modules_in(sent: bytes) -> set[str]:
    """Where the classes and functions of a pickle are from."""
    found: set[str] = set()

    class Recorder(pickle.Unpickler):
        def find_class(self, module_name: str, global_name: str, /) -> Any:
            found.add(module_name)
            return super().find_class(module_name, global_name)

    Recorder(io.BytesIO(sent)).load()
    return found


def _source() -> RocketMQDataSource:
    return RocketMQDataSource(OPTIONS)


def _write_source() -> RocketMQDataSource:
    return RocketMQDataSource({"nameServer": NOBODY, "topic": "orders"})


_BODY = StructType().add("body", BinaryType())
_STREAM = {**OPTIONS, "startingOffsets": "latest"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: _source().reader(_source().schema()),
        lambda: RocketMQDataSource(_STREAM).streamReader(_source().schema()),
        lambda: _write_source().writer(_BODY, False),
        lambda: _write_source().streamWriter(_BODY, False),
    ],
    ids=["reader", "stream reader", "writer", "stream writer"],
)
def test_readers_and_writers_hold_nothing_live(make: Callable[[], object]) -> None:
    runtime = process_runtime()

    async def client() -> ClientInstance:
        return await runtime.client((NOBODY,))

    runtime.call(client, timeout=20)  # this process has a loop and connections
    made = make()
    modules = _modules_in(cloudpickle.dumps(made))  # type: ignore[no-untyped-call]
    assert not {name for name in modules if name.partition(".")[0] in LIVE}
    assert not {name for name in modules if name.startswith(LIVE_OURS)}
    assert any(name.startswith("rocketrio.spark") for name in modules)


def test_a_partition_can_be_opened_without_the_package() -> None:
    task = ReadTask(
        (QueueRange("orders", "broker-a", 0, 5, 9),), {"broker-a": {0: "10.0.0.1:10911"}}, (1,)
    )
    assert _modules_in(pickle.dumps(task.to_value())) == set()
    assert ReadTask.from_value(pickle.loads(pickle.dumps(task.to_value()))) == task


@pytest.mark.parametrize(
    "value", [None, 3, {}, {"version": 1, "ranges": [], "addresses": {}}, {"version": 99}]
)
def test_a_partition_of_another_release_is_refused_with_what_to_do(value: object) -> None:
    with pytest.raises(ValueError, match=r"another release of rocketrio.*install the same one on"):
        ReadTask.from_value(value)
