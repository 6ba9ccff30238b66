"""Our name server and brokers as processes, beside `apache.py` and with the same shape.

They are started by the command that users start, and judged by what they answer (`wire.py`).
"""

import sys
from pathlib import Path
from typing import Literal, Self

import attrs

from tests.interop import wire
from tests.interop.apache import SMALL_STORE
from tests.interop.processes import Process, free_port

OurRole = Literal["async-master", "sync-master", "slave"]
COMMAND = (Path(sys.executable).with_name("rocketrio-broker"),)


def _quiet_stop(process: Process | None) -> None:
    if process is not None:
        process.kill()


@attrs.define
class OurNameServer:
    """One name server; `with` starts and ends it."""

    home: Path
    port: int = attrs.field(factory=free_port)
    process: Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.process = Process.start(
            "our name server",
            [*COMMAND, "namesrv", "--listen", self.address],
            log=self.home / "out.log",
            cwd=self.home,
        )

    def wait_ready(self) -> None:
        assert self.process is not None
        self.process.wait_until(lambda: wire.answers(self.address), "answering")

    def __enter__(self) -> Self:
        self.start()
        self.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        _quiet_stop(self.process)


@attrs.define
class OurBroker:
    """One broker; `with` starts it, waits until the name server lists it, and kills it at the end."""

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
    process: Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        config = self.home / "broker.toml"
        config.write_text(_small_store())
        self.process = Process.start(
            f"our {self.role}",
            [
                *COMMAND,
                "run",
                *("--config", config),
                *("--namesrv", self.name_server),
                *("--listen", self.address),
                *("--ha-listen", f"127.0.0.1:{self.port + 1}"),
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
        assert self.process is not None
        self.process.wait_until(
            lambda: (
                wire.serves(self.address) and wire.is_registered(self.name_server, self.address)
            ),
            f"serving and listed by {self.name_server}",
        )

    def stop(self) -> None:
        """A clean stop, which must end with 0."""
        assert self.process is not None
        code = self.process.stop()
        assert code == 0, f"stopped with {code}:\n{self.process.tail()}"

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()

    def restart(self) -> None:
        """Start it again after a stop or a kill, at the same addresses and with the same data."""
        self.start()
        self.wait_ready()

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _quiet_stop(self.process)


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
