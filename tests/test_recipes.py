"""The code of the recipes in CONTRIBUTING.md works in the files to which they add it."""

import importlib
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import attrs
from click.testing import CliRunner

from rocketrio.admin.diagnosis.rule import Severity
from rocketrio.cli.commands import Group
from rocketrio.spark.options import declared
from rocketrio_broker.requests.declaration import handlers_of
from rocketrio_broker.settings.setting import checked_words
from rocketrio_protocol.command import RemotingCommand
from tests.support.snapshots import MASTER, changed

RECIPES: Final = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
BLOCKS: Final = [
    textwrap.dedent(text)
    for text in re.findall(r"^ *```text\n(.*?)^ *```$", RECIPES, re.MULTILINE | re.DOTALL)
]


def added_to(module: str, beginning: str, **names: object) -> dict[str, Any]:
    """Run the block that begins like this at the end of a file, and return the names that the file then has."""
    (text,) = [each for each in BLOCKS if each.startswith(beginning)]
    found = {**vars(importlib.import_module(module)), **names}
    exec(text, found)
    return found


def field_in(module: str, name: str) -> type:
    """Return an attrs class that has only the field in the block that begins with this name."""
    found = added_to(module, f"{name}:")
    body = {"__annotations__": {name: float}, name: found[name]}
    return attrs.define(field_transformer=checked_words)(type("Recipe", (), body))


def headers() -> dict[str, Any]:
    code = added_to("rocketrio_protocol.codes", "GET_BROKER_CLOCK")["GET_BROKER_CLOCK"]
    codes = SimpleNamespace(GET_BROKER_CLOCK=code)
    module = "rocketrio_protocol.commands.inspection"
    return added_to(module, "from rocketrio_protocol.headers", RequestCode=codes)


def test_handler_of_the_recipe_answers_its_request() -> None:
    inspection = SimpleNamespace(**headers())
    found = added_to("rocketrio_broker.processors.inspection", "@answers", inspection=inspection)
    broker = SimpleNamespace(wall_clock=SimpleNamespace(now_ms=lambda: 7))
    family = type("Family", (), {"_broker": broker, "clock": found["clock"]})()
    request = RemotingCommand(inspection.GetBrokerClockRequestHeader.code)
    answer: Any = handlers_of(family)[request.code].process(None, request)  # type: ignore[arg-type]
    assert answer.ext_fields == {"clockMillis": "7"}


def test_command_of_the_recipe_explains_itself() -> None:
    group = Group("broker")
    added_to("rocketrio.cli.broker", "@broker.command()", broker=group)
    done = CliRunner().invoke(group, ["clock", "--help"])
    assert done.exit_code == 0
    assert "Show the wall clock" in done.output


def test_option_and_setting_of_the_recipes_are_declared_whole() -> None:
    assert list(declared(field_in("rocketrio.spark.reading.options", "pull_timeout"))) == [
        "pullTimeoutMs"
    ]
    (field,) = attrs.fields(field_in("rocketrio_broker.settings.config", "transaction_timeout"))
    assert (field.default, field.metadata["java"]) == (6.0, "transactionTimeOut")


def test_rule_of_the_recipe_judges_what_it_needs() -> None:
    found = added_to("rocketrio.admin.diagnosis.brokers", "@rule")["sends_wait"]
    seen = changed(runtimes={MASTER.address: {"sendThreadPoolQueueSize": "5000"}})
    assert [one.severity for one in found.findings(seen)] == [Severity.ERROR]
    assert not list(found.findings(changed()))
