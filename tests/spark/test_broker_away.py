"""Two masters as processes, one of which dies: which batch reads notice that its queues are missing."""

import json
import time
from pathlib import Path

import pytest
import trio
from tests.support.ours import OurBroker, OurNameServer
from tests.support.running_cluster import load_topic

from rocketrio.spark.errors import BrokerUnreachableError, OptionError, TopicNotFoundError
from rocketrio.spark.reading.options import parse_read_options
from rocketrio.spark.reading.planning import plan_batch

pytestmark = [pytest.mark.real, pytest.mark.slow]
COUNT = 20
OFFSETS = json.dumps({"orders": {"broker-a": {"0": 5}, "broker-b": {"0": 5}}})
NOTICED_WITHIN = 20.0
"""Seconds until the name server has dropped a broker whose connection is gone."""


def _rows(name_server: OurNameServer, **given: str) -> int:
    way = {} if "assign" in given else {"subscribe": "orders"}
    options = parse_read_options({"nameServer": name_server.address, **way, **given})
    tasks = trio.run(plan_batch, options)
    return sum(part.rows for task in tasks for part in task.ranges)


def test_missing_queues_of_a_dead_broker_fail_only_a_read_that_names_them(tmp_path: Path) -> None:
    with OurNameServer(tmp_path / "namesrv") as name_server:
        master = OurBroker(tmp_path / "a", name_server.address)
        other = OurBroker(tmp_path / "b", name_server.address, name="broker-b")
        with master, other:
            for broker in (master, other):
                load_topic(broker.address, "orders", 1, COUNT)
            assert _rows(name_server) == 2 * COUNT
            assert _rows(name_server, startingOffsets=OFFSETS) == 2 * (COUNT - 5)
            assert other.process is not None
            other.process.kill()
            deadline = time.monotonic() + NOTICED_WITHIN
            # Name servers know brokers that are there: that one is missing cannot be seen.
            while _rows_or_none(name_server) != COUNT and time.monotonic() < deadline:
                time.sleep(0.2)
            assert _rows(name_server) == COUNT
            with pytest.raises(
                TopicNotFoundError, match="names orders@broker-b:0, which no broker has"
            ):
                _rows(name_server, assign='{"orders":{"broker-a":[0],"broker-b":[0]}}')
            with pytest.raises(OptionError, match="names orders@broker-b:0, which this query does"):
                _rows(name_server, startingOffsets=OFFSETS)
            tolerant = {"startingOffsets": OFFSETS, "failOnDataLoss": "false"}
            assert _rows(name_server, **tolerant) == COUNT - 5


def _rows_or_none(name_server: OurNameServer) -> int | None:
    """None while its dead broker is asked still."""
    try:
        return _rows(name_server)
    except BrokerUnreachableError:
        return None
