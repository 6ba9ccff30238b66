"""What all commands have in common: a mark that says what they do, --dry-run, and forms for programs."""

import click
import pytest
from tests.client.cli.trees import all_commands, all_groups

from rocketrio.cli.commands import Command, Effect, Group

COMMANDS = dict(all_commands())
GROUPS = dict(all_groups())
PRINT_NO_ROWS = {"exporter", "top"}
"""Reading commands that print no rows: one serves, and one draws a screen."""


def options_of(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def test_commands_say_what_they_do_to_the_cluster() -> None:
    for name, command in COMMANDS.items():
        assert isinstance(command, Command), (
            f"{name}: use @click.group(cls=Group), or @click.command(cls=Command)"
        )
        assert command.effect is not None, (
            f"{name}: mark it with reads, streams, changes, sends or local of call.py"
        )
        assert command.effect.value in command.get_help(click.Context(command)), name


def test_commands_that_change_the_cluster_can_say_what_they_would_change() -> None:
    for name, command in COMMANDS.items():
        assert isinstance(command, Command)
        assert (command.effect is Effect.CHANGES) == ("--dry-run" in options_of(command)), name


def test_commands_that_read_or_change_have_a_form_for_programs() -> None:
    for name, command in COMMANDS.items():
        assert isinstance(command, Command)
        if name.startswith("check "):
            assert "--format" in options_of(command), name
        elif command.effect in (Effect.READS, Effect.CHANGES) and name not in PRINT_NO_ROWS:
            assert {"--json", "--format", "--columns"} <= options_of(command), name


def test_first_line_of_each_help_is_a_sentence() -> None:
    for name, command in COMMANDS.items():
        first = (command.help or "").split("\n\n")[0]
        assert first[0].isupper(), name
        assert " ".join(first.split()).endswith((".", "...")), name


@pytest.mark.parametrize("name", GROUPS)
def test_group_ends_with_the_commands_used_most(name: str) -> None:
    group = GROUPS[name]
    assert isinstance(group, Group), "use @click.group(cls=Group, most_used=(...))"
    context = click.Context(group, info_name="x")
    assert len(group.most_used) == 3 or len(group.list_commands(context)) <= 3
    for line in group.most_used:
        assert group.get_command(context, line.split()[0]) is not None, line
        assert f"x {line}" in " ".join(group.get_help(context).split())


def test_groups_make_marked_commands() -> None:
    assert Group.command_class is Command
