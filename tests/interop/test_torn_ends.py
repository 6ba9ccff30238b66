"""Our master whose end a crash tore gets it back from Apache's slave, and Apache's slave follows on."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.apache import ApacheBroker
from tests.interop.java_client import JavaClient
from tests.support import wire
from tests.support.commit_logs import digest, wait_caught_up
from tests.support.ours import OurBroker, OurNameServer, assert_same_logs

pytestmark = pytest.mark.interop

QUEUE = {"topic": "torn", "broker": "broker-a", "queue_id": 0}


@pytest.fixture
def names(tmp_path: Path) -> Iterator[OurNameServer]:
    with OurNameServer(tmp_path / "namesrv") as server:
        yield server


@pytest.mark.parametrize("torn", [bytes(17), b"x"], ids=["zeros", "garbage"])
def test_torn_end_of_our_master_comes_back_from_apaches_slave(
    version: str, names: OurNameServer, tmp_path: Path, torn: bytes
) -> None:
    with ExitStack() as stack:
        master = stack.enter_context(OurBroker(tmp_path / "master", names.address))
        slave = stack.enter_context(
            ApacheBroker(version, tmp_path / "slave", names.address, role="SLAVE", broker_id=1)
        )
        java = stack.enter_context(JavaClient(version, names.address, tmp_path / "java"))
        java.create_topic("torn", at=master.address)
        java.call("send_many", prefix="p", count=50, **QUEUE)
        end = wait_caught_up(master.address, slave.address)
        before = digest(master.store, end)
        # The slave is in the name servers' list, from which the master learns whom to ask.
        slave.running.wait_until(lambda: wire.is_registered(names.address, slave.address), "listed")
        master.kill()
        log = master.store / "commitlog" / f"{0:020d}"
        with log.open("r+b") as file:
            file.seek(end - len(torn))
            file.write(torn)
        master.restart()
        assert digest(master.store, end) == before
        java.call("send_many", prefix="later", count=5, **QUEUE)
        assert assert_same_logs(master, slave) > end
