"""The command line of benchmarks with parts: `[PART ...] [--small]`, all parts without a name."""

import argparse
import shutil
import sys
from collections.abc import Collection

import attrs


@attrs.frozen
class Chosen:
    """What is to be measured, and how long."""

    parts: frozenset[str]
    small: bool

    def __contains__(self, part: str) -> bool:
        return part in self.parts


def part_parser(description: str | None, parts: Collection[str]) -> argparse.ArgumentParser:
    """A parser of such a line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}: all")
    parser.add_argument("--small", action="store_true", help="few messages: a minute or two")
    return parser


def parsed(parser: argparse.ArgumentParser, parts: Collection[str]) -> argparse.Namespace:
    """What the line says; ends the program on `--help` and on parts that there are not."""
    given = parser.parse_args()
    if unknown := sorted(set(given.parts) - set(parts)):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(parts)}")
    return given


def chosen_parts(
    description: str | None, parts: Collection[str], *, with_java: Collection[str]
) -> Chosen:
    """The same; parts that need Java are left out where there is none, a line says so, and the exit code is 0."""
    given = parsed(part_parser(description, parts), parts)
    chosen = set(given.parts or parts)
    if shutil.which("java") is None and (left_out := sorted(chosen & set(with_java))):
        print(f"no java: {', '.join(left_out)} left out", file=sys.stderr)
        chosen -= set(left_out)
    return Chosen(frozenset(chosen), given.small)
