"""What no request reports: certificates, and the clocks of masters that report none."""

from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
from tests.support.clients import open_admin
from tests.support.clocks import SteppedClock
from tests.support.snapshots import CLOCKED, WELL
from tests.support.tls import write_files
from trio.testing import MockClock

from rocketrio.admin.diagnosis import diagnosis_of
from rocketrio.admin.diagnosis.admin import certificate_end
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import Error, NotReachableError, RouteNotFoundError, TlsError
from rocketrio_protocol.remoting.tls_files import TlsOptions

DAY_MS = 86_400_000


@pytest.mark.slow
async def test_certificates_of_a_cluster_with_tls_also_if_it_is_not_trusted(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    async with EmbeddedCluster(
        network="loopback",
        slaves=1,
        tls_certificate_file=files.certificate,
        tls_key_file=files.key,
        peer_tls_authority_file=files.authority,
        ha_tls_certificate_file=files.certificate,
        ha_tls_key_file=files.key,
        ha_tls_authority_file=files.authority,
    ) as cluster:
        async with open_admin(
            name_servers=cluster.name_servers, tls=TlsOptions(files.authority)
        ) as admin:
            ends = await admin.certificate_ends([cluster.master.broker.address])
        expected = datetime.now(UTC).timestamp() * 1000 + 90 * DAY_MS
        known = {name: end for name, end in ends.items() if not isinstance(end, Error)}
        assert len(known) >= 5, ends
        assert sum(name.startswith("replication of") for name in known) == 2
        for end in known.values():
            assert abs(end - expected) < DAY_MS


@pytest.mark.slow
async def test_server_without_tls_and_unused_port_are_errors() -> None:
    async with EmbeddedCluster(network="loopback") as cluster:
        with pytest.raises((TlsError, NotReachableError)):
            await certificate_end(cluster.master.broker.address)
        async with open_admin(name_servers=cluster.name_servers) as admin:
            ends = await admin.certificate_ends()
            assert len(ends) == 2
            assert all(isinstance(end, Error) for end in ends.values())
    with pytest.raises(NotReachableError):
        await certificate_end("127.0.0.1:1")


async def test_clock_is_compared_by_the_time_of_a_stored_message(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster() as cluster,
        open_admin(
            name_servers=cluster.name_servers, dial=cluster.dial, wall_clock=(own := SteppedClock())
        ) as admin,
    ):
        await admin.create_topic("probe")
        first = await admin.compare_clocks("probe")
        own.step_ms = -5_000
        second = await admin.compare_clocks("probe")
        assert not isinstance(first["broker-a"], Error)
        assert second == {"broker-a": pytest.approx(first["broker-a"] + 5.0, abs=0.1)}
        with pytest.raises(RouteNotFoundError):
            await admin.compare_clocks("no-such")


def test_only_clocks_that_are_not_known_are_taken_over() -> None:
    unknown = attrs.evolve(CLOCKED[0], clock_ahead=None)
    seen = attrs.evolve(WELL, brokers=(unknown, CLOCKED[1]))
    [one] = diagnosis_of(seen.with_clocks({"broker-a": -0.7})).findings
    assert (one.code, one.where) == ("S04", "broker-a 0 (h:1)")
    assert "0.7 s behind" in one.what
    assert diagnosis_of(WELL.with_clocks({"broker-a": 9.0})).findings == []
    silent = seen.with_clocks({"broker-a": Error("no answer")})
    assert silent.unknown == {"clock of broker-a": "no answer"}
