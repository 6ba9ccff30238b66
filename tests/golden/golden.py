"""Reads the recorded traffic and data directories of real Apache peers (see README.md beside this file)."""

import json
import lzma
import re
import tarfile
from pathlib import Path
from typing import Any, Literal

import attrs

GOLDEN = Path(__file__).parent
VERSIONS = ("4.9.7", "5.3.3")


_MEMBERS_OF_5 = re.compile(
    rb""",\s*"(?:stateVersion":0|enableActingMaster":false)"""
    rb"""|"(?:attributes":\{\}|consumeMessageOrderly":false|consumeTimeoutMinute":15|groupSysFlag":0"""
    rb"""|groupRetryPolicy":\{\s*"type":"CUSTOMIZED"\s*\}),\s*"""
    rb"""|"mappingDataVersion":\{[^}]*\},|,"topicQueueMapping(?:Detail|Info)Map":\{\}"""
)


def as_4_9_wrote(data: bytes) -> bytes:
    """JSON without the members that 5.x alone has, where they have their usual values."""
    return _MEMBERS_OF_5.sub(b"", data)


@attrs.frozen
class RecordedFrame:
    """One frame (or run of HA bytes) as it crossed the wire."""

    time_ms: int
    connection: int
    server: Literal["namesrv", "broker", "ha"]
    port: int
    from_dialer: bool
    data: bytes


_DATA_ONLY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python has the argument since 3.11.4, and wants it from 3.12 on."""


def recorded_frames(run: str) -> list[RecordedFrame]:
    """Every frame of one run (`4.9.7`, `5.3.3`, `5.3.3-split`), in time order, HA bytes included."""
    with lzma.open(GOLDEN / run / "frames.jsonl.xz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        RecordedFrame(
            time_ms=row["t"],
            connection=row["conn"],
            server=row["to"],
            port=row["port"],
            from_dialer=row["dir"] == ">",
            data=bytes.fromhex(row["hex"]),
        )
        for row in rows
    ]


def remoting_frames(run: str) -> list[RecordedFrame]:
    """The remoting frames of one run, without the HA stream."""
    return [frame for frame in recorded_frames(run) if frame.server != "ha"]


def unpack_store(run: str, role: Literal["master", "slave"], into: Path) -> Path:
    """Lay the killed data directory of one role out under `into`; returns its root."""
    with tarfile.open(GOLDEN / run / f"store-{role}-killed.tar.xz") as archive:
        archive.extractall(into, **_DATA_ONLY)
    roots = [path.parent for path in into.rglob("commitlog")]
    assert len(roots) == 1, roots
    return roots[0]
