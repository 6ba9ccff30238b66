"""Finds the registered brokers and the readable queues of a topic, which most administration needs first.

Invariant: if no broker can be asked, that is an error, never an empty answer.
"""

from rocketrio.client import ClientInstance
from rocketrio.routing import subscribe_queues
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.errors import ConfigError, NoBrokerRegistered
from rocketrio_protocol.message import MessageQueue


async def registered_brokers(client: ClientInstance) -> ClusterInfo:
    """Return all brokers. Raises NoBrokerRegistered if there are none, because nothing else is known then."""
    info = await client.name_servers.cluster_info()
    if not info.broker_addr_table:
        raise NoBrokerRegistered(
            f"no broker is registered at {'; '.join(client.name_servers.addresses)}"
        )
    return info


async def readable_queues(client: ClientInstance, topic: str) -> list[MessageQueue]:
    """Return the queues of a topic. Raises RouteNotFound for an unknown topic, ConfigError if it may not be read."""
    await client.refresh_topic_route(topic)
    queues = subscribe_queues(topic, await client.topic_route(topic))
    if not queues:
        raise not_readable(topic)
    return queues


def not_readable(topic: str) -> ConfigError:
    """Return the error for a topic whose permission forbids reading."""
    return ConfigError(
        f"{topic} may not be read: older brokers create dead-letter topics without read permission",
        remedy=f"`rocketrio topic create {topic} --perm rw` or create_topic({topic!r}, perm=6) makes it readable",
    )
