"""Where messages go and come from: the client's tables and the decisions taken from them, without I/O.

`Router` holds the tables; `queues` turns a route into queues.
"""

from rocketrio.routing.queues import ordered_publish_queues, publish_queues, subscribe_queues
from rocketrio.routing.router import FindBrokerResult, Router

__all__ = [
    "FindBrokerResult",
    "Router",
    "ordered_publish_queues",
    "publish_queues",
    "subscribe_queues",
]
