"""The classes of click that the commands `rocketrio` and `rocketrio-broker` share.

A misspelt command is answered with those that it may mean, and `help WORDS` is `WORDS --help`. The help texts are
docstrings, and are shown when Python omits docstrings too.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import click


def help_text(function: Callable[..., Any] | None) -> str | None:
    """Return the docstring of a command's function, from its source where Python omits docstrings (-OO)."""
    if function is None or function.__doc__:
        return function and function.__doc__
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except OSError:  # Only the compiled file is there.
        return None
    # `ast.parse` omits docstrings as well from Python 3.14 on, unless the code is not to be optimized.
    tree = compile(textwrap.dedent(source), "", "exec", flags=ast.PyCF_ONLY_AST, optimize=0)
    assert isinstance(tree, ast.Module)
    (definition,) = tree.body
    if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.get_docstring(definition)
    return None


class DocumentedCommand(click.Command):
    """A command whose help text is the docstring of its function."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = self.help or help_text(self.callback)


class DocumentedGroup(click.Group):
    """A group of such commands."""

    command_class = DocumentedCommand

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = self.help or help_text(self.callback)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Understand `help WORDS` as `WORDS --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; suggest others if there is none."""
        name = args[0]
        is_known = name.startswith("-") or self.get_command(ctx, name) is not None
        if not is_known and not ctx.resilient_parsing:
            close = get_close_matches(name.lower(), self.list_commands(ctx))
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)
