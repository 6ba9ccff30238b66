"""One Spark session for all tests here."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.support.quick_start import quick_home


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two slots, in a time zone that is not UTC; a start costs seconds, so there is one."""
    quick_home(tmp_path_factory.mktemp("spark"))
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.streaming.noDataProgressEventInterval", "200")
        .getOrCreate()
    )
    yield session
    session.stop()
