"""What a server answers, over both transports."""

from tests.protocol.remoting.networks import ECHO, Network, echo, served

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import open_channel_pool


async def test_request_is_answered_with_its_fields_and_body(network: Network) -> None:
    async with served(network, {ECHO: echo}) as addr, open_channel_pool(network.dial) as pool:
        request = RemotingCommand(ECHO, ext_fields={"topic": "T"})
        request.body = b"payload"
        answer = await pool.call(addr, request)
        assert (answer.code, answer.ext_fields, bytes(answer.body)) == (
            0,
            {"topic": "T"},
            b"payload",
        )
        assert answer.is_response
        assert answer.opaque == request.opaque


async def test_unknown_code_is_answered_not_supported(network: Network) -> None:
    async with served(network, {}) as addr, open_channel_pool(network.dial) as pool:
        answer = await pool.call(addr, RemotingCommand(4242))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 4242 not supported"


async def test_bug_in_a_processor_is_answered_with_its_text_and_logged(
    network: Network, caplog: object
) -> None:
    def broken(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        raise ZeroDivisionError("by nought")

    async with (
        served(network, {ECHO: echo, 11: broken}) as addr,
        open_channel_pool(network.dial) as pool,
    ):
        answer = await pool.call(addr, RemotingCommand(11))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "ZeroDivisionError: by nought"
        assert (await pool.call(addr, RemotingCommand(ECHO))).code == 0
