"""Texts of strangers on a terminal: one guard for all streams, and one console for all that rich draws."""

import io
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import rocketrio.cli
from rocketrio.cli.console import console
from rocketrio.cli.json_values import json_text
from rocketrio.cli.say import Guarded, guarding, say, unguarded, warn
from rocketrio_protocol.log_lines import visible, visible_json

HOSTILE = "\x1b]0;PWNED\x07\x1b[31m\r\n\u202e\u009b[bold]x[/bold]"
SOURCES = sorted(Path(rocketrio.cli.__file__).parent.glob("*.py"))
TEXTS = st.text(st.characters(codec=None) | st.sampled_from(HOSTILE + "\u3000\u200d\ufeff\x7f"))


@given(TEXTS)
def test_what_is_visible_steers_nothing_and_keeps_letters_of_all_scripts(text: str) -> None:
    shown = visible(text)
    assert not set(shown) & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert visible(shown) == shown
    shown.encode()  # No half of a character is left.


def test_blanks_and_joiners_of_other_scripts_stay() -> None:
    text = "出荷\u3000済み\t👩\u200d🚒\nنص"
    assert visible(text) == text
    assert json_text(text) == json.dumps(text, ensure_ascii=False)


@given(st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS)))
def test_json_that_is_printed_means_what_it_meant(value: dict[str, Any]) -> None:
    printed = json_text(value)
    assert visible(printed) == printed
    assert json.loads(printed) == value


def test_toml_that_is_printed_means_what_it_meant() -> None:
    text = visible_json(f"a = {json.dumps(HOSTILE, ensure_ascii=False)}")
    assert tomllib.loads(text) == {"a": HOSTILE}


def test_guarded_streams_pass_lines_on_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with guarding():
        print(HOSTILE)
        click.echo(HOSTILE.encode().decode(), err=True)
        sys.stdout.writelines(["a\n", "\x1b[2J"])
        assert isinstance(sys.stdout, Guarded)
        assert unguarded(sys.stdout) is not sys.stdout
    assert not isinstance(sys.stdout, Guarded)
    out, err = capsys.readouterr()
    assert out == "\\x1b]0;PWNED\\x07\\x1b[31m\\r\n\\u202e\\x9b[bold]x[/bold]\na\n\\x1b[2J"
    assert not set(err) & set("\x1b\x07\r\u202e\u009b")


def test_ascii_streams_are_guarded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii", write_through=True))
    with guarding():
        click.echo("发货 \u202e")
    assert raw.getvalue().decode() == "发货 \\u202e\n"


def test_line_of_a_stranger_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"name {HOSTILE}")
    warn(f"a remark\n\tof {HOSTILE}")
    out, err = capsys.readouterr()
    assert out == "name \\x1b]0;PWNED\\x07\\x1b[31m\\r\\n\\u202e\\x9b[bold]x[/bold]\n"
    assert err.count("\n") == 1
    assert err.startswith("warning: a remark of \\x1b]0;PWNED")


def table() -> Table:
    shown = Table(HOSTILE, box=None)
    shown.add_row(HOSTILE)
    return shown


@pytest.mark.parametrize(
    "drawn",
    [HOSTILE, Text(HOSTILE), Group(HOSTILE, Text(HOSTILE)), table()],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("is_live", [False, True])
def test_nothing_that_rich_draws_is_markup_or_steers(
    drawn: Any, is_live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    screen = console()
    if is_live:
        with Live(console=screen, auto_refresh=False, redirect_stdout=False) as live:
            live.update(drawn, refresh=True)
    else:
        screen.print(drawn)
    shown = stream.getvalue()
    assert "[bol" in shown  # A column of rich is as wide as the text was before.
    assert not set(shown) & set("\x1b\x07\r\u202e\u009b")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_commands_print_through_one_place(path: Path) -> None:
    """What goes past the guard, or would be escaped by it, is in say.py and console.py alone."""
    text = path.read_text()
    if path.name not in ("say.py", "console.py"):
        for word in ("Console(", "click.style(", "click.secho(", "unguarded ="):
            assert word not in text, word
    assert " print(" not in text


def test_console_is_that_of_rich() -> None:
    assert issubclass(type(console()), Console)
