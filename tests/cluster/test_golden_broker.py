"""Our broker on the data directories that Apache's master and slave left after kill -9."""

from collections import defaultdict
from pathlib import Path
from typing import Literal

import pytest
from tests.golden.golden import VERSIONS, unpack_store
from tests.support.caller import Caller, messages
from tests.support.replay import golden_records

from rocketrio_broker.broker import open_broker
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.topics import Permission
from rocketrio_protocol.commands.admin import (
    GetAllConsumerOffsetRequestHeader,
    GetAllSubscriptionGroupConfigRequestHeader,
    GetAllTopicConfigRequestHeader,
)
from rocketrio_protocol.commands.query import QueryMessageRequestHeader
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.ports import VirtualWallClock

FOREVER_MS = 2**63 - 1
MEMBERS_OF_5 = {
    "attributes",
    "consumeMessageOrderly",
    "consumeTimeoutMinute",
    "groupRetryPolicy",
    "groupSysFlag",
}
"""What readers of 5.x want to find, and 4.x has not."""


@pytest.mark.parametrize("role", ["master", "slave"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_everything_apache_stored_is_served(
    tmp_path: Path, version: str, role: Literal["master", "slave"]
) -> None:
    root = unpack_store(version, role, tmp_path / "store")
    expected = defaultdict(list)
    for record in golden_records(version, tmp_path / "golden"):
        expected[record.topic, record.queue_id].append(record)
    network = MemoryNetwork()
    host = network.host("10.0.0.10")
    config = BrokerConfig(
        cluster_name="lab",
        listen="10.0.0.10:10911",
        data=root,
        role="async-master" if role == "master" else "slave",
        broker_id=0 if role == "master" else 1,
        store=StoreConfig(
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=6000,
            max_hash_slot_num=997,
            max_index_num=4000,
        ),
    )
    files = {path.name: path.read_bytes() for path in (root / "config").glob("*.json")}
    async with (
        open_broker(
            config,
            disk=InlineDisk(),
            dial=host.dial,
            listen=host.listen,
            wall_clock=VirtualWallClock(),
        ) as broker,
        open_channel_pool(network.host("10.0.0.100").dial) as pool,
    ):
        caller, addr = Caller(pool), broker.address
        topics = broker.state.topics.topic_config_table
        for (topic, queue_id), records in expected.items():
            if topic not in topics or not topics[topic].perm & Permission.READ:
                continue
            found: list[MessageExt] = []
            while len(found) < len(records):
                answer = await caller.pull(addr, len(found), topic=topic, queue_id=queue_id)
                assert answer.code == 0, (topic, queue_id, answer.remark)
                found += messages(answer)
            assert [m.record for m in found] == [r.record for r in records]
        await tables_are_apaches(caller, addr, files)
        key = expected["orders", 1][0].keys or expected["orders", 0][0].keys
        asked = QueryMessageRequestHeader("orders", key.split()[0], 32, 0, FOREVER_MS)
        assert messages(await pool.call(addr, asked))


async def tables_are_apaches(caller: Caller, addr: str, files: dict[str, bytes]) -> None:
    for file, header, table in (
        ("topics.json", GetAllTopicConfigRequestHeader(), "topicConfigTable"),
        (
            "subscriptionGroup.json",
            GetAllSubscriptionGroupConfigRequestHeader(),
            "subscriptionGroupTable",
        ),
        ("consumerOffset.json", GetAllConsumerOffsetRequestHeader(), "offsetTable"),
    ):
        theirs = fastjson.loads(files[file], dict)[table]
        ours = fastjson.loads((await caller.pool.call(addr, header)).body, dict)[table]
        assert theirs.keys() <= ours.keys(), file
        for name, settings in theirs.items():
            known = {member: settings[member] for member in ours[name] if member in settings}
            added = ours[name].keys() - settings.keys()
            assert added <= MEMBERS_OF_5, (file, name, added)
            assert {member: ours[name][member] for member in known} == known, (file, name)
