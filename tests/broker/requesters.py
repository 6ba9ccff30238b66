"""A client that waits for the replies to its requests, and those who send them."""

import attrs
import trio
from tests.broker.processors.asking import Asking

from rocketrio_protocol.bodies.heartbeat import HeartbeatData, ProducerData
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.send import SendReplyMessageRequestHeaderV2
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor

PROPERTIES = "MSG_TYPE\x01reply\x02CORRELATION_ID\x0142\x02REPLY_TO_CLIENT\x01asker\x02TTL\x013000"


@attrs.define
class Requester:
    """Waits for replies."""

    got: list[RemotingCommand] = attrs.Factory(list)
    code: int = 0
    delay: float = 0.0

    async def __call__(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        self.got.append(request)
        await trio.sleep(self.delay)
        return request.response(code=self.code, remark="as the client says")

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self}


async def beat(one: Asking, client_id: str = "asker") -> None:
    await one.beat(
        HeartbeatData(client_id, producer_data_set=[ProducerData("P"), ProducerData("Q")])
    )


def reply(
    *, topic: str = "lab_REPLY_TOPIC", queue_id: int = 0, properties: str = PROPERTIES
) -> SendReplyMessageRequestHeaderV2:
    return SendReplyMessageRequestHeaderV2(
        "repliers", topic, "TBW102", 4, queue_id, 0, 1_700_000_000_000, 3, properties
    )
