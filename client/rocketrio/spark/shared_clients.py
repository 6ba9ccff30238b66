"""The clients of a process's loop: one for each cluster and account, opened when first needed, closed when idle.

    client(...)     opens a client or returns the open one; its caller is a user of it from now on
    released(user)  the user's work is over; a client without users is closed CLIENT_IDLE seconds later

Invariant: a query never uses the account of another query.
Invariant: a client that was given to a user is not closed before the user is released, unless it failed.
Invariant: a client that failed or is being closed is never returned; the next call opens another one.
"""

import logging
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.connect import open_client
from rocketrio.ports import Ports, opened_with
from rocketrio.spark.access import OF_THE_ENVIRONMENT, ClusterAccess
from rocketrio_protocol.errors import ClosedError
from rocketrio_protocol.remoting.ports import Dial
from rocketrio_protocol.remoting.tcp import dial_tcp

CLIENT_IDLE: Final = 60.0
"""Seconds that an unused client stays open for a next task: as long as Spark keeps an idle worker process."""

logger = logging.getLogger("rocketrio.spark.runtime")


@attrs.define(eq=False)
class _SharedClient:
    """One client, from before it is open until it is closed."""

    opened: trio.Event = attrs.Factory(trio.Event)
    client: ClientInstance | None = None
    error: Exception | None = None
    users: set[object] = attrs.Factory(set)
    life: trio.CancelScope = attrs.Factory(trio.CancelScope)
    """Its deadline is the time at which an unused client is closed."""

    @property
    def is_usable(self) -> bool:
        """Whether the client is open or being opened, and will stay open."""
        is_closed = self.client is not None and self.client.is_closed
        return self.error is None and not is_closed and not self.life.cancel_called


@attrs.define(eq=False)
class SharedClients:
    """The clients of one loop; they run in `nursery`."""

    nursery: trio.Nursery
    dial: Dial = dial_tcp
    _clients: dict[tuple[tuple[str, ...], ClusterAccess], _SharedClient] = attrs.Factory(dict)

    async def client(
        self,
        name_servers: Sequence[str],
        user: object,
        access: ClusterAccess = OF_THE_ENVIRONMENT,
    ) -> ClientInstance:
        """Return the client of those name servers with that account, usable until `user` is released.

        Raises ClosedError if it failed.
        """
        key = tuple(name_servers), access
        shared = self._clients.get(key)
        if shared is None or not shared.is_usable:
            shared = self._clients[key] = _SharedClient()
            self.nursery.start_soon(self._run, key, shared)
        shared.users.add(user)
        shared.life.deadline = float("inf")
        await shared.opened.wait()
        if shared.client is None:
            raise ClosedError(
                f"the client of {';'.join(name_servers)} failed: {shared.error}"
            ) from shared.error
        return shared.client

    def released(self, user: object) -> None:
        """Note that `user` needs no client any more."""
        for shared in self._clients.values():
            if user in shared.users:
                shared.users.remove(user)
                if not shared.users:
                    shared.life.deadline = trio.current_time() + CLIENT_IDLE

    async def _run(self, key: tuple[tuple[str, ...], ClusterAccess], shared: _SharedClient) -> None:
        name_servers, access = key
        options = access.client_options(name_servers)
        try:
            async with opened_with(Ports(dial=self.dial), open_client(**options)) as client:
                shared.client = client
                shared.opened.set()
                with shared.life:
                    await trio.sleep_forever()
        # A fault in one client ends only that client; its users fail, and the next call opens another one.
        except Exception as error:
            shared.error = error
            logger.warning("client failed name_servers=%s error=%r", ";".join(name_servers), error)
        finally:
            if self._clients.get(key) is shared:
                del self._clients[key]
            shared.opened.set()
