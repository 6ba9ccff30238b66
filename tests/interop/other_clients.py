"""Apache's clients in Go and C++ as child processes with the calls of `line_client.py`.

Go: `go/main.go`, built at first use and kept beside Apache's jars. C++: `cpp_program.py` over the library in the
package `rocketmq`, which exists for Linux on x86-64 alone. Where one cannot be had, its tests are skipped and say why.
"""

import hashlib
import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import attrs
import pytest

from rocketrio import ClientInstance, Credentials, open_admin, open_client
from tests.interop.jars import UnavailableError, cache_folder
from tests.interop.line_client import LineClient
from tests.support.ours import OurPair, our_pair

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


def other_client(
    language: str, name_server: str, home: Path, account: Credentials | None = None
) -> OtherClient:
    """Make a client of a language; skip the test where it is not installed."""
    try:
        return OtherClient(program(language), name_server, home, account)
    except UnavailableError as error:
        pytest.skip(f"interop: skipped: {error}")


NUMBERS = itertools.count()
JOIN_TIMEOUT = 60.0
"""Seconds until a member has its queues; both rebalance every 10 to 20 s."""
FIRST_RETRY = 75.0
"""Seconds; a message that was handed back comes again after 10, and a new retry topic is looked for every 30."""
QUICK_CHECKS = ("transaction_timeout=1", "transaction_check_interval=1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurPair]:
    folder = tmp_path_factory.mktemp("others")
    with our_pair(folder, settings=QUICK_CHECKS) as pair:
        yield pair


@pytest.fixture(scope="module", params=["go", "cpp"])
def other(
    request: pytest.FixtureRequest, cluster: OurPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OtherClient]:
    home = tmp_path_factory.mktemp(request.param)
    with other_client(request.param, cluster.name_server.address, home) as opened:
        yield opened


@pytest.fixture
async def client(cluster: OurPair) -> Any:
    async with open_client(name_servers=[cluster.name_server.address]) as opened:
        yield opened


@pytest.fixture
async def topic(cluster: OurPair, client: ClientInstance) -> str:
    """A new topic with two queues, known to the name server."""
    name = f"other-{next(NUMBERS)}"
    async with open_admin(client=client) as admin:
        await admin.create_topic(name, queues=2)
    return name
