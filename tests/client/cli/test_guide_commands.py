"""The commands in guides that are not run: each command and option that they name exists."""

import re
import shlex
from pathlib import Path

import click
import pytest

from rocketrio.cli import main

ROOT = Path(__file__).parents[3]
GUIDES = ("on-call.md", "doctor.md", "monitoring.md", "operations.md", "outgrowing.md")


def lines_of(guide: str) -> list[str]:
    text = (ROOT / "docs" / guide).read_text()
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = (line.removeprefix("$ ") for block in blocks for line in block.splitlines())
    return [line for line in lines if line.startswith("rocketrio ")]


@pytest.mark.parametrize(
    ("guide", "line"), [(guide, line) for guide in GUIDES for line in lines_of(guide)]
)
def test_command_of_a_guide_exists_with_its_options(guide: str, line: str) -> None:
    command: click.Command = main
    words = shlex.split(line, comments=True)[1:]
    context = click.Context(command)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"{guide}: {line}"
        command, context = found, click.Context(found, parent=context, info_name=words.pop(0))
    for end in ("|", ">", "&&"):
        words = words[: words.index(end)] if end in words else words
    command.make_parser(context).parse_args(list(words))
