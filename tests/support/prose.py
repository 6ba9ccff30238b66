"""The prose in a Python file: docstrings, texts and comments."""

import ast
import io
import tokenize
from collections.abc import Iterator


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield each line of a docstring, a text or a comment, with its number."""
    for node in ast.walk(ast.parse(source)):
        # A single word is a value, on the wire perhaps.
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from enumerate(node.value.splitlines(), node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
