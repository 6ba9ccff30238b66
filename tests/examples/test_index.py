"""The index of the examples lists each of them, and runs them as their own first lines say."""

import ast
import re
from pathlib import Path

from tests.examples.programs import EXAMPLES

ROW = re.compile(r"^\| [^|]+ \| `([^`|]+)` \| \[([^]]+)\]\(([^)]+)\): [^|]+ \|$", re.MULTILINE)
INDEX = (EXAMPLES / "README.md").read_text()


def test_index_lists_each_example_once_and_nothing_else() -> None:
    examples = {path.name for path in EXAMPLES.glob("*.py")}
    examples |= {path.name for path in EXAMPLES.glob("*.ipynb")}
    examples |= {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.glob("*/__main__.py")}
    listed = [link for _, _, link in ROW.findall(INDEX)]
    assert sorted(listed) == sorted(examples)


def test_commands_of_the_index_are_those_of_the_programs() -> None:
    for command, name, link in ROW.findall(INDEX):
        assert name.rstrip("/") == link.removesuffix("/__main__.py")
        if link.endswith(".ipynb") or name == "demo/":
            continue
        docstring = ast.get_docstring(ast.parse(Path(EXAMPLES / link).read_text())) or ""
        assert command in docstring, f"{link}: {command}"
