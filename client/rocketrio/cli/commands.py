"""The classes of all commands and groups: each command says in its help whether it changes the cluster.

`reads`, `changes` and `sends` of `call.py` mark a command; tests and protected contexts read the mark.
"""

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias, TypeVar

import click

from rocketrio_protocol import command_line

CallableT = TypeVar("CallableT", bound=Callable[..., Any])
_MARK: Final = "rocketrio_effect"
GIVEN_BEFORE: Final = "rocketrio.given_before"
"""The key in a context's `meta` of those options that stood before the command, as they were written."""
_OTHER_WORDS: Final = {
    "--limit": "--count",
    "--max": "--count",
    "--max-messages": "--count",
    "--num": "--count",
    "--number": "--count",
    "--bootstrap-server": "--namesrv",
    "--name-server": "--namesrv",
    "--nameserver": "--namesrv",
    "--server": "--namesrv",
    "-n": "--namesrv",
    "--consumer-group": "--group",
    "-g": "--group",
    "--offset": "--from",
    "-o": "--from",
    "--partition": "--queue",
    "-p": "--queue",
}
"""What other programs call rocketrio's options; an error names the one that the command has."""
Kind: TypeAlias = Literal["topics", "groups", "brokers", "addresses"]
"""What a name can be the name of."""


class Effect(Enum):
    """What a command does to the cluster; the value is the line in its help."""

    READS = "Reads only."
    CHANGES = "Changes the cluster."
    SENDS = "Stores messages or commits offsets, as programs do."
    LOCAL = "Changes nothing in the cluster, only files of your own."


def mark(function: CallableT, effect: Effect) -> CallableT:
    """Say what the command of this function does; decorators that use functools.wraps keep the mark."""
    setattr(function, _MARK, effect)
    return function


def with_our_word(error: click.NoSuchOption, options: Collection[str]) -> click.NoSuchOption:
    """Return the error with the name that rocketrio has for the option, if that is one of `options`."""
    ours = _OTHER_WORDS.get(error.option_name)
    if ours not in options:
        return error
    text = f"{error.message} Did you mean {ours!r}?"
    return click.NoSuchOption(error.option_name, text, ctx=error.ctx)


class Command(command_line.DocumentedCommand):
    """A command that shows its effect and its options by kind in `--help`."""

    @property
    def effect(self) -> Effect | None:
        """What the command does to the cluster; None if its function has no mark."""
        return getattr(self.callback, _MARK, None)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Understand also the options that stood before the command; let errors name what may be meant."""
        args = [*ctx.meta.get(GIVEN_BEFORE, ()), *args]
        given = list(args)  # click's parser empties the list.
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise with_our_word(error, self._options()) from None
        except click.UsageError as error:
            flag = self._flag_with_number(given)
            if flag is None or type(error) is not click.UsageError:
                raise
            text = f"{error.message}; {flag} takes no number, give --count too"
            raise click.UsageError(text, error.ctx) from error

    def _options(self) -> dict[str, click.Option]:
        return {
            name: parameter
            for parameter in self.params
            if isinstance(parameter, click.Option)
            for name in parameter.opts
        }

    def _flag_with_number(self, args: list[str]) -> str | None:
        """Return the flag that a number follows, in a command that has --count."""
        options = self._options()
        flags = {name for name, option in options.items() if option.is_flag}
        found = (name for name, value in pairwise(args) if name in flags and value.isdecimal())
        return next(found, None) if "--count" in options else None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help text, and what the command does to the cluster."""
        super().format_help_text(ctx, formatter)
        if self.effect is not None:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(self.effect.value)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the command itself first, then those that many commands have."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Output": [], "Cluster": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                section = parameter.section if isinstance(parameter, SectionOption) else "Options"
                sections[section].append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


class SectionOption(click.Option):
    """An option that many commands have, in a section of its own."""

    def __init__(self, *args: Any, section: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.section = section


class Group(command_line.DocumentedGroup):
    """A group of such commands."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, most_used: Sequence[str] = (), **options: Any) -> None:
        """Take the names of those commands that the help ends with."""
        super().__init__(*args, **options)
        self.most_used = most_used

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands that are used most."""
        super().format_epilog(ctx, formatter)
        if self.most_used:
            with formatter.section("Used most"):
                for line in self.most_used:
                    formatter.write_text(f"{ctx.command_path} {line}")
