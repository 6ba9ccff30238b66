"""Registers the format with a session, and checks that its Python workers can use it.

If the package is installed for Spark's Python workers, registration is not necessary: Spark finds the module
`pyspark_rocketmq` by its name.
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
"""Seconds for the check in the workers' Python; importing Spark and Arrow from a cold disk takes several."""


def register(spark: "SparkSession") -> None:
    """Make the format `rocketmq` known to a session.

    Raises ConfigError if the workers run on this machine (`master("local[...]")`) with a Python that does not have this
    package: set PYSPARK_PYTHON before you create the session. Other machines cannot be checked; there the first job
    reports a missing package with the same advice.
    """
    from pyspark.errors import AnalysisException

    from pyspark_rocketmq import DefaultSource

    check_workers(spark)
    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        # PySpark 4.0 refuses a format that it has already found automatically; later versions accept it again.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def check_workers(spark: "SparkSession") -> None:
    """Raise ConfigError if workers run on this machine with a Python that cannot use this package."""
    from pyspark.errors import PySparkAttributeError

    try:
        context = spark.sparkContext
    except PySparkAttributeError:  # Spark Connect: the server runs the workers.
        return
    if (context.master or "").startswith("local"):
        check_worker_python(context.pythonExec)


def check_worker_python(python: str) -> None:
    """Raise ConfigError unless that interpreter exists and can import the connector."""
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
