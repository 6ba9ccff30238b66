"""One Spark session for all tests here, and what tests of several files record and load."""

from collections.abc import Iterator

import pytest
import trio
from pyspark.sql import SparkSession
from tests.spark.chosen_topics import load_timed
from tests.spark.pulls import pulls as pulls
from tests.support.quick_start import quick_session
from tests.support.running_cluster import Running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two slots, in a time zone that is not UTC; a start costs seconds, so there is one."""
    settings = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.streaming.noDataProgressEventInterval": "200",
    }
    session = quick_session(tmp_path_factory.mktemp("spark"), settings)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def middle_ms(cluster: Running) -> int:
    """Load the topic `timed` into the cluster of a file; return when its second half was not there yet."""
    return trio.run(load_timed, cluster)
