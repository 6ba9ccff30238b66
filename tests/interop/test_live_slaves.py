"""An Apache slave of our master: named by the name servers' list, suggested to readers, and left out when it goes."""

from pathlib import Path

import attrs
import pytest
import trio

from rocketrio_broker.embedded import SMALL_STORE as OUR_STORE
from rocketrio_broker.embedded import EmbeddedCluster
from tests.interop.apache import SMALL_STORE, ApacheBroker
from tests.interop.jars import VERSIONS
from tests.support.caller import caller_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.interop

NAMED = 9
LIMIT = 30.0
"""Seconds until a slave is known, and until it is known to be gone."""
STORE = attrs.evolve(
    OUR_STORE,
    mapped_file_size_commit_log=int(SMALL_STORE["mappedFileSizeCommitLog"]),
    mapped_file_size_consume_queue=int(SMALL_STORE["mappedFileSizeConsumeQueue"]),
    access_message_in_memory_max_bytes=10_000,
)


@pytest.mark.parametrize("version", VERSIONS)
async def test_apache_slave_is_suggested_while_it_lives(version: str, tmp_path: Path) -> None:
    async with (
        EmbeddedCluster(
            network="loopback", broker_name="broker-a", store=STORE, slave_read_enable=True
        ) as cluster,
        caller_of(cluster) as caller,
    ):
        master = cluster.master.broker
        slaves = master.state.live_slaves
        for _ in range(20):
            await caller.send(master.address, bytes(1000))
        slave = ApacheBroker(
            version,
            tmp_path / "slave",
            cluster.name_servers[0],
            cluster=cluster.master.config.cluster_name,
            role="SLAVE",
            broker_id=2,
        )
        slave.start()
        try:
            await trio.to_thread.run_sync(slave.wait_ready)
            # A 4.9.7 slave says for the first time after 5 s how far it is.
            await eventually(lambda: slaves.ids(NAMED, max_physical_offset=0) == {2}, LIMIT)
            answer = await caller.pull(master.address, 0)
            assert answer.ext_fields["suggestWhichBrokerId"] == "2"  # Not 1, which no slave has.
        finally:
            slave.kill()
        await eventually(lambda: not master.ha_service.connections, LIMIT)
        answer = await caller.pull(master.address, 0)
        assert answer.ext_fields["suggestWhichBrokerId"] == "0"
