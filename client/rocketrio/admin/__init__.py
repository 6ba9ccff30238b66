"""Administration of a cluster: topics, groups, offsets, brokers and their replication.

async with open_admin(name_servers=["10.0.0.1:9876"]) as admin:
    await admin.create_topic("orders", queues=8)
"""

from rocketrio.admin.admin import Admin, open_admin
from rocketrio.admin.admin_values import (
    BrokerDescription,
    HandOver,
    OffsetReset,
    QueueOffsets,
    TopicDescription,
)
from rocketrio.admin.cluster_status import BrokerStatus
from rocketrio.admin.dead_letters import DeadLetters
from rocketrio.admin.group_admin import GroupSettings
from rocketrio.admin.served import Served, served
from rocketrio_protocol.errors import QueryNotFound, RequestCodeNotSupported

__all__ = [
    "Admin",
    "BrokerDescription",
    "BrokerStatus",
    "DeadLetters",
    "GroupSettings",
    "HandOver",
    "OffsetReset",
    "QueryNotFound",
    "QueueOffsets",
    "RequestCodeNotSupported",
    "Served",
    "TopicDescription",
    "open_admin",
    "served",
]
