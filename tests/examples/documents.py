"""Run the code blocks of a document in their order, each with the names that the blocks before it made.

- `python` blocks run as they stand; one with `await` outside of a function runs under trio. Blocks that define tests
  are collected in a file, which pytest runs at the end.
- In a `console` block each line after `$ ` runs in bash and must succeed. Lines that follow are its output, where
  `...` stands for anything. Blocks of other types, `sh` among them, are not run.
- `<!-- skip: next -->` before a block omits it.
- `<!-- code: python` begins a block that readers do not see. `stop_when_printed(text)` in it ends the next block, one
  that would run forever, when it prints this text: by a cancel under trio, otherwise by a signal.

A `Tutorial` is a document that its reader types from top to bottom:

- Each `python` block is a program of its own, and each line of an `sh` block runs in bash and must succeed.
- `stop_when_printed(text)` is for the last line of the next `sh` block: it runs in a terminal, and is interrupted once
  it has printed this text. After `keep_running_when_printed(text)` that line runs until the document ends.
"""

import ast
import doctest
import inspect
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Self
from unittest import SkipTest

import trio
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, SkipParser
from tests.support.processes import Process, die_with_parent

ROOT: Final = Path(__file__).parents[2]
SHELL: Final = ("bash", "-o", "pipefail", "-c")
BLOCK_TIME_LIMIT: Final = 400
"""Seconds for one block. A program that starts Spark takes up to 30 on a quiet machine."""
READ_SIZE: Final = 65536
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
        self._document = Sybil(self._parsers()).parse(ROOT / name)
        self.names: dict[str, Any] = self._document.namespace
        self.names.update(
            __name__="__main__", print=self._print, stop_when_printed=self._stop_when_printed
        )

    def _parsers(self) -> tuple[Callable[[Any], Any], ...]:
        return (
            CodeBlockParser("python", self._run_python),
            CodeBlockParser("console", self._run_console),
            SkipParser(),
        )

    def run(self, *, only: Callable[[str], bool] = lambda source: True) -> dict[str, Any]:
        """Run the blocks whose source is wanted, then the collected tests; return the names that they made."""
        for example in self._document:
            if isinstance(example.parsed, str) and not only(example.parsed):
                continue
            with _time_limit(_place(example)), suppress(SkipTest):
                example.evaluate()
        if self._tests:
            self._run_tests()
        return self.names

    def _run_python(self, example: Example) -> None:
        source = self._source(example)
        if _is_of_tests(source):
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
            said = self.shell(command, example)
            if expected:
                same = doctest.OutputChecker().check_output(expected, said, OUTPUT_FLAGS)
                assert same, f"{_place(example)}: {command}\nexpected:\n{expected}got:\n{said}"

    def shell(self, command: str, example: Example | None = None) -> str:
        """Run a line of a shell that finds the installed commands, and return what it printed."""
        done = subprocess.run(
            [*SHELL, command],
            cwd=self._folder,
            env=_with_our_commands(),
            capture_output=True,
            text=True,
            check=False,
        )
        said = f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, f"{_place(example)}: {said}"
        return done.stdout

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


class Tutorial(Document):
    """A document that a reader types from top to bottom; what it keeps running ends with the `with` block."""

    def __init__(self, name: str, folder: Path, replaced: Mapping[str, str]) -> None:
        super().__init__(name, folder, replaced)
        self._kept = ExitStack()
        self._stays = False
        self.names["keep_running_when_printed"] = self._keep_running_when_printed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def _parsers(self) -> tuple[Callable[[Any], Any], ...]:
        return (*super()._parsers(), CodeBlockParser("sh", self._run_sh))

    def _run_python(self, example: Example) -> None:
        source = self._source(example)
        is_hidden = example.document.text.startswith("<!--", example.region.start)
        if is_hidden or _is_of_tests(source):
            super()._run_python(example)
            return
        program = self._folder / "program.py"
        program.write_text(source)
        self.printed += self.shell(f"python {program.name}", example).splitlines()

    def _run_sh(self, example: Example) -> None:
        *lines, last = self._source(example).replace("\\\n", " ").splitlines()
        for line in lines:
            self.shell(line, example)
        if (text := self._awaited_text) is None:
            self.shell(last, example)
            return
        self._awaited_text = None
        if self._stays:
            self._stays = False
            self._keep(last, text)
        else:
            self._interrupt(last, text)

    def _keep(self, command: str, text: str) -> None:
        process = Process.start(
            command,
            [*SHELL, command],
            log=self._folder / "kept.log",
            cwd=self._folder,
            env=_with_our_commands(),
        )
        self._kept.callback(process.stop)
        process.wait_until(lambda: process.has_said(text), f"printed {text!r}")

    def _interrupt(self, command: str, text: str) -> None:
        ours, terminal = pty.openpty()
        with subprocess.Popen(
            [*SHELL, command],
            cwd=self._folder,
            env=_with_our_commands(),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=die_with_parent,
        ) as process:
            os.close(terminal)
            said = b""
            try:
                with open(ours, "rb", buffering=0) as screen, suppress(OSError):  # when it ends
                    while text.encode() not in said:
                        said += screen.read(READ_SIZE)
                    os.killpg(process.pid, signal.SIGINT)
                    while screen.read(READ_SIZE):
                        pass
            finally:
                process.kill()
        assert text.encode() in said, f"{command}: {text!r} was never printed:\n{said.decode()}"

    def _keep_running_when_printed(self, text: str) -> None:
        self._awaited_text, self._stays = text, True


def _is_of_tests(source: str) -> bool:
    return "def test_" in source or "@pytest.fixture" in source


def _place(example: Example | None) -> str:
    return "the test" if example is None else f"{example.path}:{example.line}"


def _with_our_commands() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


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
