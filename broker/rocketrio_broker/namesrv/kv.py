"""The name server's key-value table: text by key, in namespaces; stored in one JSON file, if there is one.

The file is always written whole. Changes that come while a write is delayed are written together; the rate of writing
is at most WRITE_RATE, however many changes there are.

Invariant: what is read here is in the file; a change is answered once it is.
Invariant: the table has at most ENTRIES_LIMIT entries of SIZE_LIMIT bytes, including those that wait to be written.
Answers to: KVConfigManager; RocketMQ reference, section 2.12.
"""

import logging
from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs
import msgspec
import trio

from rocketrio_broker.tables.config_file import ConfigFile, ConfigFileError
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.errors import ConfigError, Error

logger = logging.getLogger("rocketrio_broker.namesrv")

ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"

ENTRIES_LIMIT: Final = 10_000
"""The largest number of entries in all namespaces."""

VALUE_SIZE_LIMIT: Final = 64 << 10
"""The largest size of one value in bytes."""

KEY_SIZE_LIMIT: Final = 512
"""The largest size of a namespace and a key together, in bytes."""

SIZE_LIMIT: Final = 4 << 20
"""The largest size of all entries as JSON in bytes: each answer to a registration has ORDER_TOPIC_NAMESPACE's."""

FILE_SIZE_LIMIT: Final = 2 * SIZE_LIMIT
"""The largest size of a file to load: namespaces and indentation add to the size of the entries."""

WRITE_RATE: Final = 2 << 20
"""The largest rate of writing the file, in bytes a second; some 2 % of a core."""

_Key: TypeAlias = tuple[str, str]
"""Namespace and key."""


class KVConfigSerializeWrapper(msgspec.Struct, rename="camel"):
    """The file's content."""

    config_table: dict[str, dict[str, str]] = {}


class KVConfigFullError(Error):
    """The table has no room for an entry."""

    remedy = "Delete entries that are not needed, or put smaller values"


@attrs.define(eq=False)
class _Batch:
    """Changes that are written together, and the error of that; None as a value deletes."""

    changes: dict[_Key, str | None] = attrs.Factory(dict)
    size: int = 0
    error: ConfigFileError | None = None


class KVConfigManager:
    """Namespace to key to value."""

    def __init__(self, *, file: ConfigFile | None = None) -> None:
        self._file = file
        self._table: dict[str, dict[str, str]] = {}
        self._count = 0
        self._size = 0
        self._json: dict[str, bytes] = {}
        """Encoded namespaces that were requested since the last change."""
        self._batch = _Batch()
        """The changes that are not written yet."""
        self._turn = trio.Lock()
        self._next_write = 0.0

    def __repr__(self) -> str:
        return f"<KVConfigManager {self._count} entries, {self._size} bytes>"

    def load(self) -> None:
        """Load the entries of the file, as far as there is room. Raises ConfigError for one beyond FILE_SIZE_LIMIT."""
        if self._file is None:
            return
        if (size := self._file.size) > FILE_SIZE_LIMIT:
            raise ConfigError(
                f"{self._file.path} has {size} bytes, more than a rocketrio name server writes ({FILE_SIZE_LIMIT})",
                remedy="Remove entries that are not needed, or move the file away",
            )
        stored = self._file.load_table(KVConfigSerializeWrapper) or KVConfigSerializeWrapper()
        for namespace, values in stored.config_table.items():
            for key, value in values.items():
                if (problem := self._problem((namespace, key), value)) is None:
                    self._table.setdefault(namespace, {})[key] = value
                    self._count += 1
                    self._size += _size((namespace, key), value)
                else:
                    logger.warning(
                        "an entry is left out file=%s reason=%s", self._file.path, problem
                    )

    def value(self, namespace: str, key: str) -> str | None:
        """Return one value."""
        return self._table.get(namespace, {}).get(key)

    def namespace_json(self, namespace: str) -> bytes | None:
        """Return all values of a namespace as JSON, or None if it does not exist."""
        values = self._table.get(namespace)
        if values is None:
            return None
        if namespace not in self._json:
            self._json[namespace] = KVTable(dict(values)).to_json()
        return self._json[namespace]

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Store one value; returns once it is in the file. Raises KVConfigFullError or ConfigFileError.

        After a cancel the change may still be written.
        """
        if (problem := self._problem((namespace, key), value)) is not None:
            raise KVConfigFullError(problem)
        await self._change((namespace, key), value)

    async def delete(self, namespace: str, key: str) -> None:
        """Remove one value, if it exists. Raises ConfigFileError. After a cancel the change may still be written."""
        if self.value(namespace, key) is not None or (namespace, key) in self._batch.changes:
            await self._change((namespace, key), None)

    def _problem(self, key: _Key, value: str) -> str | None:
        """Return why there is no room for a value, or None; changes that wait to be written count as new entries."""
        if len(value.encode()) > VALUE_SIZE_LIMIT or len("".join(key).encode()) > KEY_SIZE_LIMIT:
            return (
                f"A value has {VALUE_SIZE_LIMIT} bytes at most, "
                f"and its namespace and key together {KEY_SIZE_LIMIT}"
            )
        before = self.value(*key)
        count = self._count + len(self._batch.changes) + (before is None)
        size = self._size + self._batch.size + _size(key, value) - _size(key, before)
        if count > ENTRIES_LIMIT or size > SIZE_LIMIT:
            return (
                f"The key-value table is full: it has {self._count} entries of {self._size} bytes, "
                f"and {ENTRIES_LIMIT} of {SIZE_LIMIT} bytes at most"
            )
        return None

    async def _change(self, key: _Key, value: str | None) -> None:
        batch = self._batch
        # Counted before the wait, so that `_problem` knows it and the changes
        # that wait cannot exceed the limits together.
        batch.changes[key] = value
        batch.size += _size(key, value)
        async with self._turn:
            if batch is self._batch:
                # This task writes the batch; changes that come before that join it.
                await trio.sleep_until(self._next_write)
                self._batch = _Batch()
                batch.error = self._write(batch.changes)
        if batch.error is not None:
            raise batch.error

    def _write(self, changes: Mapping[_Key, str | None]) -> ConfigFileError | None:
        """Write the file before the table changes, so that the table never has more than the file."""
        table = {namespace: dict(values) for namespace, values in self._table.items()}
        for (namespace, key), value in changes.items():
            values = table.setdefault(namespace, {})
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
            if not values:
                del table[namespace]
        if self._file is not None:
            data = fastjson.dumps_pretty(KVConfigSerializeWrapper(table))
            try:
                self._file.write_bytes(data)
            except ConfigFileError as error:
                return error
            self._next_write = trio.current_time() + len(data) / WRITE_RATE
        self._table = table
        self._count = sum(map(len, table.values()))
        self._size = sum(
            _size((namespace, key), value)
            for namespace, values in table.items()
            for key, value in values.items()
        )
        self._json.clear()
        return None


def _size(key: _Key, value: str | None) -> int:
    """Return the size of an entry as JSON in bytes, where one character may take six."""
    return 0 if value is None else len(msgspec.json.encode((*key, value)))
