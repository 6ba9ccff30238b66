"""mypy and pyright, both strict, accept the documented code, know its types, and refuse misuse."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
DOCUMENTS = ("README.md", "docs/client.md", "docs/asyncio.md", "docs/transactions.md")
MISUSE = HERE / "typed" / "misuse.py"

pytestmark = pytest.mark.slow


def programs(document: str) -> list[str]:
    """The whole programs of a document; its fragments have no names to look up."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    return [block for block in blocks if "async def main" in block]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Everything that is checked, at once: starting a checker costs more than the rest."""
    folder = tmp_path_factory.mktemp("documented")
    found = [*(ROOT / "examples").glob("*.py"), *(HERE / "typed").glob("*.py")]
    for document in DOCUMENTS:
        codes = programs(document)
        assert codes, document
        for number, code in enumerate(codes):
            found.append(folder / f"{Path(document).stem.lower()}_{number}.py")
            found[-1].write_text(code)
    return found


def refused_by_mypy(files: list[Path], _: Path) -> dict[Path, dict[int, str]]:
    # With the settings of `make check`, and so with what it has kept: it has read our packages already.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    found: dict[Path, dict[int, str]] = {}
    for path, line, text in re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE):
        found.setdefault((ROOT / path).resolve(), {})[int(line)] = text
    return found


def refused_by_pyright(files: list[Path], folder: Path) -> dict[Path, dict[int, str]]:
    settings = {
        "include": [relative(file, folder) for file in files],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / room) for room in ("client", "protocol", "broker")],
    }
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--project", str(config),
               "--pythonpath", sys.executable, "--outputjson"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[Path, dict[int, str]] = {}
    for problem in json.loads(done.stdout)["generalDiagnostics"]:
        line = problem["range"]["start"]["line"] + 1
        found.setdefault(Path(problem["file"]).resolve(), {})[line] = problem["message"]
    return found


def relative(file: Path, folder: Path) -> str:
    """As pyright wants them; it leaves out absolute ones without a word."""
    return str(Path(*[".."] * len(folder.parts[1:]), *file.parts[1:]))


@pytest.mark.parametrize("checker", [refused_by_mypy, refused_by_pyright])
def test_documented_code_is_accepted_and_misuse_refused(
    checker: Callable[[list[Path], Path], dict[Path, dict[int, str]]],
    files: list[Path],
    tmp_path: Path,
) -> None:
    found = checker(files, tmp_path)
    misuse = found.pop(MISUSE, {})
    assert found == {}
    lines = MISUSE.read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if "# wrong" in line}
    assert {lines[n - 1]: why for n, why in misuse.items() if n not in marked} == {}
    assert [lines[number - 1] for number in sorted(marked - misuse.keys())] == []
