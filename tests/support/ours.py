"""Our name server and brokers as processes, beside `apache.py` and with the same shape.

They are started by the command that users start, and judged by what they answer (`wire.py`).
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from tests.interop.apache import SMALL_STORE, ApacheBroker
from tests.support import wire
from tests.support.commit_logs import digest, wait_caught_up
from tests.support.processes import Process, free_port
from tests.support.server import Server, start_together

OurRole = Literal["async-master", "sync-master", "slave"]
COMMAND = (Path(sys.executable).with_name("rocketrio-broker"),)


@attrs.define
class OurNameServer(Server):
    """One name server."""

    home: Path
    port: int = attrs.field(factory=free_port)
    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """A command that runs it elsewhere, `ip netns exec ...`."""
    options: tuple[str, ...] = ()
    """Further ones of the command."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.process = Process.start(
            "our name server",
            [*self.prefix, *COMMAND, "namesrv", "--listen", self.address, *self.options],
            log=self.home / "out.log",
            cwd=self.home,
        )

    def wait_ready(self) -> None:
        self.running.wait_until(lambda: wire.answers(self.address, self.context), "answering")


@attrs.define
class OurBroker(Server):
    """One broker; it serves when the name server lists it too."""

    home: Path
    name_server: str
    role: OurRole = "async-master"
    broker_id: int = 0
    name: str = "broker-a"
    cluster: str = "lab"
    store: Path = attrs.field(default=attrs.Factory(lambda self: self.home / "store", True))
    port: int = attrs.field(factory=lambda: free_port(-2, 1))
    settings: tuple[str, ...] = ()
    """Further ones, each `key=value`."""
    listed_at: str | None = None
    """The name server to ask whether it is registered, if it registers with several."""
    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """A command that runs it elsewhere, `ip netns exec ...`."""
    command: tuple[str | Path, ...] = COMMAND

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        config = self.home / "broker.toml"
        config.write_text(_small_store())
        self.process = Process.start(
            f"our {self.role}",
            [
                *self.prefix,
                *self.command,
                "run",
                *("--config", config),
                *("--namesrv", self.name_server),
                *("--listen", self.address),
                *("--ha-listen", f"{self.host}:{self.port + 1}"),
                *("--cluster", self.cluster),
                *("--name", self.name),
                *("--id", str(self.broker_id)),
                *("--role", self.role),
                *("--data", self.store),
                *(word for setting in self.settings for word in ("--set", setting)),
            ],
            log=self.home / "out.log",
            cwd=self.home,
        )

    def wait_ready(self) -> None:
        self.running.wait_until(
            lambda: (
                wire.serves(self.address, self.context)
                and wire.is_registered(
                    self.listed_at or self.name_server, self.address, self.context
                )
                # It takes no writes between its registration and the beginning of its epoch.
                and self.running.has_said("ready role=")
            ),
            f"serving and listed by {self.listed_at or self.name_server}",
        )

    def stop(self) -> int:
        """A clean stop, which must end with 0."""
        code = super().stop()
        assert code == 0, f"stopped with {code}:\n{self.running.tail()}"
        return code


def assert_same_logs(master: ApacheBroker | OurBroker, slave: ApacheBroker | OurBroker) -> int:
    """Wait until the slave has the master's whole log, compare every byte, and return the log's end."""
    end = wait_caught_up(master.address, slave.address)
    assert digest(slave.store, end) == digest(master.store, end)
    return end


@attrs.define
class OurPair:
    """A name server, a master and its slave."""

    name_server: OurNameServer
    master: OurBroker
    slave: OurBroker

    def assert_same_logs(self) -> int:
        return assert_same_logs(self.master, self.slave)


@contextmanager
def our_pair(
    home: Path, *, role: OurRole = "async-master", settings: tuple[str, ...] = ()
) -> Iterator[OurPair]:
    """Start both brokers at once, and end them with the block."""
    with ExitStack() as stack:
        names = stack.enter_context(OurNameServer(home / "namesrv"))
        brokers = (
            OurBroker(home / "master", names.address, role=role, settings=settings),
            OurBroker(home / "slave", names.address, role="slave", broker_id=1, settings=settings),
        )
        start_together(stack, *brokers)
        yield OurPair(names, *brokers)


def our_pair_fixture(
    *,
    scope: Literal["module", "function"] = "module",
    role: OurRole = "async-master",
    settings: tuple[str, ...] = (),
) -> Any:
    """Make a fixture of a pair for the tests of one file, or for each of them."""

    @pytest.fixture(scope=scope)
    def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurPair]:
        with our_pair(tmp_path_factory.mktemp("pair"), role=role, settings=settings) as pair:
            yield pair

    return pair


def _small_store() -> str:
    """The file sizes of `SMALL_STORE` under our names."""
    ours = {
        "mapped_file_size_commit_log": "mappedFileSizeCommitLog",
        "mapped_file_size_consume_queue": "mappedFileSizeConsumeQueue",
        "max_hash_slot_num": "maxHashSlotNum",
        "max_index_num": "maxIndexNum",
        "max_message_size": "maxMessageSize",
    }
    lines = [f"{name} = {SMALL_STORE[java]}" for name, java in ours.items()]
    return "[store]\n" + "\n".join(lines) + "\n"
