"""Names for completion: what is kept, and that nothing goes wrong aloud."""

import json
import time
from pathlib import Path

import click
import pytest

from rocketrio.cli import known_names as module
from rocketrio.cli.contexts import Choice
from rocketrio.cli.known_names import KEPT, known_names


@pytest.fixture(name="cache")
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    return tmp_path / "rocketrio" / "names.json"


def names() -> list[str]:
    return known_names(click.Context(click.Command("show")), "topics")


@pytest.mark.parametrize("age", [0.0, KEPT - 5])
def test_kept_names_are_used_for_half_a_minute(cache: Path, age: float) -> None:
    cache.parent.mkdir()
    cache.write_text(json.dumps({"topics  127.0.0.1:1": [time.time() - age, ["orders"]]}))
    assert names() == ["orders"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"topics  127.0.0.1:1": 7}'])
def test_damaged_file_is_no_names(cache: Path, text: str) -> None:
    cache.parent.mkdir()
    cache.write_text(text)
    assert names() == []


def test_older_names_are_asked_for_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.mkdir()
    cache.write_text(json.dumps({"topics  127.0.0.1:1": [time.time() - KEPT - 1, ["old"]]}))

    async def asked(choice: Choice, kind: str) -> list[str]:
        return ["new"]

    monkeypatch.setattr(module, "_asked", asked)
    assert names() == ["new"]
    assert [found for _, found in json.loads(cache.read_text()).values()] == [["new"]]


def test_names_that_cannot_be_kept_are_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.write_text("a file, not a folder")

    async def asked(choice: Choice, kind: str) -> list[str]:
        return ["orders"]

    monkeypatch.setattr(module, "_asked", asked)
    assert names() == ["orders"]


def test_wrong_contexts_are_no_names(cache: Path) -> None:
    cache.parent.mkdir()
    (cache.parent / "contexts.toml").write_text("=")
    assert names() == []
