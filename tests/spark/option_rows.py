"""The rows of the tables in docs/spark.md and its neighbours, made from the declarations of the options."""

import ast
import inspect
from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise

from rocketrio.spark.options import Option


def option_rows(options: Mapping[str, Option], use: str) -> dict[str, str]:
    """Return the row of each option by its name; `use` is `reading`, `streaming` or `writing`."""
    help_of = _helps("rocketrio.spark.access") | _helps(f"rocketrio.spark.{use}.options")
    return {
        name: f"| `{name}` | {one.default} | {help_of[name]} |" for name, one in options.items()
    }


def _helps(module: str) -> dict[str, str]:
    """Return the text below each field that declares an option, by the option's name."""
    found = {}
    for cls in ast.parse(inspect.getsource(import_module(module))).body:
        for field, below in pairwise(cls.body if isinstance(cls, ast.ClassDef) else ()):
            match field, below:
                case (
                    ast.AnnAssign(value=ast.Call(args=[ast.Constant(value=str(name)), *_])),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = " ".join(text.split())
    return found
