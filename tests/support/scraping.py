"""A cluster with metrics, and its page as numbers."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tests.support.caller import Caller
from tests.support.http import Answer, get

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from rocketrio_protocol.codes import LanguageCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.client import HeartBeatRequestHeader
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.ports import Listen

PORT = 5557
LISTEN = f":{PORT}"
COMMON = {"cluster": "lab", "node_type": "broker", "node_id": "broker-a"}


@attrs.frozen
class Scrape:
    """The samples of one page."""

    samples: list[Sample]

    def value(self, name: str, **labels: str) -> float | None:
        """The only sample with these labels; None if there is none."""
        found = self.all(name, **labels)
        assert len(found) <= 1, found
        return found[0].value if found else None

    def all(self, name: str, **labels: str) -> list[Sample]:
        wanted = labels.items()
        return [s for s in self.samples if s.name == name and wanted <= s.labels.items()]

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}


@attrs.define
class Scraping:
    """One client of one cluster, and its reader of metrics."""

    cluster: EmbeddedCluster
    call: Caller

    @property
    def state(self) -> BrokerState:
        return self.cluster.master.broker.state

    @property
    def addr(self) -> str:
        return self.cluster.master.broker.address

    async def page(self, path: str = "/metrics", *, host: str = "10.0.0.10") -> Answer:
        return await get(self.cluster.dial, f"{host}:{PORT}", path, "Accept-Encoding: gzip")

    async def scrape(self, *, host: str = "10.0.0.10") -> Scrape:
        return parsed((await self.page(host=host)).text)

    async def beat(
        self, group: str, *topics: str, model: str = "CLUSTERING", expression: str = "*"
    ) -> RemotingCommand:
        subscriptions = [SubscriptionData(topic, expression, sub_version=1) for topic in topics]
        data = ConsumerData(group, message_model=model, subscription_data_set=subscriptions)
        body = fastjson.dumps(HeartbeatData(f"client-{group}", [data]))
        request = RemotingCommand.request(HeartBeatRequestHeader(), body)
        request = attrs.evolve(request, language=LanguageCode.JAVA, version=479)
        return await self.call.pool.call(self.addr, request)


class _Cluster(EmbeddedCluster):
    """Members that each serve metrics on their own host."""

    def listen_on(self, host: str) -> Listen:
        listen = super().listen_on(host)
        return lambda addr: listen(f"{host}:{PORT}" if addr == f"127.0.0.1{LISTEN}" else addr)


@asynccontextmanager
async def scraping(**settings: Any) -> AsyncGenerator[Scraping]:
    """A cluster in memory whose members all have metrics."""
    async with (
        _Cluster(cluster_name="lab", metrics_listen=LISTEN, **settings) as cluster,
        open_channel_pool(cluster.dial) as pool,
    ):
        yield Scraping(cluster, Caller(pool))


@asynccontextmanager
async def beside(one: Scraping) -> AsyncGenerator[Scraping]:
    """Another client of the same cluster."""
    async with open_channel_pool(one.cluster.dial) as pool:
        yield Scraping(one.cluster, Caller(pool))


def parsed(text: str) -> Scrape:
    """The samples of a page, each family and each series of which comes once."""
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a family comes twice"
    samples = [sample for family in families for sample in family.samples]
    series = [(sample.name, *sorted(sample.labels.items())) for sample in samples]
    assert len(series) == len(set(series)), "a series comes twice"
    return Scrape(samples)


def rest(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels beside those that all have."""
    assert COMMON.items() <= labels.items()
    return {name: value for name, value in labels.items() if name not in COMMON}
