"""The pages of the commands, made from click's tree: what `--help` prints, with a link for each option."""

import inspect
import re
from collections.abc import Iterator
from typing import Final

import click
from markup import block, indented, inline, title, tree

import rocketrio.cli
import rocketrio_broker.cli
from rocketrio.cli.commands import Command, SectionOption

_UNDERLINES: Final = "=-~^"

Record = tuple[str, str]
"""The names of an option, and its meaning."""


def command_pages() -> dict[str, str]:
    """Return a page for each command of `rocketrio`, one for the options that they share, and one for the broker's."""
    main = rocketrio.cli.main
    top = click.Context(main, info_name="rocketrio")
    shared: dict[str, dict[Record, None]] = {"Cluster": {}, "Output": {}}
    pages, rows = {}, []
    for name in main.list_commands(top):
        command = main.get_command(top, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=top)
        pages[f"commands/{name}"] = "".join(_command(context, _UNDERLINES, shared))
        line = command.get_short_help_str(1000)
        rows.append(f"- :doc:`{name} <commands/{name}>`: {inline(line)}\n")
    parts = [title("rocketrio"), _help(main), title("Commands", "-"), *rows, "\n"]
    for section, records in shared.items():
        parts += [f".. _options-{section.lower()}:\n\n", title(f"{section} options", "-")]
        parts += [".. program:: rocketrio\n\n", *(_option(*record) for record in records)]
    pages["commands"] = "".join(parts) + tree(list(pages))
    broker = click.Context(rocketrio_broker.cli.main, info_name="rocketrio-broker")
    pages["broker-commands"] = "".join(_command(broker, _UNDERLINES, shared))
    return pages


def _command(
    context: click.Context, underlines: str, shared: dict[str, dict[Record, None]]
) -> Iterator[str]:
    """Yield the text of a command and of those below it; put the options that many commands have into `shared`."""
    command = context.command
    yield title(context.command_path, underlines[0])
    usage = [context.command_path, *command.collect_usage_pieces(context)]
    yield block(" ".join(usage), "text")
    yield _help(command)
    if isinstance(command, Command) and command.effect is not None:
        yield f"*{command.effect.value}*\n\n"
    yield f".. program:: {context.command_path}\n\n"
    sections: set[str] = set()
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Argument) or record is None or "--help" in record[0]:
            continue
        if isinstance(parameter, SectionOption):
            sections.add(parameter.section)
            shared[parameter.section][record] = None
        else:
            yield _option(*record)
    if sections:
        names = [
            f":ref:`{name.lower()} options <options-{name.lower()}>`"
            for name in shared
            if name in sections
        ]
        yield f"Also the {' and the '.join(names)}.\n\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _command(
                click.Context(below, info_name=name, parent=context), underlines[1:], shared
            )


def _option(names: str, meaning: str) -> str:
    return f".. option:: {names}\n\n{indented(inline(meaning))}\n"


def _help(command: click.Command) -> str:
    r"""Return the help text, where the lines after `\b` stay as they are: a heading and examples, or a table."""
    parts = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        kept = part.removeprefix("\b\n")
        heading, _, rest = kept.partition("\n")
        if kept == part:
            parts.append(f"{inline(part)}\n\n")
        elif heading.endswith(":"):
            parts.append(f"{inline(heading)}\n\n{block(inspect.cleandoc(rest), 'text')}")
        else:
            parts.append(block(kept, "text"))
    return "".join(parts)
