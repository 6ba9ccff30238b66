"""The command line starts without what only some commands need."""

import json
import resource
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import rocketrio
from rocketrio import TransactionState
from rocketrio.admin import declared
from rocketrio.admin.brokers import Cleaning
from rocketrio.cli import export, main
from rocketrio.cli.broker import CLEANINGS
from rocketrio.cli.produce import ANSWERS

HEAVY = {"msgspec", "numpy", "pyarrow", "pyspark", "rich", "trio"}


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_start_imports_nothing_heavy(argument: str) -> None:
    program = f"""
import sys
from rocketrio.cli import main
main(["{argument}"], standalone_mode=False)
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(done.stderr.split())


@pytest.mark.slow
def test_no_help_text_imports_the_client_or_numpy() -> None:
    """All help texts in one process."""
    program = """
import sys, click
from rocketrio.cli import main

def show(group, context):
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = click.Context(command, parent=context, info_name=name)
        command.get_help(inner)
        if isinstance(command, click.Group):
            show(command, inner)

show(main, click.Context(main))
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy = HEAVY - {"msgspec"} | {"rocketrio.admin", "rocketrio.client"}
    assert not heavy & set(done.stderr.split())


@pytest.mark.slow
def test_administration_and_sends_import_neither_numpy_nor_consumers() -> None:
    """Nor do the workers of Spark import the administration."""
    program = """
import sys
for module in sys.argv[1].split():
    __import__(module)
print(*sys.modules)
"""

    def imported(modules: str) -> set[str]:
        arguments = [sys.executable, "-c", program, modules]
        return set(
            subprocess.run(arguments, capture_output=True, check=True).stdout.decode().split()
        )

    consumers = "rocketrio.consuming.consumer"
    anywhere = {"urllib.request", "importlib.metadata"}
    commands = imported("rocketrio.admin.admin rocketrio.producing.produce rocketrio.cli.shell")
    assert not (HEAVY - {"msgspec", "trio"} | anywhere | {consumers}) & commands
    assert not {"numpy", "pyarrow"} & imported("rocketrio.consuming.consume")
    spark = imported("rocketrio.spark.source rocketrio.spark.streaming.reader")
    assert "pyarrow" in spark
    assert "rocketrio.admin" not in spark


def test_choices_that_are_named_twice_are_the_same() -> None:
    assert tuple(each.value for each in Cleaning) == CLEANINGS
    assert export.KINDS == declared.KINDS
    assert tuple(each.name.lower() for each in TransactionState) == ANSWERS


@pytest.mark.parametrize("arguments", [["--version", "--json"], ["--json", "--version"]])
def test_version_for_programs(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    found = json.loads(done.output)
    assert (found["program"], found["version"]) == ("rocketrio", rocketrio.__version__)
    assert CliRunner().invoke(main, ["--version"]).output.endswith(f"{rocketrio.__version__}\n")
    assert CliRunner().invoke(main, ["--json"]).exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_start_takes_less_than_twice_the_cpu_time_of_click_alone(argument: str) -> None:
    def seconds(program: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        arguments = [sys.executable, "-c", program, argument]
        subprocess.run(arguments, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    alone, ours = (
        min(seconds(program) for _ in range(5))
        for program in ("import click", "from rocketrio.cli import main; main()")
    )
    assert ours < 2 * alone


def test_help_has_the_line_of_each_command() -> None:
    context = click.Context(main)
    help_text = " ".join(main.get_help(context).split())
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        first = " ".join((command.help or "").split("\n\n")[0].split())
        assert f"{name} {first}" in help_text, name


def test_unknown_command_is_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="No such command"):
        main(["topics"], standalone_mode=False)


@pytest.mark.parametrize("name", sorted(set(rocketrio.__all__) - {"__version__"}))
def test_public_name_is_imported_when_it_is_used(name: str) -> None:
    assert getattr(rocketrio, name) is getattr(rocketrio, name)


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_produer'"):
        rocketrio.open_produer  # type: ignore[attr-defined]  # noqa: B018
