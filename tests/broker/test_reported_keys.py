"""Every key that the reference names for a broker's status and settings is reported, or listed as meaningless here."""

from pathlib import Path

import pytest
import trio
from tests.broker.processors.asking import asking
from tests.golden.exchanges import exchanges_of
from tests.golden.golden import VERSIONS
from tests.golden.reported_keys import (
    DELAY_LEVEL,
    RUNTIME,
    RUNTIME_OF,
    RUNTIME_WITHOUT_MEANING,
    SETTINGS,
    SETTINGS_OF,
    SETTINGS_WITHOUT_MEANING,
    wrong_forms,
)
from tests.support.raw_client import CPP, broker_and_client
from trio.testing import MockClock

from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.commands import admin

COMPATIBILITY = Path(__file__).parents[2] / "docs" / "COMPATIBILITY.md"


def recorded(version: str, code: RequestCode) -> bytes:
    (asked, *_) = exchanges_of(version, "broker", code)
    assert asked.answer is not None
    return bytes(asked.answer.body)


@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_values_have_these_forms(version: str) -> None:
    runtime = KVTable.from_json(recorded(version, RequestCode.GET_BROKER_RUNTIME_INFO)).table
    assert not wrong_forms(runtime, RUNTIME | RUNTIME_OF[version])
    assert not wrong_forms(runtime, {"scheduleMessageOffset_1": DELAY_LEVEL})
    settings = parse_properties(recorded(version, RequestCode.GET_BROKER_CONFIG))
    assert not wrong_forms(settings, SETTINGS | SETTINGS_OF[version])


async def test_runtime_information_has_every_key_with_a_value_of_its_form(
    autojump_clock: MockClock,
) -> None:
    async with broker_and_client() as (cluster, client), asking() as idle:
        young = (await idle.ask(admin.GetBrokerRuntimeInfoRequestHeader())).body
        for number in range(3):
            await client.ask(310, {**CPP, "i": "DELAY\x011"}, b"%d" % number)
            await client.ask(310, CPP, b"x")
        await trio.sleep(70)
        busy = (await client.ask(28)).body
        for body in (young, busy):
            table = KVTable.from_json(body).table
            assert not wrong_forms(table, RUNTIME | RUNTIME_OF["4.9.7"] | RUNTIME_OF["5.3.3"])
            assert not table.keys() & set(RUNTIME_WITHOUT_MEANING)
        assert table["scheduleMessageOffset_1"] == "3,3"
        assert table["commitLogMaxOffset"] == str(cluster.master.broker.store.max_physical_offset)
        assert table["msgPutTotalTodayNow"] == table["putMessageTimesTotal"] == "9"
        (path,) = (name for name in table if name.startswith("commitLogDiskRatio_"))
        assert not wrong_forms(table, {path: r"\d\.\d+"})


async def test_settings_have_every_key_with_a_value_of_its_form(autojump_clock: MockClock) -> None:
    async with asking() as one:
        shown = parse_properties((await one.ask(admin.GetBrokerConfigRequestHeader())).body)
    assert not wrong_forms(shown, SETTINGS | SETTINGS_OF["4.9.7"] | SETTINGS_OF["5.3.3"])
    assert not shown.keys() & SETTINGS_WITHOUT_MEANING


def test_keys_without_meaning_are_listed_for_users() -> None:
    text = COMPATIBILITY.read_text()
    assert not [name for name in SETTINGS_WITHOUT_MEANING if f"`{name}`" not in text]
    assert not [name for name in RUNTIME_WITHOUT_MEANING if f"`{name}`" not in text]
