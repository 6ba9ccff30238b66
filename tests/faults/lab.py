"""A pair of brokers and their name server as processes, what breaks them, and the commands that mend them.

With `network` every one of them has a network namespace of its own, joined by a bridge in one more, so that any two
can be parted; that needs root. Without it all are on the loopback address, where nothing can be parted. With
`on_volumes` the data of the pair lie on file systems in image files: a copy of one, made at any moment, is what a power
cut leaves.

Invariant: no packet leaves the namespaces made here, and nothing made here outlives the lab.
"""

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal

import attrs
from tests.faults.faults import WAITS_FOR_SLAVE, Faults, Loss, Mode
from tests.support.load import stopped
from tests.support.ours import COMMAND, OurBroker, OurNameServer
from tests.support.server import start_together

SETTINGS: Final[dict[Mode, tuple[str, ...]]] = {
    "async": (),
    "async-sync": ("store.flush_disk_type=sync",),
    "sync-mem": (),
    "money": ("store.flush_disk_type=sync", "ha_acknowledge=disk"),
}
HOSTS: Final = ("names", "b0", "b1", "client")
_NOWHERE: Final = "02:00:00:00:00:01"
"""A hardware address that no host has: what is sent there is lost without a word."""
_VOLUME_SIZE: Final = 256 << 20


def is_root() -> bool:
    """Whether namespaces and file systems can be made here."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


def _run(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@attrs.frozen
class Network:
    """Hosts in namespaces; `client` is where the campaign itself runs."""

    name: str

    @classmethod
    @contextmanager
    def made(cls, name: str) -> Iterator["Network"]:
        """Namespaces for all hosts, for as long as the block."""
        network = cls(name)
        hub = f"{name}-hub"
        with ExitStack() as stack:
            for space in (hub, *map(network.space, HOSTS)):
                _run("ip", "netns", "add", space)
                stack.callback(_run, "ip", "netns", "del", space)
            _run("ip", "-n", hub, "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", hub, "link", "set", "br0", "up")
            for host in HOSTS:
                space = network.space(host)
                peer = "peer", "name", "eth0", "netns", space
                _run("ip", "-n", hub, "link", "add", host, "type", "veth", *peer)
                _run("ip", "-n", hub, "link", "set", host, "master", "br0", "up")
                _run("ip", "-n", space, "addr", "add", f"{network.address(host)}/24", "dev", "eth0")
                _run("ip", "-n", space, "link", "set", "eth0", "up")
                _run("ip", "-n", space, "link", "set", "lo", "up")
            yield network

    def space(self, host: str) -> str:
        return f"{self.name}-{host}"

    def address(self, host: str) -> str:
        return f"10.77.0.{HOSTS.index(host) + 1}"

    def prefix(self, host: str) -> tuple[str, ...]:
        return "ip", "netns", "exec", self.space(host)

    def part(self, one: str, other: str) -> None:
        """Nothing passes between two hosts, and neither gets an error."""
        for host, far in ((one, other), (other, one)):
            place = self.address(far), "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent"
            _run("ip", "-n", self.space(host), "neigh", "replace", *place)

    def join(self, one: str, other: str) -> None:
        """What was parted is together again."""
        for host, far in ((one, other), (other, one)):
            _run("ip", "-n", self.space(host), "neigh", "del", self.address(far), "dev", "eth0")


@attrs.define
class Volume:
    """A file system in an image file."""

    place: Path
    _images: int = 0

    def __enter__(self) -> Path:
        image = self._next_image()
        with image.open("wb") as file:
            file.truncate(_VOLUME_SIZE)
        _run("mkfs.ext4", "-q", image)
        self.place.mkdir(parents=True, exist_ok=True)
        _run("mount", "-o", "loop", image, self.place)
        return self.place

    def __exit__(self, *_: object) -> None:
        _run("umount", "-l", self.place)

    def cut_power(self, broker: OurBroker) -> None:
        """End a broker with what its disk has now: a copy of the image, for what is in the page cache is not in it."""
        assert broker.process is not None
        os.kill(broker.process.pid, signal.SIGSTOP)
        before = self._image
        after = self._next_image()
        shutil.copyfile(before, after)
        broker.kill()
        _run("umount", "-l", self.place)
        before.unlink()
        _run("mount", "-o", "loop", after, self.place)

    @property
    def _image(self) -> Path:
        return self.place.with_name(f"{self.place.name}-{self._images}.img")

    def _next_image(self) -> Path:
        self._images += 1
        return self._image


@attrs.define
class Lab:
    """The pair. `brokers[n]` is what was started as `b0` or `b1`, whatever it is now."""

    mode: Mode
    names: OurNameServer
    brokers: tuple[OurBroker, OurBroker]
    network: Network | None
    volumes: tuple[Volume, Volume] | None
    faults: Faults = attrs.field(default=attrs.Factory(lambda self: Faults(self.mode), True))

    @property
    def role(self) -> Literal["async-master", "sync-master"]:
        return _role(self.mode)

    def kill(self, number: int, *losses: Loss) -> None:
        """End a broker, and note what goes with it."""
        since = self.faults.begin()
        self.brokers[number].kill()
        for loss in losses:
            self.faults.lose(loss, since=since)

    def log_end(self, number: int) -> tuple[Path, int]:
        """The last file of a log that a dead broker left, and where its bytes end."""
        files = sorted((self.brokers[number].store / "commitlog").iterdir())
        data, last = b"", files[-1]
        while files and not data:
            last = files.pop()
            data = last.read_bytes().rstrip(b"\0")
        return last, len(data)

    def tear(self, number: int, size: int, rng: random.Random) -> None:
        """Zeros, or anything, over the last bytes of a dead broker's log."""
        path, end = self.log_end(number)
        size = min(size, end)
        with path.open("r+b") as file:
            file.seek(end - size)
            file.write(bytes(size) if rng.random() < 0.7 else rng.randbytes(size))

    def wipe(self, number: int) -> None:
        """An empty disk."""
        for path in self.brokers[number].store.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def copy(self, number: int) -> None:
        """Copy a running broker's directory, as it is at one moment."""
        with stopped(self.brokers[number]):
            _run("cp", "-a", "--sparse=always", self.brokers[number].store, self._copy(number))

    def set_back(self, number: int) -> None:
        """Put the copy in place of a dead broker's directory; of progress it has what was written when it was made."""
        self.faults.forget_unwritten()
        shutil.rmtree(self.brokers[number].store)
        self._copy(number).rename(self.brokers[number].store)

    def cut_files(self, number: int) -> list[str]:
        """What a broker has cut off its log."""
        folder = self.brokers[number].store / "cut"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def _copy(self, number: int) -> Path:
        return self.brokers[number].store.with_name("copy")


@contextmanager
def open_lab(
    home: Path,
    mode: Mode,
    *,
    network: Network | None = None,
    on_volumes: bool = False,
    divergent_tail: Literal["cut", "refuse"] = "cut",
    command: tuple[str | Path, ...] = COMMAND,
) -> Iterator[Lab]:
    """Start the pair: b0 is master. `command` starts a broker."""
    with ExitStack() as stack:
        volumes = (Volume(home / "v0"), Volume(home / "v1")) if on_volumes else None
        stores = [
            stack.enter_context(volumes[number]) / "store" if volumes else home / f"b{number}/store"
            for number in (0, 1)
        ]

        def placed(host: str) -> dict[str, object]:
            if network is None:
                return {}
            return {"host": network.address(host), "prefix": network.prefix(host)}

        names = OurNameServer(home / "names", **placed("names"))  # type: ignore[arg-type]
        stack.enter_context(names)
        settings = (
            *SETTINGS[mode],
            f"ha_divergent_tail={divergent_tail}",
            "store.clean_file_forcibly_enable=false",
            # So that the producers of half messages are asked in time.
            "transaction_timeout=3",
            "transaction_check_interval=3",
        )
        first = OurBroker(
            home / "b0", names.address, role=_role(mode), command=command,
            store=stores[0], settings=settings, **placed("b0"),  # type: ignore[arg-type]
        )  # fmt: skip
        second = OurBroker(
            home / "b1", names.address, role="slave", broker_id=1, command=command,
            store=stores[1], settings=settings, **placed("b1"),  # type: ignore[arg-type]
        )  # fmt: skip
        start_together(stack, first, second)
        yield Lab(mode, names, (first, second), network, volumes)


def _role(mode: Mode) -> Literal["async-master", "sync-master"]:
    return "sync-master" if mode in WAITS_FOR_SLAVE else "async-master"
