"""kill -9 of a broker process under load with synchronous flush: nothing that was acknowledged is lost."""

import subprocess
from pathlib import Path

import attrs
import pytest
import trio
from tests.cluster.killed_broker import QUEUES, broker_process, read_everything
from tests.support.caller import Caller
from tests.support.waiting import HANGS, eventually

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import Error
from rocketrio_protocol.record.batch import encode_batch
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROUNDS = 2
SENDERS = 16


@attrs.define
class Acknowledged:
    """What the broker said it has: body by queue and offset."""

    bodies: dict[tuple[int, int], bytes] = attrs.Factory(dict)
    sent: int = 0


async def send_forever(caller: Caller, addr: str, acknowledged: Acknowledged, number: int) -> None:
    """Singles and batches in turn, until the connection breaks."""
    while True:
        acknowledged.sent += 1
        bodies = [b"%d-%d-%d" % (number, acknowledged.sent, part) for part in range(3)]
        is_batch = acknowledged.sent % 3 == 0
        try:
            answer = await caller.send(
                addr,
                encode_batch([(0, body, b"") for body in bodies]) if is_batch else bodies[0],
                queue_id=number % QUEUES,
                batch=is_batch,
            )
        except Error:
            return
        if answer.code == ResponseCode.SUCCESS:
            first = int(answer.ext_fields["queueOffset"])
            for index, body in enumerate(bodies if is_batch else bodies[:1]):
                acknowledged.bodies[number % QUEUES, first + index] = body


async def load_until_killed(
    process: "subprocess.Popen[str]", addr: str, acknowledged: Acknowledged, count: int
) -> None:
    """Kill it when `count` more messages are acknowledged."""
    wanted = len(acknowledged.bodies) + count
    async with open_channel_pool(dial_tcp) as pool, trio.open_nursery() as nursery:
        for number in range(SENDERS):
            nursery.start_soon(send_forever, Caller(pool), addr, acknowledged, number)
        await eventually(lambda: len(acknowledged.bodies) >= wanted, HANGS, interval=0.01)
        process.kill()


def test_acknowledged_messages_survive_kill(tmp_path: Path) -> None:
    acknowledged, listen = Acknowledged(), "127.0.0.1:0"
    for number in range(ROUNDS):
        with broker_process(tmp_path / "data", listen) as (process, addr):
            trio.run(load_until_killed, process, addr, acknowledged, 100 + 50 * number)
            process.wait()
        with broker_process(tmp_path / "data", addr) as (process, addr):
            found = trio.run(read_everything, addr)
            process.terminate() if number % 2 else process.kill()
            process.wait()
        listen = addr
        served = {(message.queue_id, message.queue_offset): message.body for message in found}
        assert acknowledged.bodies.items() <= served.items()
        for message in found:
            assert message.check_crc()
