"""One Spark session for all tests here, and Hypothesis without a deadline: a busy machine is no failure of the code."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

settings.register_profile("rocketrio", deadline=None)
settings.load_profile("rocketrio")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session of two slots, in a time zone that is not UTC; a start costs seconds, so there is one."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()
