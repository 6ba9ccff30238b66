"""Heartbeats of test clients, and what clients are notified of."""

from tests.broker.processors.asking import Asking

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import client
from rocketrio_protocol.remoting.channel import Channel


class Notified:
    """Counts the notifications of a client."""

    def __init__(self) -> None:
        self.groups: list[str] = []

    def __call__(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        self.groups.append(request.ext_fields["consumerGroup"])
        return None

    @property
    def processors(self) -> dict[int, "Notified"]:
        return {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self}


def heartbeat(client_id: str, *topics: str, unit_mode: bool = False) -> bytes:
    subscriptions = [SubscriptionData(topic, sub_version=1) for topic in topics]
    data = HeartbeatData(
        client_id,
        [ConsumerData("G", subscription_data_set=subscriptions, unit_mode=unit_mode)],
        [ProducerData("P")],
    )
    return fastjson.dumps(data)


async def beat(asking: Asking, client_id: str, *topics: str) -> RemotingCommand:
    return await asking.ask(client.HeartBeatRequestHeader(), heartbeat(client_id, *topics))


async def members(asking: Asking) -> list[str]:
    answer = await asking.ask(client.GetConsumerListByGroupRequestHeader("G"))
    return fastjson.loads(answer.body, ConsumerIdList).consumer_id_list if answer.code == 0 else []


async def static_beat(one: Asking, client_id: str, grace: int) -> int | None:
    header = client.HeartBeatRequestHeader(static_grace=grace)
    answer = await one.ask(header, heartbeat(client_id, "T"))
    return answer.header(client.HeartBeatResponseHeader).static_grace
