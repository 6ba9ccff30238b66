"""Stores the ports of the members of a cluster in one process, so that they return to the same addresses.

    ports.json      {"broker-a-0": [40311, 40315], "broker-a-1": [...]}: for clients, for slaves

A master that starts asks its known slaves, at their former addresses, for messages that it may lack. Its slaves start
with it, so they can answer only there.

Invariant: if another program uses a port now, a free one replaces it; that never fails the start.
Answers to: nothing; in Java ports are settings.
"""

from contextlib import suppress
from pathlib import Path

import attrs

from rocketrio_broker.addresses import FAST_PORT_DISTANCE
from rocketrio_broker.broker import Broker
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.tables.config_file import ConfigFile, ConfigFileError
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.ports import Listen, join_addr, split_addr


class MemberPorts:
    """The file, and the settings that follow from it."""

    def __init__(self, directory: Path, *, disk: Disk, listen: Listen) -> None:
        self._file = ConfigFile(directory / "ports.json", disk=disk)
        self._listen = listen
        self._ports = self._file.load(dict[str, tuple[int, int]]) or {}

    def __repr__(self) -> str:
        return f"<MemberPorts of {', '.join(self._ports) or 'none'}>"

    async def applied(self, config: BrokerConfig) -> BrokerConfig:
        """Return the settings of a member with its former ports, if they are free."""
        host, _ = split_addr(config.listen)
        if (known := self._ports.get(config.data.name)) is None:
            return config
        main, ha = known
        for port in (main, main - FAST_PORT_DISTANCE, ha):
            try:
                (await self._listen(join_addr(host, port))).close()
            except ConfigError:
                return config
        return attrs.evolve(config, listen=join_addr(host, main), ha_listen=join_addr(host, ha))

    def note(self, broker: Broker) -> None:
        """Store the ports of a running member."""
        ports = split_addr(broker.address)[1], split_addr(broker.ha_address)[1]
        name = broker.config.data.name
        if self._ports.get(name) != ports:
            self._ports[name] = ports
            with suppress(ConfigFileError):  # The file has logged it; the member serves even so.
                self._file.write(self._ports)
