"""A master that says anything in its first words: its slave looks for another connection, and goes on."""

import random

import pytest
import trio
from tests.support.clocks import SettableClock
from tests.support.replication import MASTER, MASTER_HA, SLAVE, RawPeer, fill, log_bytes
from tests.support.stores import opened
from trio.testing import MockClock

from rocketrio_broker.ha.client import HAClient
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.exchange import (
    EXCHANGE_HEAD_SIZE,
    Epoch,
    Welcome,
    encode_exchange,
    exchange_size,
)
from rocketrio_protocol.remoting.tasks import background_nursery

ANSWERS = 300


def welcome(rng: random.Random, own: list[Epoch]) -> Welcome:
    """Epochs of the slave's own, some of them changed, and others."""
    numbers = [0, 1, 2, 3, 99, 1 << 20]
    addresses = [0, 1, 100, 197, 394, 500, 2**62]
    epochs = [one for one in own if rng.random() < 0.8]
    for _ in range(rng.randrange(4)):
        other = Epoch(
            number=rng.choice(numbers),
            id=rng.choice(["a", "b", ""]),
            start=rng.choice(addresses),
            member=rng.choice(["me", "you", ""]),
            covers={rng.choice(["me", ""]): rng.choice(numbers)},
        )
        epochs.insert(rng.randrange(len(epochs) + 1), other)
    return Welcome(
        member="you",
        begin=rng.choice(addresses),
        end=rng.choice(addresses),
        highest=rng.choice(numbers),
        epochs=epochs,
    )


@pytest.mark.slow
async def test_damaged_greeting_of_a_master_does_not_end_a_slave(autojump_clock: MockClock) -> None:
    rng = random.Random(46)
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    async with opened(MemoryDisk()) as store, background_nursery() as nursery:
        await store.epochs.begin(new_name=lambda: "me", reports_disk=False)
        own = []
        for number in (1, 2):
            start = store.max_physical_offset
            own.append(Epoch(number=number, id="a", start=start, member="me"))
            await store.epochs.open(own[-1])
            fill(store, 2)
        end, log = store.max_physical_offset, log_bytes(store)
        store.begin_replication()

        async def knows_epochs() -> bool:
            return True

        client = HAClient(
            store,
            address=MasterAddress(MASTER_HA),
            dial=network.host(SLAVE).dial,
            wall_clock=SettableClock(),
            knows_epochs=knows_epochs,
        )
        await nursery.start(client.run)
        for _ in range(ANSWERS):
            peer = RawPeer(await listener.accept())
            try:
                await peer.read(exchange_size(await peer.read(EXCHANGE_HEAD_SIZE)))
                await peer.transport.send_all(encode_exchange(welcome(rng, own)))
                with trio.move_on_after(0.1):
                    if await peer.read_report() is not None:
                        await peer.send_transfer(rng.choice([0, 1, end]), rng.randbytes(30))
            except Error:
                pass
            await peer.transport.aclose()
        assert log_bytes(store) == log
        assert store.health.damage is None
