"""Misspelt commands, `help WORDS`, and help texts without docstrings, in both programs and all their groups."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner, Result

from rocketrio.cli import main as client
from rocketrio_broker.cli import main as broker

OF_CLIENT, OF_BROKER = ("rocketrio", client), ("rocketrio-broker", broker)


def ran(program: tuple[str, click.Group], *words: str) -> Result:
    return CliRunner().invoke(program[1], words, prog_name=program[0])


@pytest.mark.parametrize(
    ("program", "words", "meant"),
    [
        (OF_CLIENT, "prodce", "'produce' or 'producers'"),
        (OF_CLIENT, "lagg", "'lag'"),
        (OF_CLIENT, "LAG", "'lag'"),
        (OF_CLIENT, "dead_letters list g", "'dead-letters'"),
        (OF_CLIENT, "topic lisst", "'list'"),
        (OF_CLIENT, "namesrv kv gett", "'get'"),
        (OF_BROKER, "clustr --data d", "'cluster'"),
        (OF_BROKER, "broker-run", None),
        (OF_CLIENT, "zzz", None),
    ],
)
def test_misspelt_command_is_answered_with_those_that_it_may_mean(
    program: tuple[str, click.Group], words: str, meant: str | None
) -> None:
    done = ran(program, *words.split())
    assert done.exit_code == 2
    assert "No such command" in done.stderr
    assert done.stderr.endswith(f" Did you mean {meant}?\n" if meant else "'.\n")


@pytest.mark.parametrize("program", [OF_CLIENT, OF_BROKER], ids=["client", "broker"])
def test_help_of_a_command_is_asked_for_before_or_after_it(
    program: tuple[str, click.Group],
) -> None:
    def compare(*words: str) -> None:
        wanted = ran(program, *words, "--help")
        assert wanted.stdout.startswith("Usage: ")
        assert ran(program, "help", *words).stdout == wanted.stdout
        assert ran(program, *words[:-1], "help", *words[-1:]).stdout == wanted.stdout

    compare()
    context = click.Context(program[1])
    for name in program[1].list_commands(context):
        compare(name)
    if program is OF_CLIENT:
        compare("topic", "list")
        compare("namesrv", "kv", "get")
    assert "No such command 'nothing'" in ran(program, "help", "nothing").stderr


ALL_HELP = """
import click
def show(command, path):
    context = click.Context(command, info_name=path)
    print(command.get_help(context))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            show(command.get_command(context, name), f"{path} {name}")
from rocketrio.cli import main
show(main, "rocketrio")
from rocketrio_broker.cli import main
show(main, "rocketrio-broker")
"""


@pytest.mark.slow
def test_help_texts_are_there_when_python_omits_docstrings() -> None:
    usual, optimized = (
        subprocess.run(
            [sys.executable, *options, "-c", ALL_HELP], capture_output=True, text=True, check=True
        ).stdout
        for options in ([], ["-OO"])
    )
    assert usual.count("Usage: ") > 80
    assert optimized == usual
