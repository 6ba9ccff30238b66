"""What someone who helps needs to know of a cluster, in one archive: `rocketrio doctor --bundle`.

Invariant: no value of a setting that may be a secret is in it, and no user and no message; what did not answer is in it
as its reason.
Invariant: only the user of this process may read the archive.
Invariant: no name in it leads out of the folder into which it is unpacked, whatever servers call themselves.
"""

import gzip
import io
import json
import math
import os
import platform
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from rocketrio import __version__
from rocketrio.admin.cluster_status import BrokerStatus
from rocketrio.admin.diagnosis import Diagnosis
from rocketrio.admin.diagnosis.snapshot import Snapshot
from rocketrio.admin.events import BrokerEvent
from rocketrio.admin.secret_settings import without_secrets
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.times import nearest_time

_PART: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""A file name that means the same on every system, and can be made on each."""


def bundle_of(
    seen: Snapshot,
    found: Diagnosis,
    *,
    events: Sequence[BrokerEvent] = (),
    log: str = "",
    more: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Return what belongs into a bundle, by file name: values for JSON, or text."""
    files: dict[str, Any] = {
        "about.json": {
            "time": None if seen.now_ms is None else nearest_time(seen.now_ms).isoformat(),
            "rocketrio": __version__,
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "findings.json": found,
        "status.json": seen.brokers,
        "name_servers.json": {
            name: str(one) if isinstance(one, Exception) else one
            for name, one in seen.name_servers.items()
        },
        "routes.json": seen.routes,
        "lag.json": seen.lag,
        "groups.json": seen.groups,
        "transactions.json": seen.transactions,
        "events.json": events,
        "log.txt": log,
    }
    for one, folder in with_folders(seen.brokers):
        if one.address in seen.runtimes:
            files[f"{folder}/runtime.json"] = without_secrets(seen.runtimes[one.address])
        if one.address in seen.settings:
            files[f"{folder}/settings.json"] = without_secrets(seen.settings[one.address])
        if one.role != "slave" and one.broker_name in seen.topics:
            files[f"{folder}/topics.json"] = seen.topics[one.broker_name]
    return files | dict(more)


def with_folders(brokers: Iterable[BrokerStatus]) -> Iterator[tuple[BrokerStatus, str]]:
    """Yield each broker with the folder of its files: its name, or else its number in status.json, from 0."""
    for number, one in enumerate(brokers):
        address = one.address.replace(":", "_")
        name = f"{one.broker_name}-{one.broker_id}-{address}"
        yield one, f"brokers/{name if _PART.fullmatch(name) else number}"


def write_bundle(path: Path, files: Mapping[str, Any]) -> None:
    """Write an archive that only this user can read; blocks. Raises ConfigError if there is a file at this place."""
    for name in files:
        if not all(_PART.fullmatch(part) and part.strip(".") for part in name.split("/")):
            raise ValueError(f"{name!r} may be no file of an archive: it could lead out of it")
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"{path} exists", remedy="Name another file") from error
    with (
        open(opened, "wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(mode="w|", fileobj=packed) as archive,
    ):
        for name, value in files.items():
            text = value if isinstance(value, str) else json.dumps(_plain(value), indent=1)
            content = text.encode()
            entry = tarfile.TarInfo(f"rocketrio-doctor/{name}")
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))


def _plain(value: Any) -> Any:
    """Return a value as JSON can have it: keys of tables become texts."""
    if attrs.has(type(value)):
        return {one.name: _plain(getattr(value, one.name)) for one in attrs.fields(type(value))}
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity.
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(one) for one in value]
    return str(value)
