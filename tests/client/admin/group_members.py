"""Members of a group as brokers list them, and what each says of its queues."""

from rocketrio_protocol.bodies.heartbeat import SubscriptionData
from rocketrio_protocol.bodies.running_info import ConsumerRunningInfo, ProcessQueueInfo
from rocketrio_protocol.bodies.stats import Connection
from rocketrio_protocol.message import MessageQueue


def member(client_id: str, version: int = 400) -> Connection:
    return Connection(client_id, "10.0.0.9:1", "JAVA", version)


def state(*queues: MessageQueue, tags: str = "*", topic: str = "orders") -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        subscription_set=[SubscriptionData(topic, tags), SubscriptionData("%RETRY%g")],
        mq_table={queue: ProcessQueueInfo() for queue in queues},
    )
