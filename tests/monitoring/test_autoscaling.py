"""The queries that scale a group: its lag, and no answer while the lag is unknown."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import yaml
from tests.monitoring.watching import Watched, handle, send, watched_brokers
from tests.support.prometheus import needs_prometheus

from rocketrio import open_consumer

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "kubernetes" / "autoscaling" / "billing.yaml"
QUERIES = re.findall(
    r"^```promql\n(.*?)^```", (ROOT / "docs" / "autoscaling.md").read_text(), re.DOTALL | re.M
)
SENT, DONE = 40, 4
LAG = 'rocketmq_consumer_lag_messages{consumer_group="billing", topic="orders", job="rocketmq"}'
ARRIVED = 'rocketmq_messages_in_total{topic="orders"}'


def words(text: str) -> list[str]:
    return text.split()


def triggers() -> dict[str, dict[str, str]]:
    [scaled] = [
        one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "ScaledObject"
    ]
    return {one["name"]: one["metadata"] for one in scaled["spec"]["triggers"]}


def test_scaler_asks_what_the_guide_explains_and_takes_no_answer_for_no_zero() -> None:
    lag = triggers()["lag"]
    assert words(lag["query"]) == words(QUERIES[0])
    assert lag["ignoreNullValues"] == "false"
    assert ARRIVED in triggers()["arrivals"]["query"]


def of_two_pairs(query: str) -> str:
    return query.replace(")) == 1", ")) == 2")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """Run two masters that share each topic, as two pairs do."""
    with watched_brokers(tmp_path, "broker-a", "broker-b", has_exporter=True) as found:
        yield found


async def while_a_member_has_committed_nothing(watched: Watched) -> None:
    async with open_consumer(
        "orders",
        group="billing",
        start_from="earliest",
        auto_commit=False,
        name_servers=[watched.name_server],
    ):
        known = 'min(rocketrio_group_lag_known{consumer_group="billing"})'
        await trio.to_thread.run_sync(watched.by.until, known, 0)
        assert [watched.by.number(of_two_pairs(query)) for query in QUERIES] == [None] * 3


@needs_prometheus
@pytest.mark.real
@pytest.mark.slow
def test_query_is_the_lag_and_has_no_answer_while_it_is_unknown(watched: Watched) -> None:
    of_brokers, age, of_exporter = map(of_two_pairs, QUERIES)
    trio.run(send, watched.name_server, SENT)
    trio.run(while_a_member_has_committed_nothing, watched)
    trio.run(handle, watched.name_server, DONE)
    for query in (of_brokers, of_exporter):
        watched.by.until(query, SENT - DONE)
    assert (watched.by.number(age) or 0) > 0
    assert watched.by.number(QUERIES[0]) is None  # It is about one pair, and two know their part.
    watched.by.until(f"sum({ARRIVED})", SENT)
    watched.brokers[1].kill()
    # What the other broker knows is a part.
    for query in (of_brokers, age, of_exporter):
        watched.by.until(query, None)
    part = watched.by.number(f"sum({LAG})")
    assert part is not None
    assert 0 < part < SENT - DONE
