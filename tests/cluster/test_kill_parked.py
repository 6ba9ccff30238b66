"""kill -9 of a broker process while delayed messages and transactions are under way: nothing acknowledged is lost."""

import itertools
from collections import Counter
from pathlib import Path

import attrs
import pytest
import trio
from tests.cluster.killed_broker import broker_process, read_everything
from tests.support.caller import Caller
from tests.support.waiting import HANGS, eventually

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.transaction import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    EndTransactionRequestHeader,
)
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROUNDS = 2
SENDERS = 8
NUMBERS = itertools.count()


@attrs.define
class Promised:
    """What the broker said of each body."""

    delivered: set[bytes] = attrs.Factory(set)
    """Accepted as delayed, or committed."""
    never: set[bytes] = attrs.Factory(set)
    """Rolled back."""


async def send_delayed(caller: Caller, addr: str, promised: Promised) -> None:
    body = b"delayed-%d" % next(NUMBERS)
    if (await caller.send(addr, body, properties="DELAY\x011")).code == ResponseCode.SUCCESS:
        promised.delivered.add(body)


async def send_transaction(caller: Caller, addr: str, promised: Promised) -> None:
    number = next(NUMBERS)
    decision = TRANSACTION_ROLLBACK if number % 3 == 0 else TRANSACTION_COMMIT
    body = b"transaction-%d" % number
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01K{number}"
    half = await caller.send(addr, body, properties=properties, sys_flag=4)
    if half.code != ResponseCode.SUCCESS:
        return
    header = EndTransactionRequestHeader(
        "p",
        int(half.ext_fields["queueOffset"]),
        int(half.ext_fields["msgId"][-16:], 16),
        decision,
        f"K{number}",
    )
    if (await caller.pool.call(addr, header)).code == ResponseCode.SUCCESS:
        (promised.delivered if decision == TRANSACTION_COMMIT else promised.never).add(body)


async def work_until_killed(kill: object, addr: str, promised: Promised, count: int) -> None:
    """Kill it when `count` more messages are to be delivered, and a tenth of them never."""
    delivered, never = len(promised.delivered) + count, len(promised.never) + count // 10

    async def work(caller: Caller, number: int) -> None:
        send = send_transaction if number % 2 else send_delayed
        try:
            while True:
                await send(caller, addr, promised)
        except Error:
            return

    async with open_channel_pool(dial_tcp) as pool, trio.open_nursery() as nursery:
        for number in range(SENDERS):
            nursery.start_soon(work, Caller(pool), number)
        await eventually(
            lambda: len(promised.delivered) >= delivered and len(promised.never) >= never,
            HANGS,
            interval=0.01,
        )
        assert callable(kill)
        kill()


async def read_when_due(addr: str, promised: Promised) -> Counter[bytes]:
    """Read until all that was promised is there."""
    found: Counter[bytes] = Counter()

    async def is_all_there() -> bool:
        found.clear()
        found.update(message.body for message in await read_everything(addr))
        return promised.delivered <= found.keys()

    await eventually(is_all_there, HANGS)
    return found


def test_what_was_parked_survives_kill(tmp_path: Path) -> None:
    promised, listen = Promised(), "127.0.0.1:0"
    for number in range(ROUNDS):
        with broker_process(tmp_path / "data", listen) as (process, addr):
            trio.run(work_until_killed, process.kill, addr, promised, 100 + 50 * number)
            process.wait()
        with broker_process(tmp_path / "data", addr) as (process, addr):
            found = trio.run(read_when_due, addr, promised)
            process.kill()
            process.wait()
        listen = addr
        assert not promised.never & found.keys()
        committed = {body for body in found if body.startswith(b"transaction")}
        assert all(found[body] == 1 for body in committed)
