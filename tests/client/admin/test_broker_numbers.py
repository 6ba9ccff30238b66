"""What a broker reports, as values with units: of Apache's recorded texts, of a rocketrio broker, and of any text."""

from datetime import UTC, datetime, timedelta

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clients import open_admin
from tests.support.orders import send

from rocketrio import ClientInstance
from rocketrio.admin.broker_numbers import counts_of, size_of, state_of
from rocketrio.admin.brokers import Cleaning, expected
from rocketrio.admin.cluster_status import BrokerDescription
from rocketrio.admin.round_trips import percentile
from rocketrio_protocol.errors import RouteNotFoundError

APACHE = {
    "brokerVersionDesc": "V4_9_7",
    "bootTimestamp": "1763000000000",
    "commitLogMinOffset": "1073741824",
    "commitLogMaxOffset": "3221225472",
    "earliestMessageTimeStamp": "-1",
    "commitLogDirCapacity": "Total : 98.3 GiB, Free : 512.0 MiB.",
    "commitLogDiskRatio": "0.42",
    "remainHowManyDataToFlush": "0 B",
    "dispatchBehindBytes": "0",
    "putTps": "12.5 3.75 0.1",
    "getTransferedTps": "0.0  ",
    "putMessageAverageSize": "213.25",
    "putMessageEntireTimeMax": "-1",
    "putLatency99": "-1.00",
    "putMessageDistributeTime": "null",
    "msgPutTotalTodayNow": "150",
    "msgPutTotalTodayMorning": "100",
    "msgPutTotalYesterdayMorning": "120",
}


def test_texts_of_apache_are_values_with_units() -> None:
    state = {one.key: one for one in state_of(APACHE, {"fileReservedTime": "72"})}
    assert (state["log_size"].value, state["log_size"].unit) == (2 << 30, "bytes")
    assert state["started"].value == datetime.fromtimestamp(1_763_000_000, UTC)
    assert state["oldest_message"].value is None
    assert state["disk_free"].value == 512 << 20
    assert (state["disk_used"].value, state["kept_for"].value) == (0.42, 72)
    assert (state["not_flushed"].value, state["is_active"].value) == (0, None)
    counts = {one.key: one.value for one in counts_of(APACHE)}
    assert [counts[f"stored_{span}"] for span in ("10s", "1m", "10m")] == [12.5, 3.75, 0.1]
    # Rates that were not sampled yet are not known.
    assert [counts[f"delivered_{span}"] for span in ("10s", "1m", "10m")] == [0.0, None, None]
    assert (counts["store_time_max"], counts["store_time_p99"], counts["store_times"]) == (
        None,
        None,
        None,
    )
    # The total fell: the broker was restarted meanwhile.
    assert (counts["stored_today"], counts["stored_yesterday"]) == (50, None)


@pytest.mark.parametrize(
    "digits", ["1700000000000000", str(2**63 - 1), "9" * 5000, "-1", "--5", "1e9"]
)
def test_digits_that_are_no_time_or_count_are_unknown(digits: str) -> None:
    table = {"bootTimestamp": digits, "commitLogMinOffset": digits, "commitLogMaxOffset": digits}
    state = {one.key: one.value for one in state_of(table, {"haListenPort": digits})}
    assert state["started"] is None
    description = BrokerDescription.of("c", "b", 0, "h:1", table, {"haListenPort": "9" * 5000})
    assert description.ha_address is None


TEXTS = st.text("0123456789.-E GiBMTotal:,Fre nul", max_size=30)


@given(st.dictionaries(st.sampled_from([*APACHE, "getTransferredTps"]), TEXTS))
def test_any_text_is_a_value_or_unknown(table: dict[str, str]) -> None:
    for one in [*state_of(table, {}), *counts_of(table)]:
        assert one.value is None or not isinstance(one.value, int | float) or one.value >= 0
    assert {one.key for one in counts_of(table)} == {one.key for one in counts_of({})}
    assert all(one.value is None for one in [*state_of({}, {}), *counts_of({})])


def test_sizes_are_binary() -> None:
    assert [size_of(text) for text in ("0B", "1.5 KiB", "2 GB", "7", "x B", "")] == [
        0,
        1536,
        2 << 30,
        None,
        None,
        None,
    ]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.floats(0.001, 1))
def test_percentile_is_a_measured_value_that_enough_values_do_not_exceed(
    values: list[float], part: float
) -> None:
    found = percentile(values, part)
    assert found in values
    assert sum(one <= found for one in values) >= part * len(values) - 1e-6
    assert sum(one < found for one in values) < part * len(values)


@pytest.mark.parametrize(
    ("count", "part", "expected"),
    [(1000, 0.999, 999), (1000, 0.5, 500), (1, 0.999, 1), (100, 0.99, 99), (3, 0.5, 2)],
)
def test_percentile_by_nearest_rank(count: int, part: float, expected: int) -> None:
    assert percentile(range(1, count + 1), part) == expected


def test_expectation_of_a_cleaning_follows_age_and_retention() -> None:
    now = datetime(2026, 11, 25, tzinfo=UTC)
    old, young = now - timedelta(hours=73), now - timedelta(hours=71)
    assert "older than 72 hours would go" in expected(Cleaning.LOG, old, 72, now)
    assert "nothing would go" in expected(Cleaning.LOG, young, 72, now)
    assert "unknown" in expected(Cleaning.LOG, None, 72, now)
    assert "unknown" in expected(Cleaning.QUEUES, old, None, now)


async def test_rocketrio_broker_reports_itself(client: ClientInstance) -> None:
    await send(client, 3, queues=1)
    await trio.sleep(60)
    async with open_admin(client=client) as admin:
        [addr] = (await admin.masters()).values()
        runtime, settings = (
            await admin.calls.runtime_info(addr),
            await admin.calls.broker_config(addr),
        )
        state = {one.key: one.value for one in state_of(runtime, settings)}
        unknown = {key for key, value in state.items() if value is None}
        assert unknown == set()
        counts = {one.key: one.value for one in counts_of(runtime)}
        assert (counts["stored_in_all"], counts["stored_today"]) == (3, 3)
        for cleaning in Cleaning:
            before = await admin.clean_broker(addr, cleaning, dry_run=True)
            assert all(one.after is None for one in before)
            done = await admin.clean_broker(addr, cleaning)
            assert [(one.what, one.before) for one in done] == [
                (one.what, one.before) for one in before
            ]
            assert [one.after for one in done] == [one.before for one in before]


async def test_round_trips_are_measured_for_each_broker(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        [found] = await admin.round_trips(count=5, size=10_000)
        assert (found.broker_name, found.sends, found.failures) == ("broker-a", 5, 0)
        assert (found.median is None, found.problem) == (False, None)
        with pytest.raises(RouteNotFoundError, match="known names: broker-a"):
            await admin.round_trips(broker_name="broker-b")
