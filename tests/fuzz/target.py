r"""What a target of the fuzzer is, and where its inputs lie.

corpora/json.txt    one input a line, bytes that are no printable ASCII escaped: TopicConfig\n{"topicName":"\xff"}
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from trio.testing import MockClock

from rocketrio_protocol.errors import Error

CORPORA: Final = Path(__file__).parent / "corpora"
SEED_LIMIT: Final = 16 << 10
"""Bytes of an input that others are made from."""


@attrs.frozen
class Target:
    """One thing that takes bytes."""

    name: str
    take: Callable[[bytes], None]
    """Raises what a user would see as a defect; an `Error` is documented, and none."""
    words: tuple[bytes, ...] = ()
    """The dictionary: what the format is made of."""
    seeds: Callable[[], Sequence[bytes]] = tuple
    """Good inputs."""
    size_limit: int = 1 << 20
    """The most bytes of an input, where the product hands over no more than that."""
    is_framed: bool = False
    """Whether changed inputs mostly get the lengths of a frame again, to pass the framing."""
    is_named: bool = False
    """Whether an input's first line is a name: what takes the rest of it."""
    is_program: bool = False
    """Whether one input is a life of a broker, name server or client, and costs a hundred times that of a parser."""

    def kept(self) -> list[bytes]:
        """Return the inputs that the repository keeps: what fuzzing has reached, and what once broke something."""
        file = self._kept_file
        return [_read(line) for line in file.read_text().splitlines()] if file.exists() else []

    def keep(self, inputs: Iterable[bytes]) -> None:
        """Keep these inputs, and no others."""
        CORPORA.mkdir(exist_ok=True)
        ordered = sorted(set(inputs), key=lambda data: (len(data), data))
        self._kept_file.write_text("".join(f"{_written(data)}\n" for data in ordered))

    @property
    def _kept_file(self) -> Path:
        return CORPORA / f"{self.name}.txt"

    def corpus(self) -> list[bytes]:
        """Return all inputs to begin with."""
        return [*self.kept(), *(seed for seed in self.seeds() if len(seed) <= SEED_LIMIT)]


def _written(data: bytes) -> str:
    return data.decode("latin-1").encode("unicode_escape").decode("ascii")


def _read(line: str) -> bytes:
    return line.encode("ascii").decode("unicode_escape").encode("latin-1")


def named(name: str, rest: bytes) -> bytes:
    """Return the input of a target whose inputs are named."""
    return name.encode() + b"\n" + rest


def split_name(data: bytes) -> tuple[str, bytes]:
    """Return the name of such an input, and the rest of it."""
    name, _, rest = data.partition(b"\n")
    return name.decode(errors="replace"), rest


def judged(target: Target, data: bytes) -> None:
    """Feed one input, and pass over what is documented."""
    with suppress(Error):
        target.take(data)


class DefectError(AssertionError):
    """A server or a client told of a defect of its own."""


class _Defects(logging.Handler):
    """Keeps what programs log of their own defects."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(record)


@contextmanager
def _without_defects() -> Iterator[None]:
    """Raise DefectError for what the block logs with a traceback."""
    defects = _Defects()
    root = logging.getLogger()
    root.addHandler(defects)
    try:
        yield
    finally:
        root.removeHandler(defects)
    for record in defects.found:
        assert record.exc_info is not None
        raise DefectError(record.getMessage()) from record.exc_info[1]


def live(life: Callable[..., Any], *arguments: Any) -> None:
    """Run a life of programs in virtual time; any exception that ends it, an `Error` too, is a defect."""
    with _without_defects():
        try:
            trio.run(life, *arguments, clock=MockClock(autojump_threshold=0))
        except Error as error:
            raise DefectError(f"The program ended: {error!r}") from error
