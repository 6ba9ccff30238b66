"""Java programs of ours that drive a peer: compiled once, kept by their hash, told what to do line by line."""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import attrs
from tests.interop.jars import cache_folder
from tests.interop.processes import die_with_parent

SOURCES = Path(__file__).parent.parent / "java"
_LOGBACK = '<configuration><root level="OFF"/></configuration>\n'

SERVER_OPTIONS = tuple(
    f"--add-{what}=java.base/{package}=ALL-UNNAMED"
    for what in ("exports", "opens")
    for package in ("jdk.internal.ref", "jdk.internal.misc", "sun.nio.ch", "java.nio")
)
"""What RocketMQ needs on Java 17. The compiler and the collector are the JVM's own choice, as users have them."""


class JobFailed(Exception):
    """What the Java side said went wrong."""


def compiled(name: str, sources: Sequence[str], class_path: str) -> Path:
    """The folder with the classes of these files of `java/`, compiled at first use."""
    texts = [(SOURCES / source).read_bytes() for source in sources]
    digest = hashlib.sha256(b"\0".join([class_path.encode(), *texts])).hexdigest()[:16]
    classes = cache_folder() / f"{name}-{digest}"
    if classes.exists():
        return classes
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f".{name}-") as work:
        output = Path(work) / "classes"
        paths = [SOURCES / source for source in sources]
        command: list[str | Path] = ["javac", "-nowarn", "-d", output, "-cp", class_path, *paths]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise JobFailed(f"javac: {done.stderr}")
        (output / "logback.xml").write_text(_LOGBACK)
        if not classes.exists():  # Another run may have been quicker.
            shutil.move(output, classes)
    return classes


@attrs.define
class JavaWorker:
    """One Java process that does one job after the other; `with` ends it."""

    main_class: str
    class_path: str
    arguments: Sequence[str]
    home: Path
    options: Sequence[str] = ()
    _process: "subprocess.Popen[str] | None" = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        options = [*self.options, f"-Duser.home={self.home}", "-cp", self.class_path]
        with (self.home / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *options, self.main_class, *self.arguments],
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

    def seconds(self, *words: object) -> float:
        """Do one job; the seconds it took. Raises JobFailed."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(" ".join(map(str, words)) + "\n")
        answer = process.stdout.readline()
        kind, _, text = answer.partition(" ")
        if kind != "ok":
            log = (self.home / "worker.log").read_text(errors="replace")[-2000:]
            raise JobFailed(f"{words}: {text or 'ended'}\n{log}")
        return float(text)
