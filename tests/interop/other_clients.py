"""Apache's clients in Go and C++ as child processes with the calls of `line_client.py`.

Go: `go/main.go`, built at first use and kept beside Apache's jars. C++: `cpp_program.py` over the library in the
package `rocketmq`, which exists for Linux on x86-64 alone. Where one cannot be had, its tests are skipped and say why.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import attrs

from rocketrio import Credentials
from tests.interop.jars import UnavailableError, cache_folder
from tests.interop.line_client import LineClient

GO_SOURCES = Path(__file__).parent / "go"
CPP_PROGRAM = Path(__file__).parent / "cpp_program.py"
BUILD_TIMEOUT = 300.0
"""Seconds; two modules of a few MB come over the network the first time."""


def go_program() -> Path:
    """The built `go/main.go`. Raises UnavailableError without Go, or where its modules cannot be had."""
    if shutil.which("go") is None:
        raise UnavailableError("there is no `go`")
    sources = sorted(GO_SOURCES.iterdir())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    built = cache_folder() / f"go-client-{digest[:16]}"
    if built.exists():
        return built
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".go-client-") as work:
        output = Path(work) / "client"
        done = subprocess.run(
            ["go", "build", "-o", output, "."],
            cwd=GO_SOURCES,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT,
            check=False,
        )
        if done.returncode:
            raise UnavailableError(f"the Go client cannot be built: {done.stderr[-300:].strip()}")
        output.replace(built)
    return built


def program(language: str) -> list[str | Path]:
    """The command of a client. Raises UnavailableError."""
    if language == "go":
        return [go_program()]
    if find_spec("rocketmq") is None:
        raise UnavailableError("the package `rocketmq`, which has librocketmq, is not installed")
    return [sys.executable, CPP_PROGRAM]


@attrs.define
class OtherClient(LineClient):
    """One client process; `with` starts it and ends it."""

    command: list[str | Path]
    name_server: str
    home: Path
    account: Credentials | None = None

    def __enter__(self) -> Self:
        keys = [] if self.account is None else [self.account.access_key, self.account.secret_key]
        self.start([*self.command, self.name_server, *keys], log=self.home / "client.log")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
