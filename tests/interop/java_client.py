"""Apache's Java client as a child process that does what it is told, a JSON line each way.

The sources under `java/` are compiled against the jars of the wanted version and kept beside them,
by their hash. `java/Client.java` says what the lines look like; each op is a method call here:
`client.call("send", topic="orders", body="one")`.
"""

import hashlib
import json
import select
import shutil
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Self

import attrs
import trio

from tests.interop.apache import JVM_OPTIONS, SerializeType
from tests.interop.jars import apache_jars, cache_folder
from tests.interop.processes import die_with_parent

SOURCES = Path(__file__).parent / "java"
CALL_TIMEOUT = 60.0
"""Seconds; the longest single call is a blocking pull of 20 s."""
_MEMORY = ("-Xms32m", "-Xmx256m")
_LOGBACK = '<configuration><root level="OFF"/></configuration>\n'


class JavaError(Exception):
    """What the Java client threw."""


def compiled_client(version: str) -> Path:
    """The folder with the classes of `java/` for one version, compiled at first use."""
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    classes = cache_folder() / f"client-{version}-{digest.hexdigest()[:16]}"
    if classes.exists():
        return classes
    jars = apache_jars(version)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".client-") as work:
        output = Path(work) / "classes"
        subprocess.run(
            ["javac", "-nowarn", "-d", output, "-cp", f"{jars}/*", *sources],
            check=True,
            stderr=subprocess.PIPE,
        )
        (output / "logback.xml").write_text(_LOGBACK)
        if not classes.exists():  # Another run may have been quicker.
            shutil.move(output, classes)
    return classes


@attrs.define
class JavaClient:
    """One client process of one version; `with` starts it and ends it."""

    version: str
    name_server: str
    home: Path
    serialize_type: SerializeType = "JSON"
    jvm_options: tuple[str, ...] = ()
    _process: "subprocess.Popen[str] | None" = None

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "client.log").open("ab") as log:
            self._process = subprocess.Popen(
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
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
                cwd=self.home,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        assert process is not None
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def call(self, op: str, **request: Any) -> Any:
        """Do one thing and return its result; `JavaError` when the Java side threw."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(json.dumps({"op": op, **request}) + "\n")
        process.stdin.flush()
        answer = json.loads(self._line(op))
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

    def _line(self, op: str) -> str:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        # One line an answer, so a readable pipe holds the whole of it or soon will.
        ready, _, _ = select.select([process.stdout], [], [], CALL_TIMEOUT)
        line = process.stdout.readline() if ready else ""
        if not line:
            log = (self.home / "client.log").read_text(errors="replace")[-3000:]
            raise JavaError(f"{op}: no answer within {CALL_TIMEOUT:.0f} s:\n{log}")
        return line
