"""Replication with peers who are only recordings: what Apache's master and slave said to each other."""

from pathlib import Path

import pytest
import trio
from tests.golden.golden import VERSIONS, RecordedFrame, recorded_frames, unpack_store
from tests.support.clocks import SettableClock
from tests.support.replication import MASTER, MASTER_HA, SLAVE, RawPeer, log_bytes
from tests.support.stores import opened, read_all
from trio.testing import wait_all_tasks_blocked

from rocketrio_broker.ha.client import HAClient
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.service import HAService
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.ha.stream import ReportDecoder

RECORDED_STORE = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=6000,
    max_hash_slot_num=997,
    max_index_num=4000,
)
"""How the recorded brokers were started."""


def ha_frames(run: str) -> list[RecordedFrame]:
    frames = [frame for frame in recorded_frames(run) if frame.server == "ha"]
    assert len({frame.connection for frame in frames}) == 1
    return frames


def replicated_size(frames: list[RecordedFrame]) -> int:
    """The end of the slave's log: its last report."""
    reports = [ReportDecoder().feed(frame.data) for frame in frames if frame.from_dialer]
    assert reports[-1]
    return reports[-1]


def slave_log(run: str, tmp_path: Path, size: int) -> bytes:
    """The commit log that Apache's slave left."""
    first = unpack_store(run, "slave", tmp_path) / "commitlog" / f"{0:020}"
    return first.read_bytes()[:size]


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [None, 1, 1000], ids=["as recorded", "byte by byte", "large"])
@pytest.mark.parametrize("run", VERSIONS)
async def test_recorded_transfers_build_the_slave_s_log_to_the_byte(
    tmp_path: Path, run: str, chunk: int | None
) -> None:
    """And what lies in it can be read: the store built its queues from the copied bytes."""
    frames = ha_frames(run)
    size = replicated_size(frames)
    sent = [frame.data for frame in frames if not frame.from_dialer]
    if chunk is not None:
        stream = b"".join(sent)
        sent = [stream[start : start + chunk] for start in range(0, len(stream), chunk)]
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    async with opened(MemoryDisk(), RECORDED_STORE) as store, trio.open_nursery() as nursery:
        store.begin_replication()
        client = HAClient(
            store,
            address=MasterAddress(MASTER_HA),
            dial=network.host(SLAVE).dial,
            wall_clock=SettableClock(),
        )
        await nursery.start(client.run)
        peer = RawPeer(await listener.accept())
        for data in sent:
            await peer.transport.send_all(data)
        await store.dispatched.wait_reached(size)
        assert log_bytes(store) == slave_log(run, tmp_path / "copied", size)
        assert client.statistics().last_problem is None
        apache = unpack_store(run, "slave", tmp_path / "opened")
        async with opened(InlineDisk(), RECORDED_STORE, root=apache) as theirs:
            assert store.queues().keys() == theirs.queues().keys()
            for topic, queues in theirs.queues().items():
                for queue_id in queues:
                    records = read_all(theirs, topic, queue_id)
                    assert records
                    assert read_all(store, topic, queue_id) == records
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("run", VERSIONS)
async def test_recorded_slave_is_fed_the_recorded_log(tmp_path: Path, run: str) -> None:
    """Our master on Apache's data gives Apache's slave, by its own reports, the bytes Apache's master gave it."""
    frames = ha_frames(run)
    size = replicated_size(frames)
    root = unpack_store(run, "master", tmp_path / "opened")
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    async with (
        opened(InlineDisk(), RECORDED_STORE, root=root) as store,
        trio.open_nursery() as nursery,
    ):
        service = HAService(store, listener, wall_clock=SettableClock())
        await nursery.start(service.run)
        peer = RawPeer(await network.host(SLAVE).dial(MASTER_HA))
        received = b""
        started_ms = frames[0].time_ms
        for frame in frames:
            if not frame.from_dialer:
                continue
            # The recorded slave's clock is ours: a report that comes too late would end the connection.
            await trio.sleep_until((frame.time_ms - started_ms) / 1000)
            await peer.transport.send_all(frame.data)
            await wait_all_tasks_blocked()
            if not received:
                transfers = await peer.read_log(size)
                received = b"".join(transfer.body for transfer in transfers)
        assert received == slave_log(run, tmp_path / "copied", size)
        (connection,) = service.connections
        assert connection.slave_ack_offset == size
        nursery.cancel_scope.cancel()
