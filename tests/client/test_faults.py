"""A fault of this program in what a server has sent comes out of each call as an Error, and of nothing else."""

import pytest
from tests.support.clients import open_producer
from tests.support.raw_server import ADDRESS, ROUTE, raw_server, told
from trio.testing import MockClock

from rocketrio import Message
from rocketrio_protocol import command
from rocketrio_protocol.errors import Error

FAULTS = [RuntimeError("a bug"), RecursionError("too deep"), MemoryError()]
ROUTE_CODE = 105


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_producer_at_a_lying_name_server_raises_a_documented_error(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    real = command.decode_header

    def decode(serialize_type: int, header: bytes) -> object:
        if b"a lie" in header:
            raise fault
        return real(serialize_type, header)

    monkeypatch.setattr(command, "decode_header", decode)
    async with raw_server() as server:
        server.answers[ROUTE_CODE] = [told(body=ROUTE, remark="a lie")]
        with pytest.raises(Error):
            async with open_producer(
                name_servers=[ADDRESS], dial=server.network.host("10.0.0.100").dial
            ) as producer:
                await producer.send(Message("orders", b"x"))
