"""What a pair can be trusted with: a send that waits for the slave, and a slave that is lost with its disk.

Prices stand for anything that must not be lost: the flights of the other steps are only read.
"""

import shutil

import trio
from cluster import LOOK_INTERVAL, MASTER_ID, SLAVE_ID, Demo, stopped

from rocketrio import Message, Producer, SendStatus, open_admin, open_producer
from rocketrio.cli.cluster_table import wait_text

TOPIC = "payments"
SEND_LIMIT = 10.0
"""Seconds: the broker answers after `slave_timeout` (3 s) at the latest, a client has to wait longer than that."""
LIVE_LIMIT = 10.0
"""Seconds until the master has noticed that a killed slave is gone."""


async def send_safely(demo: Demo) -> None:
    """The master becomes synchronous while it runs; each status a send can get is shown."""
    demo.report.step(4, "Sends that wait until the slave has the message")
    assert demo.master is not None
    assert demo.slave is not None
    async with (
        open_admin(name_servers=demo.name_servers) as admin,
        open_producer(name_servers=demo.name_servers, timeout=SEND_LIMIT) as producer,
    ):
        await admin.create_topic(TOPIC, queues=1, cluster="demo")
        demo.report.say(f"$ rocketrio broker role {demo.master.address} sync-master")
        await admin.change_role(demo.master.address, "sync-master", MASTER_ID)
        await _check_send(demo, producer, "a send, the slave is there", SendStatus.SEND_OK)
        waited = (await demo.statuses(admin))[MASTER_ID].last_wait
        assert waited is not None
        demo.report.say(wait_text(waited))
        async with stopped(demo.slave):
            pid = demo.slave.process.pid
            demo.report.say(f"stopped the slave (SIGSTOP, pid {pid}), as a machine that hangs")
            await _check_send(
                demo, producer, "a send, the slave hangs", SendStatus.FLUSH_SLAVE_TIMEOUT
            )
        level = await demo.wait_level("the slave goes on")
        await _check_send(demo, producer, "a send, the slave back", SendStatus.SEND_OK)
        demo.report.check(
            "a slave that hung is level again",
            holds=level,
            detail="with the message that was stored without it",
        )
    await demo.show_status()


async def rebuild_slave(demo: Demo) -> None:
    """The slave is killed, its data removed; started empty it fetches the whole history."""
    demo.report.step(5, "The slave is lost with its disk, and rebuilt from nothing")
    assert demo.master is not None
    slave = demo.slave
    assert slave is not None
    async with (
        open_admin(name_servers=demo.name_servers) as admin,
        open_producer(name_servers=demo.name_servers, timeout=SEND_LIMIT) as producer,
    ):
        await slave.kill()
        demo.report.say(f"killed the slave (pid {slave.process.pid}) and removed its data")
        await trio.to_thread.run_sync(shutil.rmtree, demo.data / "slave")
        with trio.move_on_after(LIVE_LIMIT):
            while True:
                if SLAVE_ID not in await demo.statuses(admin):
                    break
                await trio.sleep(LOOK_INTERVAL)
        await _check_send(
            demo, producer, "a send, no slave is left", SendStatus.SLAVE_NOT_AVAILABLE
        )
        demo.slave = await demo.start_broker(
            "slave",
            broker_id=SLAVE_ID,
            listen=slave.address,
            ha_listen=slave.ready["ha_address"],
        )
        level = await demo.wait_level("rebuilt")
        await _check_send(demo, producer, "a send, the slave rebuilt", SendStatus.SEND_OK)
        demo.report.check(
            "the empty slave has the whole history",
            holds=level,
            detail="level with the master, which took sends meanwhile",
        )
        await demo.wait_level("the last message")
        await demo.check_same_log("the rebuilt log is the master's, byte for byte")
        demo.report.say(f"$ rocketrio broker role {demo.master.address} async-master")
        await admin.change_role(demo.master.address, "async-master", MASTER_ID)


async def _check_send(demo: Demo, producer: Producer, when: str, expected: SendStatus) -> None:
    began = trio.current_time()
    result = await producer.send(Message(TOPIC, b"100.00 EUR"))
    took = trio.current_time() - began
    demo.report.check(
        when,
        holds=result.status is expected,
        detail=f"{result.status.name} after {took * 1000:,.1f} ms",
    )
