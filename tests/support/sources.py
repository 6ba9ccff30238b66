"""The Python files of the repository: each is read and parsed once, for all rules about its source."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).parents[2]
_TEXT_OR_COMMENT: Final = re.compile(r"""(\"{3}|'{3}|"|')(?:\\.|.)*?\1|(#[^\n]*)""", re.DOTALL)
"""Texts are matched so that no comment begins in one."""


@attrs.frozen
class Source:
    """The parts of one file that rules look at."""

    docstring: str | None
    imports: list[tuple[int, str]] = attrs.Factory(list)
    """Lines, and the full names of what is imported; a relative one begins with a dot."""
    classes: list[str] = attrs.Factory(list)
    """Those that are no part of anything else."""
    functions: list[str] = attrs.Factory(list)
    """The functions and methods."""
    prose: list[tuple[int, str]] = attrs.Factory(list)
    """Each line of a docstring, a text or a comment, with its number."""


def parsed(text: str) -> Source:
    tree = ast.parse(text)
    found = Source(ast.get_docstring(tree))
    found.classes.extend(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    for node in ast.walk(tree):
        match node:
            # A single word is a value, on the wire perhaps.
            case ast.Constant(value=str(words)) if " " in words:
                found.prose.extend(enumerate(words.splitlines(), node.lineno))
            case ast.Import():
                found.imports.extend((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom():
                module = "." * node.level + (node.module or "")
                found.imports.extend((node.lineno, f"{module}.{each.name}") for each in node.names)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.functions.append(node.name)
    for match in _TEXT_OR_COMMENT.finditer(text):
        if match[2]:
            found.prose.append((text.count("\n", 0, match.start()) + 1, match[2]))
    return found


@cache
def source_of(path: Path) -> Source:
    return parsed(path.read_text())


@cache
def source_files(folder: Path) -> list[Path]:
    """Return the Python files in a folder, or the one file."""
    if folder.is_file():
        return [folder]
    return sorted(path for path in folder.rglob("*.py") if ".venv" not in path.parts)
