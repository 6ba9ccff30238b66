"""A master of another broker name in an embedded cluster."""

import attrs

from rocketrio_broker.embedded import EmbeddedCluster, Member


async def second_master(cluster: EmbeddedCluster, name: str = "broker-b") -> Member:
    """Start a master of this name, which shares topics with the first one; it ends with the cluster."""
    base = cluster._member(7)
    config = attrs.evolve(base.config, broker_name=name, broker_id=0, role="async-master")
    member = Member(cluster, config, base.host)
    await member.start()
    return member
