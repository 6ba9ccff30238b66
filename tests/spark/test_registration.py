"""How the format is found, and what a worker without the package says."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.types import BinaryType, StructType

from pyspark_rocketmq import DefaultSource
from rocketrio.spark.errors import OptionError
from rocketrio.spark.reader import RocketMQBatchReader
from rocketrio.spark.registration import check_worker_python
from rocketrio.spark.source import RocketMQDataSource
from rocketrio_protocol.errors import ConfigError

OPTIONS = {"nameserver": "h:1", "subscribe": "t", "columns": "body"}
SCHEMA = StructType().add("body", BinaryType())


def test_both_classes_have_the_name_and_the_schema() -> None:
    assert DefaultSource.name() == RocketMQDataSource.name() == "rocketmq"
    assert DefaultSource(OPTIONS).schema() == RocketMQDataSource(OPTIONS).schema() == SCHEMA
    assert isinstance(RocketMQDataSource(OPTIONS).reader(SCHEMA), RocketMQBatchReader)


def test_wrong_options_are_refused_while_planning() -> None:
    with pytest.raises(OptionError, match="unknown option 'bogus'"):
        DefaultSource({**OPTIONS, "bogus": "1"}).schema()
    with pytest.raises(OptionError, match="'value' is none"):
        DefaultSource({**OPTIONS}).reader(StructType().add("value", BinaryType()))


def test_streams_and_writers_are_refused_as_spark_expects() -> None:
    source = DefaultSource(OPTIONS)
    for attempt in (
        lambda: source.streamReader(SCHEMA),
        lambda: source.simpleStreamReader(SCHEMA),
        lambda: source.writer(SCHEMA, False),
        lambda: source.streamWriter(SCHEMA, False),
    ):
        with pytest.raises(PySparkNotImplementedError, match="rocketmq"):
            attempt()


_WORKER = """
import pickle, sys
for name in ("rocketrio", "pyspark_rocketmq", "rocketrio_protocol"):
    sys.modules[name] = None
source, reader = pickle.load(sys.stdin.buffer)
try:
    list(reader.read(None))
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_worker_without_the_package_says_what_to_do() -> None:
    source = DefaultSource(OPTIONS)
    shipped = cloudpickle.dumps((source, source.reader(SCHEMA)))  # type: ignore[no-untyped-call]
    done = subprocess.run(
        [sys.executable, "-c", _WORKER], input=shipped, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    said = done.stdout.decode()
    assert f"this Python worker runs {sys.executable}" in said
    assert "PYSPARK_PYTHON must name the interpreter that has rocketrio[spark]" in said


@pytest.mark.slow
def test_looking_the_format_up_imports_nothing_that_may_fail() -> None:
    script = "import sys, pyspark_rocketmq; print([m for m in sys.modules if m.split('.')[0] in sys.argv[1:]])"
    heavy = ["rocketrio", "rocketrio_protocol", "trio", "pandas"]
    done = subprocess.run([sys.executable, "-c", script, *heavy], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_this_interpreter_is_a_good_worker() -> None:
    check_worker_python(sys.executable)


def test_an_interpreter_without_the_package_is_refused(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(
        "#!/bin/sh\necho 'ModuleNotFoundError: No module named rocketrio' >&2\nexit 1\n"
    )
    python.chmod(0o755)
    with pytest.raises(ConfigError, match=r"cannot use rocketrio .*PYSPARK_PYTHON must name"):
        check_worker_python(str(python))
    with pytest.raises(ConfigError, match="which is not there"):
        check_worker_python(str(tmp_path / "nothing"))
