"""Until when the certificates of servers are valid."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.tls import write_files

from rocketrio import open_admin
from rocketrio.admin.diagnosis.probes import certificate_end, certificate_ends
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import Error, NotReachableError, TlsError
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
            ends = await certificate_ends(admin, [cluster.master.broker.address])
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
            ends = await certificate_ends(admin)
            assert len(ends) == 2
            assert all(isinstance(end, Error) for end in ends.values())
    with pytest.raises(NotReachableError):
        await certificate_end("127.0.0.1:1")
