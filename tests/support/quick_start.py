"""A Spark that starts sooner: what the tests need of it is over before Java's better compiler has paid for itself.

A session and its first query cost 25 s of CPU time as Spark comes, and 15 s so. And Spark's Python processes import it
from a zip file, compiling it each time, which on a busy machine takes longer than the ten seconds that Spark gives
them: a home without that file has them import the package that is installed.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyspark

_PARTS: Final = ("bin", "data", "jars", "sbin")
_DEFAULTS: Final = """\
spark.driver.extraJavaOptions  -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions \
-XX:-BytecodeVerificationRemote -XX:MetaspaceSize=256m -Xmn300m
spark.log.level                ERROR
spark.sql.shuffle.partitions   2
spark.ui.enabled               false
spark.ui.showConsoleProgress   false
"""
"""The settings of a session unless it has its own. Java verifies no classes, which took a tenth of a start, and has the
room for them and for new objects from the beginning, which saves it a dozen collections of garbage."""
_STOP_TIMEOUT: Final = 60.0
"""Seconds for a JVM to end when its input has."""


def quick_home(folder: Path) -> None:
    """Make that home in `folder`, once, and have this process and its children use it, with this interpreter."""
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "spark-defaults.conf").write_text(_DEFAULTS)
    package = Path(pyspark.__file__).parent
    for name in _PARTS:
        if not (folder / name).exists():
            (folder / name).symlink_to(package / name)
    os.environ["SPARK_HOME"] = str(folder)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


@contextmanager
def shared_jvm() -> Iterator[None]:
    """Have the Spark programs of this block, one after the other, use one JVM, as those do that `spark-submit` starts.

    What a JVM has loaded and compiled for one program is there for the next: each saves some ten seconds of CPU time.
    """
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    found = {
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
    }
    os.environ.update(found)
    try:
        yield
    finally:
        for name in found:
            del os.environ[name]
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_STOP_TIMEOUT)


def quick_session(
    folder: Path, settings: Mapping[str, str] | None = None, *, master: str = "local[2]"
) -> Any:
    """Start a Spark session whose home is a new folder."""
    quick_home(folder)
    from pyspark.sql import SparkSession

    return SparkSession.builder.master(master).config(map=dict(settings or {})).getOrCreate()
