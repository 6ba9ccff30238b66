"""Target: one file of a broker's data directory; a broker with this file starts, serves, and stops.

The first line names the file, the rest is its content, with zeros behind it where the file has a fixed size. Behind a
name that ends with ` checked` the content's checksums are put right.
"""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from rocketrio_broker.testing.memory_disk import MemoryDisk
from tests.fuzz.lab import TOPIC, Files, cluster_on, disk_of, lived
from tests.fuzz.seeds import JSON_WORDS, RECORD_WORDS
from tests.fuzz.target import DefectError, Target, live, named, split_name
from tests.support.raw_client import CPP, PULL, raw_client, request

_KEYED: Final = {
    "topic": TOPIC,
    "key": "k",
    "maxNum": 9,
    "beginTimestamp": 0,
    "endTimestamp": 1 << 60,
}
_ROOT: Final = Path("/master")
_LATER_FILES: Final = {
    "config/delayOffset.json": b'{\n\t"offsetTable":{3:1\n\t}\n}',
    "config/slaves.json": b'{"slaves":["10.0.0.11:10911"],"followed":["10.0.0.10:10911"]}',
    "config/rocketrioRole.json": b'{"role":"async-master","brokerId":0}',
    "rocketrioAcknowledged": b'f2c94348 {"9f":[100,"10.0.0.11:10911"]}\n',
}
"""Files that a broker writes later in its life."""
_CHECKED: Final = " checked"
_CHECKED_FILES: Final = (
    "rocketrioQueues",
    "rocketrioEpochs",
    "rocketrioAcknowledged",
    "checkpoint",
)
_OWN_PART: Final = slice(256, 320)
"""What a checkpoint has beside the times that Apache's has."""
_LIFE: Final = 15.0
"""Virtual seconds: tables are written, delayed messages delivered, transactions looked at."""


def take_files(data: bytes) -> None:
    """Start a broker with this file, and use it."""
    name, content = split_name(data)
    if name.endswith(_CHECKED):
        name = name.removesuffix(_CHECKED)
        content = _checked(name, content)
    files = dict(lived())
    path = _ROOT / name
    if path in files or name in _LATER_FILES:
        files[path] = _sized(content, files.get(path, b""))
        live(_use, disk_of(files))


def _checked(name: str, content: bytes) -> bytes:
    """Return the content with the checksums that this file has."""
    match name:
        case "rocketrioQueues":
            return struct.pack(">I", zlib.crc32(content[4:])) + content[4:]
        case "rocketrioEpochs" | "rocketrioAcknowledged":
            lines = (line.partition(b" ")[2] for line in content.splitlines())
            return b"".join(b"%08x %s\n" % (zlib.crc32(line), line) for line in lines)
        case "checkpoint":
            own, rest = content[: _OWN_PART.stop], content[_OWN_PART.stop + 4 :]
            return own + struct.pack(">I", zlib.crc32(own[_OWN_PART])) + rest
    return content


def _sized(content: bytes, before: bytes) -> bytes:
    """Return it as long as the file was if that is one of a fixed size: another size is another setting."""
    is_fixed = before.endswith(b"\0")
    return content[: len(before)].ljust(len(before), b"\0") if is_fixed else content


async def _use(disk: MemoryDisk) -> None:
    async with (
        cluster_on(disk) as running,
        raw_client(running.dial, running.master.broker.address) as client,
    ):
        for queue in range(2):
            await client.asked(request(11, {**PULL, "queueId": queue}))
        await client.asked(request(12, _KEYED))
        await client.asked(request(310, CPP, b"new"))
        await trio.sleep(_LIFE)
        told = await client.asked(request(30, {"topic": TOPIC, "queueId": 0}))
        if told.code != 0:
            raise DefectError(f"A good question was answered with {told.header}")


def _seeds() -> Sequence[bytes]:
    files: Files = {
        **{path: content.rstrip(b"\0") for path, content in lived().items()},
        **{_ROOT / name: content for name, content in _LATER_FILES.items()},
    }
    plain = [named(str(path.relative_to(_ROOT)), files[path]) for path in sorted(files)]
    return [*plain, *(named(name + _CHECKED, files[_ROOT / name]) for name in _CHECKED_FILES)]


FILES: Final = (
    Target(
        "files", take_files, (*JSON_WORDS, *RECORD_WORDS), _seeds, is_named=True, is_program=True
    ),
)
