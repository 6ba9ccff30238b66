"""How the format is found, and what a worker without the package says."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import BinaryType, StructType

from pyspark_rocketmq import DefaultSource
from rocketrio.spark import registration
from rocketrio.spark.errors import OptionError, SchemaError
from rocketrio.spark.reading.reader import RocketMQBatchReader
from rocketrio.spark.registration import check_worker_python
from rocketrio.spark.source import RocketMQDataSource
from rocketrio.spark.writing.writer import STREAM_WRITER
from rocketrio_protocol.errors import ConfigError

OPTIONS = {"nameserver": "h:1", "subscribe": "t", "columns": "body"}
SINK = {"nameserver": "h:1", "topic": "t"}
SCHEMA = StructType().add("body", BinaryType())


def test_both_classes_have_the_name_and_the_schema() -> None:
    assert DefaultSource.name() == RocketMQDataSource.name() == "rocketmq"
    assert DefaultSource(OPTIONS).schema() == RocketMQDataSource(OPTIONS).schema() == SCHEMA
    assert isinstance(RocketMQDataSource(OPTIONS).reader(SCHEMA), RocketMQBatchReader)


def test_wrong_options_are_refused_while_planning() -> None:
    with pytest.raises(OptionError, match="unknown option 'bogus'"):
        DefaultSource({**OPTIONS, "bogus": "1"}).schema()
    with pytest.raises(OptionError, match="'nothing' is not a column"):
        DefaultSource({**OPTIONS}).reader(StructType().add("nothing", BinaryType()))


def test_writers_refuse_on_the_driver_what_is_wrong() -> None:
    for source in (DefaultSource(SINK), RocketMQDataSource(SINK)):
        assert isinstance(source.writer(SCHEMA, False), DataSourceArrowWriter)
        assert isinstance(source.streamWriter(SCHEMA, False), STREAM_WRITER)
        for make in (source.writer, source.streamWriter):
            with pytest.raises(SchemaError, match="column 'x' is not a field"):
                make(StructType().add("x", BinaryType()), False)
        with pytest.raises(OptionError, match=r"mode overwrite: .*give .mode\('append'\)"):
            source.writer(SCHEMA, True)
        with pytest.raises(OptionError, match=r"outputMode complete: .*in foreachBatch"):
            source.streamWriter(SCHEMA, True)
    for wrong in (DefaultSource({**SINK, "bogus": "1"}), DefaultSource(OPTIONS)):
        with pytest.raises(OptionError, match="option"):
            wrong.writer(SCHEMA, False)


_WORKER = """
import pickle, sys
for name in ("rocketrio", "pyspark_rocketmq", "rocketrio_protocol"):
    sys.modules[name] = None
for shipped in pickle.load(sys.stdin.buffer):
    try:
        (shipped.write if hasattr(shipped, "write") else lambda rows: list(shipped.read(None)))([])
    except ImportError as error:
        print(error)
"""


@pytest.mark.slow
def test_worker_without_the_package_is_an_error_with_a_remedy() -> None:
    source = DefaultSource(OPTIONS)
    sink = DefaultSource(SINK)
    parts = source.reader(SCHEMA), sink.writer(SCHEMA, False), sink.streamWriter(SCHEMA, False)
    shipped = cloudpickle.dumps(parts)  # type: ignore[no-untyped-call]
    done = subprocess.run(
        [sys.executable, "-c", _WORKER], input=shipped, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    said = done.stdout.decode().splitlines()
    assert len(said) == len(parts)
    for line in said:
        assert f"this Python worker runs {sys.executable}" in line
        assert "PYSPARK_PYTHON must name the interpreter that has rocketrio[spark]" in line


@pytest.mark.slow
def test_finding_the_format_imports_nothing_that_may_fail() -> None:
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


def test_an_interpreter_that_does_not_answer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexec sleep 30\n")
    python.chmod(0o755)
    monkeypatch.setattr(registration, "CHECK_TIMEOUT", 0.1)
    with pytest.raises(ConfigError, match=r"within 0.1 s\. PYSPARK_PYTHON must name"):
        check_worker_python(str(python))
