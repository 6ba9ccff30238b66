"""Disks that are full or return damage, under a whole cluster: what each client learns, and what goes on."""

import logging

import pytest
import trio
from tests.support.caller import SUBSCRIPTION, SUSPEND, Caller, bodies
from tests.support.pair import pair_of
from trio.testing import wait_all_tasks_blocked

from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import Buffer
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import CreateTopicRequestHeader

STORE = StoreConfig(
    mapped_file_size_commit_log=16_384,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=31,
    max_index_num=200,
    flush_consume_queue_thorough_interval=5.0,
)


async def create_topic(caller: Caller, addr: str, topic: str) -> RemotingCommand:
    header = CreateTopicRequestHeader(topic, "TBW102", 4, 4, 6, "SINGLE_TAG", order=False)
    return await caller.pool.call(addr, header, timeout=10)


@pytest.mark.slow
async def test_broker_on_a_full_disk_refuses_what_it_cannot_keep_and_serves_the_rest(
    nursery: trio.Nursery,
) -> None:
    async with pair_of(0, store=STORE) as pair:
        addr = pair.master.address
        acknowledged: list[bytes] = []

        async def send(number: int) -> RemotingCommand:
            body = b"%d" % number + bytes(2000)
            answer = await pair.caller.send(addr, body, properties="KEYS\1k\2")
            if answer.code == ResponseCode.SUCCESS:
                acknowledged.append(body)
            return answer

        for number in range(20):
            assert (await send(number)).code == ResponseCode.SUCCESS
        pair.first.fill_disk()
        # What the log has reserved still takes messages; then they are refused as Apache refuses them.
        codes = [(await send(number)).code for number in range(20, 60)]
        assert codes[-1] == ResponseCode.SYSTEM_ERROR
        assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
        assert "No space left" in ((await send(60)).remark or "")

        held: list[RemotingCommand] = []

        async def hold() -> None:
            """As a consumer does: one pull after the other, each for as long as the broker holds it."""
            end = len(acknowledged)
            while not held or held[-1].code != ResponseCode.SUCCESS:
                held[:] = [
                    await pair.caller.pull(
                        addr, end, sys_flag=SUBSCRIPTION | SUSPEND, suspend=60, timeout=70
                    )
                ]

        nursery.start_soon(hold)
        for _ in range(6):
            await trio.sleep(60)
            assert await pair.caller.read(addr) == acknowledged
        # A group without an offset reads too, and is not kept.
        assert (await pair.caller.pull(addr, 0, group="new")).code == ResponseCode.SUCCESS
        groups = pair.master.state.groups
        assert "new" not in groups.subscription_group_table
        await pair.caller.commit(addr, 7)
        assert await pair.caller.committed(addr) == 7
        refused = await create_topic(pair.caller, addr, "invoices")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert (refused.remark or "").startswith("topics.json cannot be written: [Errno 28]")
        refused = await pair.caller.send(addr, b"first", topic="invoices")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert pair.master.state.topics.topic_config("invoices") is None

        pair.first.free_disk()
        await trio.sleep(10)
        assert (await send(61)).code == ResponseCode.SUCCESS
        await wait_all_tasks_blocked()
        assert [bodies(answer) for answer in held] == [acknowledged[-1:]]
        assert (await create_topic(pair.caller, addr, "invoices")).code == ResponseCode.SUCCESS
        await trio.sleep(10)
        await pair.first.kill()
        await pair.first.start()
        assert await pair.caller.read(addr) == acknowledged
        assert await pair.caller.committed(addr) == 7
        assert pair.master.state.topics.topic_config("invoices") is not None


@pytest.mark.slow
async def test_slave_with_damage_serves_what_it_has_until_a_restart_mends_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair_of(store=STORE) as pair:
        slave = pair.second
        master_addr, slave_addr = pair.master.address, slave.broker.address
        for number in range(30):
            await pair.caller.send(master_addr, b"%d" % number)
        await trio.sleep(15)  # the tables are copied as well
        assert len(await pair.caller.read(slave_addr)) == 30
        # From here on the slave's memory is bad: what it appends is not what it got.
        store = slave.broker.store
        end = store.max_physical_offset
        append = store.commit_log.append_raw

        def append_badly(offset: int, data: Buffer) -> None:
            append(offset, bytes(data[:4]) + b"\xff" + bytes(data[5:]))

        store.commit_log.append_raw = append_badly  # type: ignore[method-assign]
        for number in range(30, 40):
            await pair.caller.send(master_addr, b"%d" % number)
        await trio.sleep(300)
        assert slave.is_running
        assert len(await pair.caller.read(slave_addr)) == 30
        statistics = slave.broker.statistics().slave
        assert statistics is not None
        assert f"damaged at {end}" in (statistics.log.last_problem or "")
        assert f"damaged at {end}" in slave.broker.store.runtime_info()["commitLogDamage"]
        assert not pair.master.ha_service.connections
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(errors) == 1
        assert "start the broker again" in errors[0].getMessage()
        # The master is untouched.
        assert (await pair.caller.send(master_addr, b"40")).code == ResponseCode.SUCCESS
        await slave.stop()
        await slave.start()
        await trio.sleep(15)
        assert await pair.caller.read(slave_addr) == [b"%d" % number for number in range(41)]
        assert slave.broker.store.health.is_good
