"""The first words between two brokers, from whom they may come and what they may not do (`ha/exchange.py`)."""

import random
from typing import Any

import pytest
import trio
from tests.support.replication import MASTER_HA, RawPeer, log_bytes, master
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha.errors import EpochEndedError, NotFollowedError
from rocketrio_broker.ha.exchange import (
    ANNOUNCED_AHEAD_LIMIT,
    ANSWERED_AHEAD_LIMIT,
    READER,
    ask_welcome,
)
from rocketrio_broker.testing.memory_network import MemoryStream
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.exchange import (
    EXCHANGE_HEAD_SIZE,
    EXCHANGE_MAGIC,
    Epoch,
    Greeting,
    Welcome,
    encode_exchange,
)

STRANGER = "10.0.0.66"


def greeting(**fields: Any) -> Greeting:
    return Greeting(**{"member": "stranger", "begin": 0, "end": 0, "highest": 0} | fields)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"member":"\xf5","begin":0,"end":0,"highest":0}', id="no UTF-8"),
        pytest.param(b'{"later":' + b"[" * 500_000, id="deep"),
        pytest.param(b'{"member":"m","begin":0,"end":0,"highest":1e400}', id="no number"),
        pytest.param(b"\0" * 100, id="nothing"),
    ],
)
async def test_greeting_that_cannot_be_read_ends_its_connection_and_nothing_else(
    autojump_clock: MockClock, body: bytes
) -> None:
    async with master(messages=5) as ours:
        stranger = await ours.raw_slave(STRANGER)
        await stranger.transport.send_all(EXCHANGE_MAGIC + len(body).to_bytes(4) + body)
        await stranger.wait_ended()
        slave = await ours.raw_slave()
        await slave.report(0)
        (transfer,) = await slave.read_log(ours.store.max_physical_offset)
        assert transfer.body == log_bytes(ours.store)
        assert "cannot be decoded" in (ours.service.statistics().last_refusal or "")


async def test_announcement_far_ahead_is_ignored_and_not_stored(
    autojump_clock: MockClock,
) -> None:
    """The next epoch here would need a greater number: one stranger could use them all up."""
    async with master(messages=5) as ours:
        stranger = await ours.raw_slave(STRANGER)
        far = greeting(opens=ANNOUNCED_AHEAD_LIMIT + 1)
        await stranger.transport.send_all(encode_exchange(far))
        await stranger.wait_ended()
        assert ours.store.epochs.highest == 0
        assert "knows none after 0" in (ours.service.statistics().last_refusal or "")
        asker = await ours.network.host(STRANGER).dial(MASTER_HA)
        answer = await ask_welcome(asker, greeting(opens=ANNOUNCED_AHEAD_LIMIT))
        assert answer.highest == 0
        assert ours.store.epochs.highest == ANNOUNCED_AHEAD_LIMIT


async def test_greeting_after_many_announcements_is_understood(
    autojump_clock: MockClock,
) -> None:
    """By a new member too, which has heard of none: otherwise strangers could part them."""
    async with master(messages=5) as ours:
        dial = ours.network.host(STRANGER).dial
        for count in range(1, 4):
            await ask_welcome(await dial(MASTER_HA), greeting(opens=count * ANNOUNCED_AHEAD_LIMIT))
        answer = await ask_welcome(await dial(MASTER_HA), greeting())
        assert answer.highest == 3 * ANNOUNCED_AHEAD_LIMIT


async def test_answer_with_numbers_far_ahead_is_ignored(autojump_clock: MockClock) -> None:
    async with master() as ours:
        listener = await ours.network.host(STRANGER).listen(f"{STRANGER}:1")

        async def answer() -> None:
            peer = RawPeer(await listener.accept())
            await peer.read(EXCHANGE_HEAD_SIZE)
            far = Welcome(member="m", begin=0, end=0, highest=7 + ANSWERED_AHEAD_LIMIT + 1)
            await peer.transport.send_all(encode_exchange(far))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            transport = await ours.network.host("10.0.0.2").dial(f"{STRANGER}:1")
            with pytest.raises(RemoteProtocolError, match="knows none after 7"):
                await ask_welcome(transport, greeting(highest=7))


@pytest.mark.slow
async def test_damaged_greeting_does_not_end_the_service(autojump_clock: MockClock) -> None:
    """Of a synchronous master, which writes down who counts; what is left of a greeting after some changes."""
    rng = random.Random(45)
    lines = [Epoch(number=number, id=f"{number:016x}", start=100 * number) for number in range(3)]
    whole = encode_exchange(greeting(end=500, highest=2, epochs=lines))
    pieces = [b'"', b"-", b"9" * 30, b"\\ud800", b"\\u0000", b"null", b"{", b"\xff", b"1e5", b"[]"]
    async with master(messages=5) as ours:
        epochs = ours.store.epochs
        await epochs.begin(new_name=lambda: "us", reports_disk=False)
        end = ours.store.max_physical_offset
        await epochs.open(Epoch(number=1, id="a", start=end, member="us", mode="sync"))
        for _ in range(300):
            said = bytearray(whole)
            for _ in range(rng.randrange(4)):
                at = rng.randrange(EXCHANGE_HEAD_SIZE, len(said))
                said[at : at + rng.randrange(8)] = rng.choice(pieces)
            said[8:EXCHANGE_HEAD_SIZE] = (len(said) - EXCHANGE_HEAD_SIZE).to_bytes(4)
            stranger = await ours.raw_slave(STRANGER)
            await stranger.transport.send_all(bytes(said) + bytes(rng.randrange(2) * 8))
            await wait_all_tasks_blocked()
            await stranger.transport.aclose()
        slave = await ours.raw_slave()
        await slave.report(0)
        (transfer,) = await slave.read_log(end)
        assert transfer.body == log_bytes(ours.store)
    assert epochs.lines[-1].member == "us"


async def test_broker_that_may_not_be_followed_refuses_slaves_and_serves_those_that_compare(
    autojump_clock: MockClock,
) -> None:
    refusal = "No slave may follow it"
    async with master(messages=5, refusal=lambda: refusal) as ours:
        dial = ours.network.host(STRANGER).dial
        with pytest.raises(NotFollowedError, match=refusal):
            await ask_welcome(await dial(MASTER_HA), greeting(broker_id=1))
        for others in (READER, greeting(), greeting(broker_id=1, asks_only=True)):
            await ask_welcome(await dial(MASTER_HA), others)
        apache = await ours.raw_slave()
        await apache.report(0)
        (transfer,) = await apache.read_log(ours.store.max_physical_offset)
        assert transfer.body == log_bytes(ours.store)


async def test_broker_that_may_no_longer_be_followed_ends_the_connections_of_slaves(
    autojump_clock: MockClock,
) -> None:
    refusal = ""
    async with master(messages=5, refusal=lambda: refusal) as ours:
        slave, fetching = await ours.raw_slave(), await ours.raw_slave()
        await ask_welcome(slave.transport, greeting(member="slave", broker_id=1))
        await ask_welcome(fetching.transport, greeting(member="new master"))
        refusal = "No slave may follow it any more"
        ours.service.end_followers()
        await slave.wait_ended()
        await wait_all_tasks_blocked()
        (left,) = ours.service.statistics().connections
        assert left.member == "new master"
        assert refusal in (ours.service.statistics().last_refusal or "")


async def test_greeting_is_answered_before_the_note_that_there_are_other_epochs(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends when the master has just read who the slave is."""
    send_all = MemoryStream.send_all

    async def send_once_there_is_room(self: MemoryStream, data: bytes) -> None:
        await trio.lowlevel.checkpoint()  # As a socket does.
        await send_all(self, data)

    monkeypatch.setattr(MemoryStream, "send_all", send_once_there_is_room)
    async with master(messages=5) as ours:
        slave = await ours.raw_slave()
        await slave.transport.send_all(encode_exchange(greeting(member="slave", broker_id=1)))
        with trio.fail_after(1):
            while not any(each.greeting for each in ours.service.connections):
                await trio.lowlevel.checkpoint()
        (connection,) = ours.service.connections
        connection.end(EpochEndedError("Another epoch begins"))
        assert (await slave.read(EXCHANGE_HEAD_SIZE)).startswith(EXCHANGE_MAGIC)
