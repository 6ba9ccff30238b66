"""A real Prometheus reads a rocketrio broker in a process of its own, with the rules that are shipped."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from tests.monitoring.watching import Watched, handle, send, watched_brokers
from tests.support.prometheus import needs_prometheus, read

pytestmark = [pytest.mark.real, pytest.mark.slow, needs_prometheus]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """Run one broker that a group has used."""
    with watched_brokers(tmp_path, "broker-a") as found:
        trio.run(send, found.name_server, 10)
        trio.run(handle, found.name_server, 4)
        yield found


def test_prometheus_reads_a_broker_and_notices_its_end(watched: Watched) -> None:
    watched.by.until("sum(rocketmq_messages_in_total)", 10)
    assert watched.by.number('up{job="rocketmq"}') == 1
    assert watched.by.number("sum(rocketmq_consumer_lag_messages)") == 6
    assert watched.by.number("rocketrio_broker_takes_writes") == 1
    assert watched.by.number('scrape_samples_scraped{job="rocketmq"}') > 100  # type: ignore[operator]
    watched.by.until("sum(group:rocketmq_consumer_lag_messages:sum)", 6)
    assert not watched.by.broken_rules()
    watched.brokers[0].kill()
    watched.by.until('ALERTS{alertname="BrokerSilent"}', 1)
    # Without a time of its own a series ends with its page.
    watched.by.until("rocketmq_consumer_lag_messages", None)


def test_promtool_finds_no_mistake_in_a_page(watched: Watched) -> None:
    page = read(f"http://{watched.pages[0]}/metrics")
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True)
    remarks = (done.stdout + done.stderr).decode().splitlines()
    # Apache's names are in milliseconds; boards need them so.
    assert [each for each in remarks if not each.startswith("rocketmq_")] == []
