"""Every test that takes `network` runs over TCP, over trio's streams, in memory, and over TLS on TCP and in memory."""

import pytest
from tests.protocol.remoting.networks import Network, network_of


@pytest.fixture(params=["tcp", "stream", "memory", "tls", "tls-memory"])
def network(request: pytest.FixtureRequest) -> Network:
    return network_of(request.param)


@pytest.fixture
def memory_network() -> Network:
    return network_of("memory")
