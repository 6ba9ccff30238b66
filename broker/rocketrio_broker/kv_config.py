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
        stored = None if self._file is None else self._file.load(KVConfigSerializeWrapper)
        if stored is not None:
            self.config_table = stored.config_table

    def put(self, namespace: str, key: str, value: str) -> None:
        """Store one value."""
        self.config_table.setdefault(namespace, {})[key] = value
        self._persist()

    def value(self, namespace: str, key: str) -> str | None:
        """One value."""
        return self.config_table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value, if it is there."""
        if self.config_table.get(namespace, {}).pop(key, None) is not None:
            self._persist()

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All values of a namespace; None when there never was one."""
        return self.config_table.get(namespace)

    def _persist(self) -> None:
        if self._file is not None:
            self._file.write(KVConfigSerializeWrapper(self.config_table))
