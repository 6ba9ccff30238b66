"""A master that lost its log, and the name server that knew its slaves, does not begin a second history unnoticed."""

from pathlib import Path
from typing import Any

import pytest
import trio
from tests.cluster.empty_masters import begin_again, emptied, filled
from tests.cluster.members import damage, state
from tests.cluster.stores import MONEY, STORE, keyed_pair
from tests.support.pair import pair_of
from tests.support.replication import log_bytes

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.second_history import CHECK_PERIOD
from rocketrio_broker.ha.torn_end import Damage, TornEnd
from rocketrio_protocol.codes import ResponseCode


async def test_empty_master_waits_for_its_slave_and_gets_all_back() -> None:
    async with emptied() as pair:
        sent = await pair.read(pair.second)
        began = trio.current_time()
        await pair.first.start()
        assert 1 < trio.current_time() - began < 10
        assert pair.master.store.max_physical_offset > 0
        await pair.level()
        assert await pair.read(pair.first) == sent
        await pair.send("more")
        await pair.level()


@pytest.mark.slow
async def test_empty_master_gets_the_tables_of_a_slave_that_no_name_server_lists(
    secret: dict[str, Any],
) -> None:
    """It gets the log of a slave that connects and is proved, and would serve it without topics and progress."""
    async with filled(**secret) as pair:
        master, slave = pair.members
        await pair.caller.create_topic(master.broker.address, "late")
        await pair.caller.commit(master.broker.address, 7)
        await trio.sleep(30)
        await pair.cluster.kill_name_server()
        await master.kill()
        master.disk = pair.cluster.make_disk()
        broker = await master.start()
        await pair.level()
        assert broker.state.topics.topic_config("late") is not None
        assert await pair.caller.committed(broker.address) == 7
        assert slave.broker.state.topics.topic_config("late") is not None


@pytest.mark.slow
@pytest.mark.parametrize("remedy", ["the older log is copied", "the slave is promoted"])
async def test_master_with_a_new_log_stops_when_its_slave_proves_an_older_one(
    secret: dict[str, Any], remedy: str
) -> None:
    """The empty one knew no topics and no groups, and the slave does not copy that."""
    async with emptied(**secret) as pair:
        slave, sent = pair.slave, await pair.read(pair.second)
        tables = slave.state.topics.wrapper(), slave.state.consumer_offsets.offset_table
        before = log_bytes(slave.store)
        await begin_again(pair)
        reason = pair.master.store.refusal
        assert f"its slave at {slave.address} has another one" in reason
        assert reason in await pair.refused()
        assert await pair.problems(pair.first) == [reason]
        assert tables == (slave.state.topics.wrapper(), slave.state.consumer_offsets.offset_table)
        await pair.first.kill()
        if remedy == "the slave is promoted":
            await pair.promote(pair.second)
            assert await pair.read(pair.second) == sent
            assert await pair.code_of_send(at=pair.second) == ResponseCode.SLAVE_NOT_AVAILABLE
            return
        pair.first.disk = pair.cluster.make_disk()
        await pair.first.start()
        await pair.level()
        assert log_bytes(pair.master.store) == before


@pytest.mark.slow
async def test_master_with_the_right_new_log_is_writable_after_a_restart(
    secret: dict[str, Any],
) -> None:
    async with emptied(**secret) as pair:
        await begin_again(pair)
        await pair.first.stop()
        await pair.first.start()
        await trio.sleep(60)
        assert pair.master.store.writable


@pytest.mark.slow
async def test_log_that_nothing_proves_is_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    async with emptied() as pair:
        await begin_again(pair)
        assert pair.master.store.writable
        (problem,) = await pair.problems(pair.first)
        assert "has another one of" in problem
        assert "ha_secret_file" in problem
        assert caplog.text.count("a second history has begun") == 1
        # It ends with its cause.
        await pair.second.stop()
        pair.second.disk = pair.cluster.make_disk()
        await pair.second.start()
        await trio.sleep(40)
        assert await pair.problems(pair.first) == []


@pytest.mark.slow
async def test_false_report_of_a_long_log_does_not_stop_the_master(
    secret: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(**secret) as pair:
        slave = pair.second
        end = slave.broker.store.max_physical_offset
        info = slave.broker.store.runtime_info()
        long = {**info, "commitLogMaxOffset": str(end + 1_000_000)}
        monkeypatch.setattr(slave.broker.store, "runtime_info", lambda: long)
        await trio.sleep(60)
        assert pair.master.store.writable
        assert await pair.problems(pair.first) == []


@pytest.mark.slow
async def test_slave_whose_end_a_crash_tore_is_no_second_history(secret: dict[str, Any]) -> None:
    async with filled(**secret) as pair:
        slave = pair.second
        await slave.broker.store.checkpoint()
        end = slave.broker.store.max_physical_offset
        for data in (bytes(17), b"x"):
            await slave.kill()
            damage(slave, end - len(data), data)
            await slave.start()
            await trio.sleep(60)
            await pair.level()
            assert pair.master.store.writable
            assert await pair.problems(pair.first) == []


@pytest.mark.slow
async def test_copies_of_the_same_records_are_no_second_history(
    secret: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave does not mend its end: it stays out, and its master goes on."""
    async with filled(**secret) as pair:
        slave = pair.second
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
        assert state(slave) is HAClientState.DIVERGED
        assert pair.master.store.writable
        assert await pair.problems(pair.first) == []


@pytest.mark.parametrize("role", ["async-master", "sync-master"])
async def test_new_pair_takes_writes_at_once(role: str) -> None:
    began = trio.current_time()
    async with EmbeddedCluster(slaves=1, role=role) as cluster:  # type: ignore[arg-type]
        assert trio.current_time() - began < 0.1
        assert cluster.master.broker.store.writable


def test_new_cluster_in_a_folder_is_distinguished_from_an_earlier_one(tmp_path: Path) -> None:
    assert EmbeddedCluster(root=tmp_path).is_new
    assert EmbeddedCluster(root=tmp_path / "yet to be made").is_new
    (tmp_path / "slave-1").mkdir()
    assert not EmbeddedCluster(root=tmp_path).is_new


async def test_new_pair_of_two_machines_waits_for_the_slave_only() -> None:
    """Neither of them knows that there was nothing before."""
    async with keyed_pair(**MONEY) as pair:
        for member in pair.members:
            await member.stop()
            member.disk = pair.cluster.make_disk()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.first.start)
            await trio.sleep(3)
            assert not pair.first.is_running
            await pair.second.start()
        assert trio.current_time() - began < 4
        await trio.sleep(2.5)
        await pair.send("first")


@pytest.mark.parametrize(("role", "wait"), [("async-master", 0.0), ("sync-master", 10.0)])
async def test_new_master_alone_waits_only_if_its_sends_wait_for_slaves(
    role: str, wait: float, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair_of(0, role=role, store=STORE) as pair:
        await pair.first.stop()
        pair.first.disk = pair.cluster.make_disk()
        began = trio.current_time()
        await pair.first.start()
        assert wait <= trio.current_time() - began < wait + 1
        assert ("no slave has come" in caplog.text) == bool(wait)
        assert (await pair.code_of_send() == ResponseCode.SUCCESS) == (role == "async-master")


@pytest.mark.slow
async def test_checks_of_a_new_master_are_not_logged_as_slaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", "rocketrio_broker.ha"):
        async with filled() as pair:
            await trio.sleep(3 * CHECK_PERIOD)
            assert len(await pair.read(pair.first)) == 50
    connected = [line for line in caplog.messages if line.startswith("slave connected")]
    assert len(connected) == 1
