"""The page of metrics, made from what a pair, an exporter and a client serve while messages pass through them."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

import trio
from markup import indented, inline, title
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.support.clients import client_of
from tests.support.http import get
from tests.support.scraping import scraping
from trio.testing import MockClock

from rocketrio import (
    GIVE_UP,
    ConsumeLater,
    Message,
    MessageExt,
    TransactionState,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.exporter.rounds import Rounds
from rocketrio.exporter.service import Exporter
from rocketrio.limits import EXPORTER_NAMES
from rocketrio.metrics import collector

INTRO: Final = """\
What each page of metrics has, with the labels of each metric. :doc:`/monitoring` explains the pages, the boards and the
alerts.

"""
_COMMON: Final = {"A broker": ("cluster", "node_type", "node_id")}
"""The labels that all metrics of a page have."""
_BROKERS: Final = ("10.0.0.10", "10.0.0.11")
_EXPORTER_HOST: Final = "10.0.0.20"
_EXPORTER: Final = f"{_EXPORTER_HOST}:5558"
_UNTIL_ALL_IS_KNOWN: Final = 200
"""Seconds of virtual time, after which an exporter has asked for everything."""


def metrics_page() -> str:
    """Return the page."""
    pages = trio.run(_served, clock=MockClock(autojump_threshold=0))
    parts = [title("Metrics"), INTRO]
    described: set[str] = set()
    for name, families in pages.items():
        common = _COMMON.get(name, ())
        parts.append(title(name, "-"))
        if common:
            names = ", ".join(f"``{label}``" for label in common)
            parts.append(f"Each metric also has the labels {names}.\n\n")
        for family in families:
            parts.append(_described(family, common, is_first=family.name not in described))
            described.add(family.name)
    return "".join(parts)


def _described(family: Metric, common: Iterable[str], *, is_first: bool) -> str:
    names = {label: None for sample in family.samples for label in sample.labels}
    labels = [f"``{name}``" for name in names if name not in (*common, "le")]
    counter = "_total" if family.type == "counter" else ""
    fields = f"   :type: {family.type}\n" + (f"   :labels: {', '.join(labels)}\n" if labels else "")
    options = "" if is_first else "   :no-index:\n"
    return f".. metric:: {family.name}{counter}\n{options}\n{fields}\n{indented(inline(family.documentation))}\n"


async def _served() -> Mapping[str, list[Metric]]:
    async with (
        scraping(slaves=1) as one,
        client_of(one.cluster, metrics=True, trace=True) as client,
        open_admin(client=client) as admin,
        open_producer(client=client, check_transaction=_unknown) as producer,
        trio.open_nursery() as nursery,
    ):
        exporter = Exporter(
            Rounds(admin, sizes=True, members=True), names=EXPORTER_NAMES, period=15
        )
        listener = await one.cluster.listen_on(_EXPORTER_HOST)(_EXPORTER)
        await nursery.start(exporter.run, listener)
        await admin.create_topic("orders")
        await producer.send(Message("orders", b"1"))
        await producer.send(producer.delayed(Message("orders", b"2"), timedelta(seconds=1)))
        async with producer.transaction(Message("orders", b"3")):
            pass
        async with open_consumer(
            "orders", group="billing", client=client, start_from="earliest"
        ) as consumer:
            nursery.start_soon(consumer.run, _fail)
            await trio.sleep(_UNTIL_ALL_IS_KNOWN)
            registry = CollectorRegistry()
            registry.register(collector(client))
            pages = {
                "A broker": [(await one.page(host=host)).text for host in _BROKERS],
                "rocketrio exporter": [(await get(one.cluster.dial, _EXPORTER, "/metrics")).text],
                "A client": [generate_latest(registry).decode()],
            }
            nursery.cancel_scope.cancel()
    return {name: _merged(texts) for name, texts in pages.items()}


async def _fail(message: MessageExt) -> None:
    raise ConsumeLater(GIVE_UP)


async def _unknown(message: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


def _merged(pages: Iterable[str]) -> list[Metric]:
    """Return the families of some pages, with the samples of all; those of other packages come last."""
    found: dict[str, Metric] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            found.setdefault(family.name, family).samples.extend(family.samples)
    return sorted(found.values(), key=lambda one: (not one.name.startswith("rocket"), one.name))
