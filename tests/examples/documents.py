"""Run the code blocks of a document in their order, each with the names that the blocks before it made.

- `python` blocks run as they stand; one with `await` outside of a function runs under trio. Blocks that define tests
  are collected in a file, which pytest runs at the end.
- In a `console` block each line after `$ ` runs in bash and must succeed. Lines that follow are its output, where
  `...` stands for anything. Blocks of other types, `sh` among them, are not run.
- `<!-- skip: next -->` before a block omits it.
- `<!-- code: python` begins a block that readers do not see. `stop_when_printed(text)` in it ends the next block, one
  that would run forever, when it prints this text: by a cancel under trio, otherwise by a signal.
"""

import ast
import doctest
import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final
from unittest import SkipTest

import trio
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, SkipParser

ROOT: Final = Path(__file__).parents[2]
BLOCK_TIME_LIMIT: Final = 120
"""Seconds for one block. A block that starts a Spark query takes up to ten on a quiet machine."""
OUTPUT_FLAGS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Document:
    """A document under `ROOT`; each text in `replaced`, an address or a path, is replaced by the one of this test."""

    def __init__(self, name: str, folder: Path, replaced: Mapping[str, str]) -> None:
        self.printed: list[str] = []
        self._folder = folder
        self._replaced = replaced
        self._tests: list[str] = []
        self._awaited_text: str | None = None
        self._stop_signal = signal.SIGINT
        self._scope: trio.CancelScope | None = None
        parsers = (
            CodeBlockParser("python", self._run_python),
            CodeBlockParser("console", self._run_console),
            SkipParser(),
        )
        self._document = Sybil(parsers).parse(ROOT / name)
        self.names: dict[str, Any] = self._document.namespace
        self.names.update(
            __name__="__main__", print=self._print, stop_when_printed=self._stop_when_printed
        )

    def run(self, *, only: Callable[[str], bool] = lambda source: True) -> dict[str, Any]:
        """Run the blocks whose source is wanted, then the collected tests; return the names that they made."""
        for example in self._document:
            if isinstance(example.parsed, str) and not only(example.parsed):
                continue
            with _time_limit(f"{example.path}:{example.line}"), suppress(SkipTest):
                example.evaluate()
        if self._tests:
            self._run_tests()
        return self.names

    def _run_python(self, example: Example) -> None:
        source = self._source(example)
        if "def test_" in source or "@pytest.fixture" in source:
            self._tests.append(source)
            return
        code = compile(
            "\n" * example.line + source,
            example.path,
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        stops = self._awaited_text is not None
        if code.co_flags & inspect.CO_COROUTINE:
            trio.run(self._run_async, code)
        else:
            with suppress(KeyboardInterrupt) if stops else _nothing():
                exec(code, self.names)
        if stops and "stop_when_printed" not in source:
            assert self._awaited_text is None, f"never printed: {self._awaited_text}"

    async def _run_async(self, code: CodeType) -> None:
        with trio.CancelScope() as self._scope:
            await eval(code, self.names)
        self._scope = None

    def _run_console(self, example: Example) -> None:
        for command, expected in _commands(self._source(example)):
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=self._folder,
                env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                check=False,
            )
            place = f"{example.path}:{example.line}: {command}\n"
            assert done.returncode == 0, place + done.stdout + done.stderr
            if expected:
                same = doctest.OutputChecker().check_output(expected, done.stdout, OUTPUT_FLAGS)
                assert same, f"{place}expected:\n{expected}got:\n{done.stdout}"

    def _run_tests(self) -> None:
        file = self._folder / "test_document.py"
        file.write_text("\n\n".join(self._tests))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                   "-p", "pytest_rocketrio", "-o", "trio_mode=true",
                   "--rootdir", str(self._folder), str(file)]  # fmt: skip
        done = subprocess.run(
            command, cwd=self._folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _source(self, example: Example) -> str:
        source = str(example.parsed)
        for text, here in self._replaced.items():
            source = source.replace(text, here)
        return source

    def _print(self, *values: object, **_: object) -> None:
        line = " ".join(map(str, values))
        self.printed.append(line)
        if self._awaited_text is None or self._awaited_text not in line:
            return
        self._awaited_text = None
        if self._scope is not None:
            self._scope.cancel()
        else:
            signal.raise_signal(self._stop_signal)

    def _stop_when_printed(self, text: str, by: signal.Signals = signal.SIGINT) -> None:
        self._awaited_text, self._stop_signal = text, by


def _commands(block: str) -> Iterator[tuple[str, str]]:
    """Split a console block into commands and the output that is expected of each."""
    for part in ("\n" + block).split("\n$ ")[1:]:
        command, _, expected = part.partition("\n")
        while command.endswith("\\"):
            line, _, expected = expected.partition("\n")
            command += "\n" + line
        yield command, expected


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _time_limit(place: str) -> Iterator[None]:
    def too_long(signal_number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"{place}: not done after {BLOCK_TIME_LIMIT} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(BLOCK_TIME_LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
