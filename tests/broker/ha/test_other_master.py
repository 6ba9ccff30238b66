"""A broker that starts asks which other one is master of its name."""

from collections.abc import Mapping

import attrs
import pytest
import trio
from trio.testing import MockClock

from rocketrio_broker.ha.other_master import OtherMaster, find_other_masters
from rocketrio_broker.ha.peers import Peers
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.ha.status import HARuntimeInfo, OwnStatus
from rocketrio_protocol.headers import RequestHeader

OTHER = "10.0.0.2:10911"
SETTINGS = b"brokerName=broker-a\nbrokerId=0\nhaListenPort=10912\n"


@attrs.define
class Answering:
    """Answers each request with its body."""

    bodies: Mapping[int, bytes]

    async def call(
        self, addr: str, request: RequestHeader, body: bytes = b"", *, timeout: float = 3.0
    ) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        asked = RemotingCommand.request(request)
        if request.code not in self.bodies:
            return asked.response(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return asked.response(body=self.bodies[request.code])


async def found(settings: bytes, own: OwnStatus | None) -> list[OtherMaster]:
    bodies: dict[int, bytes] = {RequestCode.GET_BROKER_CONFIG: settings}
    if own is not None:
        status = HARuntimeInfo(master=own.role != "slave", rocketrio=own)
        bodies[RequestCode.GET_BROKER_HA_STATUS] = status.to_json()
    peers = Peers(*2 * [Answering(bodies).call], (), "broker-a", "10.0.0.1:10911")
    return list((await find_other_masters(peers, OTHER)).masters)


@pytest.mark.parametrize("claims", [True, False])
async def test_master_of_the_name_leads_unless_it_claims_nothing(
    autojump_clock: MockClock, claims: bool
) -> None:
    own = OwnStatus(role="async-master", broker_id=0, claims=claims, max_offset=7)
    assert await found(SETTINGS, own) == [OtherMaster(OTHER, "10.0.0.2:10912", True, claims, 7)]
    assert await found(SETTINGS, None) == [OtherMaster(OTHER, "10.0.0.2:10912")]
    assert await found(SETTINGS.replace(b"brokerId=0", b"brokerId=1"), own) == []


async def test_master_that_becomes_a_slave_while_it_is_asked_is_no_master(
    autojump_clock: MockClock,
) -> None:
    """It has just handed over: if the new master followed it, nobody would take writes."""
    assert await found(SETTINGS, OwnStatus(role="slave", broker_id=1)) == []
