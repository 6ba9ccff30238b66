"""A master that lost its log, and the name server that knew its slaves, does not begin a second history unnoticed."""

from pathlib import Path
from typing import Any

import pytest
import trio
from tests.cluster.empty_masters import (
    NAMES,
    begin_again,
    code_of_a_send,
    emptied,
    filled,
    problems,
)
from tests.cluster.torn_logs import MONEY, STORE, damage, pair_of
from tests.support.caller import caller_of
from tests.support.replication import log_bytes
from tests.support.waiting import eventually

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.second_history import CHECK_PERIOD
from rocketrio_broker.ha.torn_end import Damage, TornEnd
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.codes import ResponseCode


async def test_empty_master_waits_for_its_slave_and_gets_all_back() -> None:
    async with emptied() as pair:
        began = trio.current_time()
        broker = await pair.first.start()
        assert 1 < trio.current_time() - began < 10
        assert broker.store.max_physical_offset > 0
        await pair.level()
        assert await pair.read(broker) == NAMES
        await pair.send("more")
        await pair.level()


async def test_empty_master_gets_the_tables_of_a_slave_that_no_name_server_lists(
    secret: dict[str, Any],
) -> None:
    """It gets the log of a slave that connects and is proved, and would serve it without topics and progress."""
    async with filled(**secret) as pair:
        master, (slave,) = pair.first, pair.cluster.slaves
        await pair.caller.create_topic(master.broker.address, "late")
        await pair.caller.commit(master.broker.address, 7)
        await trio.sleep(30)
        await pair.cluster.kill_name_server()
        await master.kill()
        master.disk = MemoryDisk()
        broker = await master.start()
        await pair.level()
        assert broker.state.topics.topic_config("late") is not None
        assert await pair.caller.committed(broker.address) == 7
        assert slave.broker.state.topics.topic_config("late") is not None


async def test_master_with_a_new_log_stops_when_its_slave_proves_an_older_one(
    secret: dict[str, Any],
) -> None:
    async with emptied(**secret) as pair:
        (slave,) = pair.cluster.slaves
        before = log_bytes(slave.broker.store)
        await begin_again(pair)
        refusal = pair.master.store.refusal
        assert f"its slave at {slave.broker.address} has another one" in refusal
        assert await code_of_a_send(pair) == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await problems(pair) == [refusal]
        # The remedy.
        await pair.first.kill()
        pair.first.disk = MemoryDisk()
        await pair.first.start()
        await pair.level()
        assert log_bytes(pair.master.store) == before


async def test_slave_of_an_empty_master_keeps_its_topics_and_can_take_its_place(
    secret: dict[str, Any],
) -> None:
    """The other remedy: the empty one knew no topics and no groups, and the slave does not copy that."""
    async with emptied(**secret) as pair:
        slave = pair.cluster.slaves[0].broker
        before = slave.state.topics.wrapper(), slave.state.consumer_offsets.offset_table
        await begin_again(pair)
        assert (slave.state.topics.wrapper(), slave.state.consumer_offsets.offset_table) == before
        await pair.first.kill()
        assert (
            await pair.caller.change_role(slave.address, "sync-master", 0)
        ).code == ResponseCode.SUCCESS
        assert await pair.read(slave) == NAMES
        answer = await pair.caller.send(slave.address, b"more")
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_master_with_the_right_new_log_is_writable_after_a_restart(
    secret: dict[str, Any],
) -> None:
    async with emptied(**secret) as pair:
        await begin_again(pair)
        await pair.first.stop()
        await pair.first.start()
        await trio.sleep(60)
        assert pair.master.store.writable


async def test_log_that_nothing_proves_is_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    async with emptied() as pair:
        await begin_again(pair)
        assert pair.master.store.writable
        (problem,) = await problems(pair)
        assert "has another one of" in problem
        assert "ha_secret_file" in problem
        assert caplog.text.count("a second history has begun") == 1
        # It ends with its cause.
        await pair.cluster.slaves[0].stop()
        pair.cluster.slaves[0].disk = MemoryDisk()
        await pair.cluster.slaves[0].start()
        await trio.sleep(40)
        assert await problems(pair) == []


async def test_false_report_of_a_long_log_does_not_stop_the_master(
    secret: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(**secret) as pair:
        (slave,) = pair.cluster.slaves
        end = slave.broker.store.max_physical_offset
        info = slave.broker.store.runtime_info()
        long = {**info, "commitLogMaxOffset": str(end + 1_000_000)}
        monkeypatch.setattr(slave.broker.store, "runtime_info", lambda: long)
        await trio.sleep(60)
        assert pair.master.store.writable
        assert await problems(pair) == []


async def test_slave_whose_end_a_crash_tore_is_no_second_history(secret: dict[str, Any]) -> None:
    async with filled(**secret) as pair:
        (slave,) = pair.cluster.slaves
        await slave.broker.store.checkpoint()
        end = slave.broker.store.max_physical_offset
        for data in (bytes(17), b"x"):
            await slave.kill()
            damage(slave, end - len(data), data)
            await slave.start()
            await trio.sleep(60)
            await pair.level()
            assert pair.master.store.writable
            assert await problems(pair) == []


async def test_copies_of_the_same_records_are_no_second_history(
    secret: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave does not mend its end: it stays out, and its master goes on."""
    async with filled(**secret) as pair:
        (slave,) = pair.cluster.slaves
        await slave.broker.store.checkpoint()
        end = slave.broker.store.max_physical_offset
        await slave.kill()
        damage(slave, end - 1, b"x")

        async def decide_nothing(*_: object) -> Damage:
            await trio.lowlevel.checkpoint()
            return Damage.UNDECIDED

        monkeypatch.setattr(TornEnd, "compare", decide_nothing)
        await slave.start()
        await trio.sleep(60)
        assert slave.broker.slave is not None
        assert slave.broker.slave.client.state is HAClientState.DIVERGED
        assert pair.master.store.writable
        assert await problems(pair) == []


@pytest.mark.parametrize("role", ["async-master", "sync-master"])
async def test_new_pair_takes_writes_at_once(role: Any) -> None:
    began = trio.current_time()
    async with (
        EmbeddedCluster(slaves=1, role=role, store=STORE) as cluster,
        caller_of(cluster) as caller,
    ):
        assert trio.current_time() - began < 0.1
        assert cluster.master.broker.store.writable
        await trio.sleep(2)
        assert (await caller.send(cluster.master.broker.address, b"x")).code == 0


def test_new_cluster_in_a_folder_is_distinguished_from_an_earlier_one(tmp_path: Path) -> None:
    assert EmbeddedCluster(root=tmp_path).is_new
    assert EmbeddedCluster(root=tmp_path / "yet to be made").is_new
    (tmp_path / "slave-1").mkdir()
    assert not EmbeddedCluster(root=tmp_path).is_new


async def test_new_pair_of_two_machines_waits_for_the_slave_only() -> None:
    """Neither of them knows that there was nothing before."""
    async with pair_of(**MONEY) as pair:
        for member in pair.cluster.members:
            await member.stop()
            member.disk = MemoryDisk()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.first.start)
            await trio.sleep(3)
            assert not pair.first.is_running
            await pair.cluster.slaves[0].start()
        assert trio.current_time() - began < 4
        await trio.sleep(2.5)
        await pair.send("first")


@pytest.mark.parametrize(("role", "wait"), [("async-master", 0.0), ("sync-master", 10.0)])
async def test_new_master_alone_waits_only_if_its_sends_wait_for_slaves(
    role: Any, wait: float, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(role=role, store=STORE) as cluster, caller_of(cluster) as caller:
        await cluster.master.stop()
        cluster.master.disk = MemoryDisk()
        began = trio.current_time()
        await cluster.master.start()
        assert wait <= trio.current_time() - began < wait + 1
        assert ("no slave has come" in caplog.text) == bool(wait)
        answer = await caller.send(cluster.master.broker.address, b"x")
        assert (answer.code == ResponseCode.SUCCESS) == (role == "async-master")


async def test_broker_whose_log_never_diverged_follows() -> None:
    """The slave follows its refilled master by itself."""
    async with emptied() as pair:
        await pair.first.start()
        await pair.level()
        slave = pair.cluster.slaves[0].broker.slave
        assert slave is not None
        await eventually(lambda: slave.client.state is HAClientState.FOLLOWING)


async def test_checks_of_a_new_master_are_not_logged_as_slaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", "rocketrio_broker.ha"):
        async with filled() as pair:
            await trio.sleep(3 * CHECK_PERIOD)
            assert await pair.read(pair.master) == NAMES
    connected = [line for line in caplog.messages if line.startswith("slave connected")]
    assert len(connected) == 1
