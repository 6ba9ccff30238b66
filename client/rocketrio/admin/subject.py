"""The base of all subjects of administration: a client, its requests to single brokers, and the list of brokers."""

import attrs

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.client import ClientInstance
from rocketrio.live import Live
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import RouteNotFoundError


@attrs.define(eq=False)
class AdminSubject(Live):
    """The part of `Admin` about one subject. One that asks questions of another subject inherits from that.

    Every method raises NotReachableError without a name server.
    """

    # Only this class has fields: Admin inherits from several subjects, and only one base may lay out its slots.
    client: ClientInstance
    calls: AdminCalls
    """The single requests, each to a given address."""

    async def cluster_info(self) -> ClusterInfo:
        """Return all broker names with their addresses, by cluster."""
        return await self.client.name_servers.cluster_info()

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Return the addresses of all masters (of one cluster) by broker name. Raises RouteNotFoundError."""
        info = await registered_brokers(self.client)
        masters = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in info.broker_addr_table.items()
            if MASTER_ID in broker.broker_addrs and cluster in (None, broker.cluster)
        }
        if not masters:
            where = "" if cluster is None else f" in cluster {cluster!r}"
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise RouteNotFoundError(
                f"no master is registered{where}; known clusters: {known}",
                remedy="Start a broker, or name another cluster",
            )
        return masters
