"""Data directories of Apache 4.9.7 and 5.3.3, killed with -9: opened, served, and rebuilt to the same bytes."""

import shutil
from pathlib import Path

import attrs
import pytest
from tests.broker.store.generated_logs import use_columns_from
from tests.golden.golden import unpack_store
from tests.support.stores import APACHE, opened, read_all

from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.record_columns import FEW_RECORDS
from rocketrio_protocol.record.decode import RecordStatus, scan_record

RUNS = [
    pytest.param(run, role, id=f"{run}-{role}")
    for run in ("4.9.7", "5.3.3")
    for role in ("master", "slave")
]


@pytest.fixture(params=[1, FEW_RECORDS], ids=["columns", "records"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_columns_from(monkeypatch, request.param)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def index_bytes(root: Path) -> bytes:
    (path,) = (root / "index").iterdir()
    return path.read_bytes()


def records_in(log: bytes) -> list[tuple[str, int, int, int]]:
    """(topic, queue id, queue offset, address) of every record that consumers see."""
    found = []
    position = 0
    while (record := scan_record(log, position, len(log))).status is RecordStatus.RECORD:
        if record.sys_flag & 0xC in (0, 8):
            found.append((record.topic, record.queue_id, record.queue_offset, position))
        position += record.size
    return found


def served(store: MessageStore) -> list[tuple[str, int, int, int]]:
    found = []
    for topic, queues in store.queues().items():
        for queue_id in queues:
            for data in read_all(store, topic, queue_id):
                record = scan_record(data, 0, len(data))
                found.append((topic, queue_id, record.queue_offset, record.physical_offset))
    return found


@pytest.mark.parametrize(("run", "role"), RUNS)
async def test_killed_directory_is_served_whole(run: str, role: str, tmp_path: Path) -> None:
    root = unpack_store(run, role, tmp_path)  # type: ignore[arg-type]
    before = contents(root / "consumequeue")
    log = (root / "commitlog" / "00000000000000000000").read_bytes()
    async with opened(InlineDisk(), APACHE, root=root) as store:
        assert store.max_physical_offset > 5000
        messages = [
            entry for entry in records_in(log) if (root / "consumequeue" / entry[0]).exists()
        ]
        assert sorted(served(store)) == sorted(messages)
        assert len(messages) > 20
    after = contents(root / "consumequeue")
    assert {name: after[name] for name in before} == before
    end = store_end(log)
    assert (root / "commitlog" / "00000000000000000000").read_bytes()[:end] == log[:end]
    assert not (root / "abort").exists()


def store_end(log: bytes) -> int:
    position = 0
    while (record := scan_record(log, position, len(log))).status is RecordStatus.RECORD:
        position += record.size
    return position


@pytest.mark.parametrize(("run", "role"), RUNS)
async def test_index_is_repaired_to_the_same_bytes(run: str, role: str, tmp_path: Path) -> None:
    root = unpack_store(run, role, tmp_path)  # type: ignore[arg-type]
    before = index_bytes(root)
    async with opened(InlineDisk(), APACHE, root=root):
        pass
    assert index_bytes(root) == before


@pytest.mark.parametrize(("run", "role"), RUNS)
async def test_index_built_from_the_log_equals_apaches(run: str, role: str, tmp_path: Path) -> None:
    root = unpack_store(run, role, tmp_path)  # type: ignore[arg-type]
    before = index_bytes(root)
    shutil.rmtree(root / "index")
    async with opened(InlineDisk(), APACHE, root=root):
        pass
    assert index_bytes(root) == before


@pytest.mark.parametrize(("run", "role"), RUNS)
async def test_queues_built_from_the_log_equal_apaches(run: str, role: str, tmp_path: Path) -> None:
    """Delayed messages, transactions and a topic that was deleted included."""
    root = unpack_store(run, role, tmp_path)  # type: ignore[arg-type]
    before = contents(root / "consumequeue")
    shutil.rmtree(root / "consumequeue")
    async with opened(InlineDisk(), APACHE, root=root):
        pass
    after = contents(root / "consumequeue")
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("run", ["4.9.7", "5.3.3"])
async def test_slave_fed_by_replication_builds_the_masters_files(run: str, tmp_path: Path) -> None:
    root = unpack_store(run, "master", tmp_path)
    log = (root / "commitlog" / "00000000000000000000").read_bytes()
    end = store_end(log)
    own = tmp_path / "slave"
    async with opened(InlineDisk(), attrs.evolve(APACHE), root=own) as store:
        store.begin_replication()
        for start in range(0, end, 777):
            store.append_raw(start, log[start : min(start + 777, end)])
        await store.dispatched.wait_reached(end)
    assert (own / "commitlog" / "00000000000000000000").read_bytes()[:end] == log[:end]
    theirs, ours = contents(root / "consumequeue"), contents(own / "consumequeue")
    assert {name: ours[name] for name in theirs} == theirs
    assert index_bytes(own) == index_bytes(root)
