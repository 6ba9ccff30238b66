"""A broker that has lived: its files after a kill, from which every life of a fuzzed broker begins.

It has a topic with messages, a group with progress and a message that it gave back, a delayed message, a transaction
that is open, and the tables of all that. The files are small, so that a life costs little.
"""

import functools
import logging
from pathlib import Path

import trio
from trio.testing import MockClock

from rocketrio import (
    ClientInstance,
    Message,
    TransactionState,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.testing.memory_disk import MemoryDisk, MemoryFile
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import TRANS_HALF_TOPIC
from tests.support.clients import client_of

TOPIC, GROUP, PRODUCERS = "orders", "g", "p"
STORE = StoreConfig(
    mapped_file_size_commit_log=32 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=31,
    max_index_num=200,
)

Files = dict[Path, bytes]


def cluster_on(disk: MemoryDisk) -> EmbeddedCluster:
    """Return a master on these files, and a name server. It goes on without a table that cannot be read."""
    return EmbeddedCluster(
        cluster_name="lab", store=STORE, make_disk=lambda: disk, unreadable_tables="drop"
    )


def disk_of(files: Files) -> MemoryDisk:
    """Return a new disk with these files."""
    disk = MemoryDisk()
    for path, content in files.items():
        disk.make_directory(path.parent)
        file = disk.files[path] = MemoryFile()
        file.pwrite(content, 0)
    return disk


def half_address() -> int:
    """Return where in the log the transaction lies that is open."""
    entries = lived()[Path("/master/consumequeue", TRANS_HALF_TOPIC, "0", "0" * 20)]
    return int.from_bytes(entries[:8])


@functools.cache
def lived() -> Files:
    """Return the files that a broker left when it was killed."""
    disk = MemoryDisk()
    logging.disable(logging.ERROR)
    try:
        trio.run(_live, disk, clock=MockClock(autojump_threshold=0))
    finally:
        logging.disable(logging.NOTSET)
    return {path: file.pread(file.size, 0) for path, file in disk.files.items()}


async def _live(disk: MemoryDisk) -> None:
    """Live twice: until a stop, which leaves tables and queues in their files, and until a kill soon after."""
    async with cluster_on(disk) as running, client_of(running, client_id="lab") as client:
        async with open_admin(client=client) as admin:
            await admin.create_topic(TOPIC, queues=2)
        await _work(client)
        await running.master.stop()
        await running.master.start()
        await _work(client)
        await running.master.kill()


async def _work(client: ClientInstance) -> None:
    async with open_producer(
        client=client, group=PRODUCERS, check_transaction=_undecided
    ) as producer:
        for number in range(4):
            await producer.send(Message(TOPIC, b"%d" % number, keys="k", tags="t"))
        await producer.send(Message(TOPIC, b"later", delay_level=16))
        async with producer.transaction(Message(TOPIC, b"half")) as transaction:
            transaction.leave_open()
    async with open_consumer(TOPIC, group=GROUP, client=client, start_from="earliest") as consumer:
        await consumer.retry(await consumer.receive())
        await consumer.commit()


async def _undecided(message: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN
