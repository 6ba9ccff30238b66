"""Making the format known to a session, and whether its Python workers can use it at all.

Where the package is installed for Spark's Python workers, registering is not even needed: Spark finds the
module `pyspark_rocketmq` by its name.
"""

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from rocketrio_protocol.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECK_TIMEOUT: Final = 60.0
"""Seconds that the workers' Python has; importing Spark's and Arrow's packages from a cold disk takes several."""


def register(spark: "SparkSession") -> None:
    """Make the format `rocketmq` known to a session.

    Raises ConfigError when the workers run on this machine (`master("local[...]")`) with a Python that does not
    have this package: set PYSPARK_PYTHON before the session is made. Other machines cannot be looked at; there a
    missing package shows as an error of the first job that says the same.
    """
    from pyspark.errors import AnalysisException

    from pyspark_rocketmq import DefaultSource

    check_workers(spark)
    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        # PySpark 4.0 refuses a format that it has found by itself; later versions take it once more.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def check_workers(spark: "SparkSession") -> None:
    """Raise ConfigError when workers run on this machine with a Python that cannot use this package."""
    from pyspark.errors import PySparkAttributeError

    try:
        context = spark.sparkContext
    except PySparkAttributeError:  # Spark Connect: workers are the server's affair
        return
    if (context.master or "").startswith("local"):
        check_worker_python(context.pythonExec)


def check_worker_python(python: str) -> None:
    """Raise ConfigError unless that interpreter is there and can import the connector."""
    found = shutil.which(python)
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        return  # the same environment, whatever the file is called
    if found is None:
        raise ConfigError(f"Spark's workers are to run {python!r}, which is not there. {_ADVICE}")
    try:
        done = subprocess.run(
            [found, "-c", "import pyspark_rocketmq, rocketrio.spark.source"],
            capture_output=True,
            text=True,
            timeout=CHECK_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"Spark's workers run {found}, which did not import rocketrio within {CHECK_TIMEOUT:g} s. {_ADVICE}"
        ) from error
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        raise ConfigError(
            f"Spark's workers run {found}, which cannot use rocketrio ({said}). {_ADVICE}"
        )


_ADVICE = (
    "PYSPARK_PYTHON must name the interpreter that has rocketrio[spark], before the session is made:"
    f" PYSPARK_PYTHON={sys.executable}"
)
