"""An exception of this program at either end of the replication link ends that connection and nothing else."""

import pytest
from tests.support.replication import OTHER_SLAVE, SLAVE, fill, followed, master, some_log
from tests.support.waiting import eventually
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha.client import HAClient, HAClientState
from rocketrio_broker.ha.connection import HAConnection
from rocketrio_protocol.ha.stream import ReportDecoder, TransferDecoder

FAULTS = [RuntimeError("a bug"), RecursionError("too deep"), MemoryError()]
PLACES = {
    "decoding": (ReportDecoder, "feed"),
    "handling": (HAConnection, "_take_report"),
    "sending": (HAConnection, "_header"),
}


def fail_for_one(
    patch: pytest.MonkeyPatch, owner: type, name: str, fault: Exception, count: int = 1
) -> None:
    """Make a method raise the first times that it is called."""
    real = getattr(owner, name)

    def call(*args: object, **options: object) -> object:
        nonlocal count
        if count:
            count -= 1
            raise fault
        return real(*args, **options)

    patch.setattr(owner, name, call)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("place", PLACES)
async def test_fault_of_a_master_ends_the_connection_of_one_slave(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    place: str, fault: Exception,
) -> None:  # fmt: skip
    async with master(messages=3) as ours:
        end = ours.store.max_physical_offset
        served = await ours.raw_slave(SLAVE)
        await served.report(end)
        await wait_all_tasks_blocked()
        fail_for_one(monkeypatch, *PLACES[place], fault)
        unlucky = await ours.raw_slave(OTHER_SLAVE)
        await unlucky.report(0)
        assert await unlucky.wait_ended() is not None
        again = await ours.raw_slave(OTHER_SLAVE)
        await again.report(0)
        transfer = await again.read_transfer()
        assert transfer is not None
        fill(ours.store, 1)
        transfer = await served.read_transfer()
        assert transfer is not None
        assert transfer.offset == end
    assert caplog.text.count("a fault of this program ended a connection") == 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("place", [(TransferDecoder, "feed"), (HAClient, "_take")])
async def test_slave_connects_again_after_a_fault(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    place: tuple[type, str], fault: Exception,
) -> None:  # fmt: skip
    log = await some_log(20)
    async with followed() as (theirs, ours):
        fail_for_one(monkeypatch, *place, fault)
        peer = await theirs.accept()
        await peer.send_transfer(0, log)
        assert await peer.wait_ended() is not None
        assert ours.client.state is HAClientState.PAUSING
        peer = await theirs.accept()
        await peer.send_transfer(0, log)
        await eventually(lambda: ours.store.max_physical_offset == len(log))
    assert caplog.text.count("a fault of this program ended a connection") == 1
