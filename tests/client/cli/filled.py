"""Commands whose arguments have words in braces, and the files that some of them read."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from click.testing import CliRunner, Result
from tests.client.cli.trees import all_commands

from rocketrio.cli import main

COMMANDS = dict(all_commands())


def options_of(name: str) -> set[str]:
    """Return the options that a command has."""
    return {option for parameter in COMMANDS[name].params for option in parameter.opts}


def run_filled(
    name: str,
    arguments: str,
    words: Mapping[str, str],
    *more: str,
    at: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> Result:
    """Run a command with its words filled in, with the options `at` if it asks a cluster."""
    asks = "--namesrv" in options_of(name) and not name.startswith("context ")
    filled = [word.format(**words) for word in arguments.split()]
    return CliRunner(env=env).invoke(main, [*name.split(), *filled, *more, *(at if asks else ())])


def cut_words(home: Path, folder: Path) -> dict[str, str]:
    """Make a data directory whose broker has cut off the first mebibyte of the log below `home`; return its words."""
    [log] = [one for one in home.rglob("00000000000000000000") if "commitlog" in one.parts]
    name = "00000000000000000000-1700000000000.log"
    (folder / "commitlog").mkdir(parents=True)
    (folder / "cut").mkdir()
    (folder / "cut" / name).write_bytes(log.read_bytes()[: 1 << 20])
    return {"data": str(folder), "cut": name}
