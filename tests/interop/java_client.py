"""Apache's Java client as a child process that does what it is told, a JSON line each way.

The sources under `java/` are compiled against the jars of the wanted version. `java/Client.java` says
what the lines look like; each op is a method call here: `client.call("send", topic="orders", body="one")`.
"""

import json
import time
from functools import partial
from pathlib import Path
from typing import Any, Self

import attrs
import trio

from tests.interop.apache import JVM_OPTIONS, SerializeType
from tests.interop.jars import apache_jars
from tests.interop.java_sources import compiled
from tests.interop.processes import LineProcess

SOURCES = Path(__file__).parent / "java"
CALL_TIMEOUT = 60.0
"""Seconds; the longest single call is a blocking pull of 20 s."""
_MEMORY = ("-Xms32m", "-Xmx256m")


class JavaError(Exception):
    """What the Java client threw."""


def compiled_client(version: str) -> Path:
    """The folder with the classes of `java/` for one version, compiled at first use."""
    jars = apache_jars(version)
    return compiled(f"client-{version}", sorted(SOURCES.glob("*.java")), f"{jars}/*")


@attrs.define
class JavaClient:
    """One client process of one version; `with` starts it and ends it."""

    version: str
    name_server: str
    home: Path
    serialize_type: SerializeType = "JSON"
    jvm_options: tuple[str, ...] = ()
    _process: LineProcess | None = None

    def __enter__(self) -> Self:
        self._process = LineProcess.start(
            [
                "java",
                *JVM_OPTIONS,
                *_MEMORY,
                *self.jvm_options,
                f"-Duser.home={self.home}",
                f"-Drocketmq.serialize.type={self.serialize_type}",
                "-Dcom.rocketmq.sendMessageWithVIPChannel=false",
                "-cp",
                f"{compiled_client(self.version)}:{apache_jars(self.version)}/*",
                "Client",
                self.name_server,
            ],
            log=self.home / "client.log",
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()

    def call(self, op: str, **request: Any) -> Any:
        """Do one thing and return its result; `JavaError` when the Java side threw."""
        process = self._process
        assert process is not None
        line = process.ask(json.dumps({"op": op, **request}), CALL_TIMEOUT)
        if not line:
            raise JavaError(f"{op}: no answer within {CALL_TIMEOUT:.0f} s:\n{process.tail()}")
        answer = json.loads(line)
        if "error" in answer:
            raise JavaError(f"{op} {request}: {answer['error']}")
        return answer.get("result")

    async def acall(self, op: str, **request: Any) -> Any:
        """`call` in a worker thread, so that a client of ours goes on meanwhile."""
        return await trio.to_thread.run_sync(partial(self.call, op, **request))

    def until(self, op: str, timeout: float = 30.0, **request: Any) -> Any:
        """Repeat a call until it does not throw: routes spread only with the next registration."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.call(op, **request)
            except JavaError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)
