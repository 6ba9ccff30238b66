"""All commands of `rocketrio`, for tests of what they have in common."""

from collections.abc import Iterator

import click

from rocketrio.cli import main


def all_commands(
    group: click.Group = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Yield the words of each command, as `topic list`, and the command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def all_groups(
    group: click.Group = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Group]]:
    """Yield the words of each group of commands, none for `rocketrio` itself, and the group."""
    yield " ".join(path), group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from all_groups(command, (*path, name))
