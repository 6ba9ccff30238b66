"""The name server's key-value table: text by key, in namespaces; kept in one JSON file where it is given one.

Answers to: KVConfigManager; RocketMQ reference, section 2.12.
"""

from typing import Final

import msgspec

from rocketrio_broker.config_file import ConfigFile

ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


class KVConfigSerializeWrapper(msgspec.Struct, rename="camel"):
    """The file's content."""

    config_table: dict[str, dict[str, str]] = {}


class KVConfigManager:
    """Namespace to key to value."""

    def __init__(self, *, file: ConfigFile | None = None) -> None:
        self._file = file
        self.config_table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Take over what the file holds."""
        stored = None if self._file is None else self._file.load_table(KVConfigSerializeWrapper)
        if stored is not None:
            self.config_table = stored.config_table

    def put(self, namespace: str, key: str, value: str) -> None:
        """Store one value."""
        values = {**self.config_table.get(namespace, {}), key: value}
        self._take({**self.config_table, namespace: values})

    def value(self, namespace: str, key: str) -> str | None:
        """One value."""
        return self.config_table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value, if it is there."""
        values = dict(self.config_table.get(namespace, {}))
        if values.pop(key, None) is not None:
            self._take({**self.config_table, namespace: values})

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All values of a namespace; None when there never was one."""
        return self.config_table.get(namespace)

    def _take(self, table: dict[str, dict[str, str]]) -> None:
        # The file first: a change that it cannot hold is not made.
        if self._file is not None:
            self._file.write(KVConfigSerializeWrapper(table))
        self.config_table = table
