"""Options that all commands write alike: before or after the command, numbers, durations, others' words."""

import click
import pytest
from click.testing import CliRunner
from tests.client.cli.trees import all_commands

from rocketrio.cli import main
from rocketrio.cli.commands import SectionOption
from rocketrio.cli.numbers import Duration
from rocketrio.cli.shell import CLUSTER_OPTIONS
from rocketrio.counts import counted

COMMANDS = dict(all_commands())


def said(*arguments: str) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2, done.output
    return " ".join(done.output.split())


def test_options_before_the_command_are_those_of_the_cluster() -> None:
    options = {
        name: not (option.is_flag or option.count)
        for option in COMMANDS["lag"].params
        if isinstance(option, SectionOption) and option.section == "Cluster"
        for name in option.opts
    }
    assert options == CLUSTER_OPTIONS


@pytest.mark.parametrize("words", [["--namesrv", "127.0.0.1:1"], ["--namesrv=127.0.0.1:1"]])
@pytest.mark.parametrize("command", [["topic", "list"], ["lag", "--once"]])
def test_name_server_may_stand_before_the_command(words: list[str], command: list[str]) -> None:
    before = CliRunner().invoke(main, [*words, "--timeout", "20s", "-vv", *command])
    assert before.exit_code == 1
    assert "no name server answered (127.0.0.1:1)" in before.output


def test_option_after_the_command_wins_over_the_one_before_it() -> None:
    server = ("--namesrv", "127.0.0.1:1")
    assert "'y' is not a duration" in said(
        "--timeout", "x", "topic", "list", *server, "--timeout", "y"
    )


@pytest.mark.parametrize("command", [["context", "list"], ["completion", "bash"]])
def test_option_before_a_command_without_it_is_an_error(command: list[str]) -> None:
    assert "No such option '--namesrv'" in said("--namesrv", "127.0.0.1:1", *command)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["consume", "t", "--group", "g", "--max", "3"], "Did you mean '--count'?"),
        (["consume", "t", "--group", "g", "--limit", "3"], "Did you mean '--count'?"),
        (["consume", "t", "-g", "g"], "Did you mean '--group'?"),
        (["topic", "list", "--server", "h:1"], "Did you mean '--namesrv'?"),
        (["topic", "list", "-n", "h:1"], "Did you mean '--namesrv'?"),
        (["-n", "h:1", "topic", "list"], "Did you mean '--namesrv'?"),
        (["message", "browse", "t", "--last", "2"], "--last takes no number, give --count too"),
        (["broker", "role", "h:x", "slave"], "`rocketrio cluster list` shows them"),
    ],
)
def test_word_of_another_program_is_an_error_that_names_ours(
    arguments: list[str], hint: str
) -> None:
    assert hint in said(*arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["topic", "create", "t", "--queues", "abc"], "'abc' is not a number from 1 to 65535"),
        (["topic", "create", "t", "--queues", "0"], "'0' is not a number from 1 to 65535"),
        (["consume", "t", "--group", "g", "-n", "all"], "'all' is not a number from 1"),
        (["offsets", "reset", "g", "--shift", "x"], "'x' is not a number"),
        (["bench", "produce", "t", "--duration", "6x"], "'6x' is not a duration like 6s, 5m"),
        (["lag", "--window", "soon"], "'soon' is not a duration like 6s, 5m"),
        (["topic", "list", "--timeout", "-1"], "'-1' is not a duration"),
        (["top", "--every", "1ms"], "1ms is shorter than 0.2s"),
        (["bench", "produce", "--rate", "fast"], "'fast' is not a rate like 5/s or 300/m"),
    ],
)
def test_wrong_number_is_an_error_that_says_what_is_right(arguments: list[str], text: str) -> None:
    assert text in said(*arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_numbers_are_of_our_own_kinds(name: str) -> None:
    for parameter in COMMANDS[name].params:
        kind = type(parameter.type)
        is_counter = isinstance(parameter, click.Option) and parameter.count
        assert (
            is_counter
            or not kind.__module__.startswith("click.")
            or not issubclass(
                kind, click.IntRange | click.FloatRange | type(click.INT) | type(click.FLOAT)
            )
        ), parameter.name


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6", 6.0), ("6s", 6.0), ("1.5", 1.5), ("250ms", 0.25), ("5m", 300.0), ("1h30m", 5400.0)],
)
def test_duration(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


def test_counts_have_their_plural() -> None:
    assert [counted(number, "message") for number in (0, 1, 2, 5000)] == [
        "0 messages",
        "1 message",
        "2 messages",
        "5,000 messages",
    ]
