"""Our Java programs that drive a peer: they take an order from each line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import attrs
from tests.interop import java_sources
from tests.support.processes import LineProcess

SOURCES = Path(__file__).parent.parent / "java"
ROCKETMQ_SOURCES = (
    SOURCES / "RocketMQPeer.java",
    Path(java_sources.__file__).parent / "java" / "Signing.java",
)

SERVER_OPTIONS = tuple(
    f"--add-{what}=java.base/{package}=ALL-UNNAMED"
    for what in ("exports", "opens")
    for package in ("jdk.internal.ref", "jdk.internal.misc", "sun.nio.ch", "java.nio")
)
"""What RocketMQ needs on Java 17. The compiler and the collector are the JVM's own choice, as users have them."""

JOB_LIMIT = 600.0
"""Seconds one job may take; a round is done within some seconds where nothing else runs."""


class JobFailedError(Exception):
    """What the Java side said went wrong."""


@attrs.define
class JavaWorker:
    """One Java process that does one job after the other; `with` ends it."""

    main_class: str
    class_path: str
    arguments: Sequence[str]
    home: Path
    options: Sequence[str] = ()
    _process: LineProcess | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        options = [*self.options, f"-Duser.home={self.home}", "-cp", self.class_path]
        self._process = LineProcess.start(
            ["java", *options, self.main_class, *self.arguments], log=self.home / "worker.log"
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()

    def seconds(self, *words: object) -> float:
        """Do one job; the seconds it took. Raises JobFailedError."""
        assert self._process is not None
        answer = self._process.ask(" ".join(map(str, words)), JOB_LIMIT)
        kind, _, text = answer.partition(" ")
        if kind != "ok":
            said = text or f"ended, or took over {JOB_LIMIT:g} s"
            raise JobFailedError(f"{words}: {said}\n{self._process.tail()}")
        return float(text)
