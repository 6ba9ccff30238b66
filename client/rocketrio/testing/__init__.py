"""A cluster for the tests of programs that use rocketrio: name server, master and slaves, and faults on demand.

    async with open_cluster(slaves=1) as cluster:              # trio: in memory, where time may be virtual
        async with open_producer(name_servers=cluster.name_servers) as producer: ...
    with open_cluster_in_thread(slaves=1) as cluster:          # any other program: on ports of 127.0.0.1
        subprocess.run([...], env={**os.environ, "NAMESRV_ADDR": cluster.name_servers[0]})

With pytest, tests use the fixture `rocketmq_cluster` of the plugin `pytest_rocketrio` instead of both.
"""

from rocketrio.testing.cluster import ClusterInThread, open_cluster, open_cluster_in_thread
from rocketrio_broker.embedded import EmbeddedCluster, Member

__all__ = [
    "ClusterInThread",
    "EmbeddedCluster",
    "Member",
    "open_cluster",
    "open_cluster_in_thread",
]


def __dir__() -> list[str]:
    """List the public names; the package's attributes also include its modules."""
    return __all__
