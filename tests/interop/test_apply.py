"""Our export and apply on Apache's brokers."""

from pathlib import Path

import pytest

from rocketrio import open_admin
from rocketrio.admin.declared import KINDS, DeclaredPlace, from_toml, to_toml
from tests.interop.apache import apache_cluster

pytestmark = pytest.mark.interop

FILE = """
    [[topics]]
    name = "applied-orders"
    readQueueNums = 6
    writeQueueNums = 6
    perm = "r"

    [[groups]]
    name = "applied-billing"
    retryMaxTimes = 3

    [[settings]]
    brokers = ["broker-a/0"]
    fileReservedTime = 48

    [[kv]]
    namespace = "ORDER_TOPIC_CONFIG"
    key = "applied-orders"
    value = "broker-a:6"
"""


async def test_files_are_applied_to_apache_and_what_was_exported_changes_nothing(
    version: str, tmp_path: Path
) -> None:
    with apache_cluster(version, tmp_path) as cluster:
        async with open_admin(name_servers=[cluster.name_server.address]) as admin:
            wanted = from_toml(FILE, "f")
            before = await admin.read_state()
            assert {place.kind for place in before} <= {"settings", "groups"}, before
            assert await admin.apply_state(await admin.plan_state(wanted)) == {}
            assert (await admin.plan_state(wanted)).changes == []
            state = await admin.read_state()
            assert (
                state[DeclaredPlace("topics", "applied-orders", "broker-a")]["readQueueNums"] == 6
            )
            exported = {
                place: fields
                for kind in KINDS
                for place, fields in from_toml(to_toml(state, kind), kind).items()
            }
            assert (await admin.plan_state(exported, prune=True)).changes == []
