"""Where messages are sent to and read from: the client's tables and the decisions based on them, without I/O.

`Router` holds the tables; `queues` turns a route into queues; `read_policy`, `replica_views` and `pull_nodes` decide
which replica is read, from what is known of each, and give the reason.
"""

from rocketrio.routing.pull_nodes import PullNodes, PullReason
from rocketrio.routing.queues import ordered_publish_queues, publish_queues, subscribe_queues
from rocketrio.routing.read_policy import ReadFrom, ReadPolicy
from rocketrio.routing.router import FindBrokerResult, Router

__all__ = [
    "FindBrokerResult",
    "PullNodes",
    "PullReason",
    "ReadFrom",
    "ReadPolicy",
    "Router",
    "ordered_publish_queues",
    "publish_queues",
    "subscribe_queues",
]
