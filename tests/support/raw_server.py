"""A name server and broker of another make: every byte of their answers is the test's.

async with raw_server() as server:
    server.answers[105] = [body(ROUTE)]        the answers to a code, in turn; the last one again and again
"""

import json
import re
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
import trio
from tests.support.clients import open_client
from tests.support.raw_frames import json_framed, unframed

from rocketrio import ClientInstance
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.ports import Listener, Transport
from rocketrio_protocol.remoting.tasks import background_nursery

HOST, CLIENT = "10.0.0.1", "10.0.0.100"
ADDRESS = f"{HOST}:10911"

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c"}],'
    b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":2,"topicSysFlag":0,'
    b'"writeQueueNums":2}]}'
)

_OPAQUE = re.compile(rb'"opaque":\s*-?\d+')

Answer = Callable[[dict[str, Any]], bytes]
"""From the header of a request to the whole frame that answers it; no bytes for no answer."""


def told(code: int = 0, fields: object = None, body: bytes = b"", **members: Any) -> Answer:
    """An answer with a JSON header; a member of None is left out."""

    def answer(request: dict[str, Any]) -> bytes:
        header = {
            "code": code,
            "extFields": fields,
            "flag": 1,
            "language": "JAVA",
            "opaque": request["opaque"],
            "serializeTypeCurrentRPC": "JSON",
            "version": 407,
            **members,
        }
        return json_framed(header, body)

    return answer


def answer_of(frame: bytes) -> Answer:
    """Answer with a frame that there is already, under the number of the request."""

    def answer(request: dict[str, Any]) -> bytes:
        changed = _OPAQUE.sub(b'"opaque":%d' % request["opaque"], frame, 1)
        added = len(changed) - len(frame)
        if not added or len(changed) < 8:
            return changed
        head = bytearray(changed)
        for at, size in ((0, 4), (5, 3)):  # The number may be longer than the one that was there.
            length = int.from_bytes(head[at : at + size]) + added
            head[at : at + size] = (length % (1 << 8 * size)).to_bytes(size)
        return bytes(head)

    return answer


@attrs.define
class RawServer:
    """What it answers, and what it was asked."""

    network: MemoryNetwork
    nursery: trio.Nursery
    answers: dict[int, list[Answer]] = attrs.Factory(dict)
    held: dict[int, float] = attrs.Factory(dict)
    """Codes, and the seconds that their answers take, as those of pulls do."""
    asked: list[tuple[dict[str, Any], bytes]] = attrs.Factory(list)
    connections: list[Transport] = attrs.Factory(list)
    _sending: trio.Lock = attrs.Factory(trio.Lock)

    def serve_idle(self, client: ClientInstance, offset: int = 0, held: float = 1.0) -> None:
        """Answer as a broker whose queues end where the client's group stands; the client is the only member."""
        at = {"offset": str(offset)}
        nothing = dict.fromkeys(("nextBeginOffset", "maxOffset"), str(offset))
        nothing |= dict.fromkeys(("minOffset", "suggestWhichBrokerId"), "0")
        members = json.dumps({"consumerIdList": [client.client_id]}).encode()
        sent = {"msgId": "0A", "queueId": "0", "queueOffset": "0"}
        self.answers |= {
            11: [told(ResponseCode.PULL_NOT_FOUND, nothing)],
            14: [told(fields=at)], 15: [told()], 30: [told(fields=at)], 31: [told(fields={"offset": "0"})],
            36: [told()], 38: [told(body=members)], 310: [told(fields=sent)],
        }  # fmt: skip
        self.held[11] = held

    def of(self, code: int) -> list[tuple[dict[str, Any], bytes]]:
        """The requests of one code."""
        return [(header, body) for header, body in self.asked if header["code"] == code]

    async def serve(self, listener: Listener) -> None:
        while True:
            transport = await listener.accept()
            self.connections.append(transport)
            self.nursery.start_soon(self._answer, transport)

    async def _answer(self, transport: Transport) -> None:
        received, buffer = bytearray(), memoryview(bytearray(1 << 16))
        with suppress(NotReachableError):
            while size := await transport.receive_into(buffer):
                received += buffer[:size]
                while len(received) >= 4:
                    (length,) = struct.unpack_from(">i", received)
                    if len(received) < 4 + length:
                        break
                    frame = bytes(received[: 4 + length])
                    del received[: 4 + length]
                    await self._act(transport, frame)
        await transport.aclose()

    async def _act(self, transport: Transport, frame: bytes) -> None:
        serialize_type, written, body = unframed(frame)
        if serialize_type:
            raise NotReachableError("This server reads nothing but JSON, and hangs up")
        header = json.loads(written)
        self.asked.append((header, body))
        answers = self.answers.get(header["code"], [])
        if answers and not header["flag"] & 3:
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            seconds = self.held.get(header["code"], 0)
            self.nursery.start_soon(self.send, transport, answer(header), seconds)

    async def send(self, transport: Transport, data: bytes, after: float = 0) -> None:
        """To one of its clients, later."""
        await trio.sleep(after)
        with suppress(NotReachableError):
            async with self._sending:
                await transport.send_all(data)


@asynccontextmanager
async def raw_server() -> AsyncGenerator[RawServer]:
    """One that serves, and takes heartbeats and leave."""
    network = MemoryNetwork()
    listener = await network.host(HOST).listen(ADDRESS)
    async with background_nursery() as nursery:
        server = RawServer(network, nursery)
        server.answers = {34: [told()], 35: [told()], 105: [told(body=ROUTE)]}
        nursery.start_soon(server.serve, listener)
        yield server


@asynccontextmanager
async def server_and_client() -> AsyncGenerator[tuple[RawServer, ClientInstance]]:
    """With a rocketrio client."""
    async with raw_server() as server:
        dial = server.network.host(CLIENT).dial
        async with open_client(name_servers=[ADDRESS], dial=dial) as client:
            yield server, client
