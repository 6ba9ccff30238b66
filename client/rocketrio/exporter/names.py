"""Writes what a round found for Prometheus, under up to three sets of names.

native      those of the page of Apache's 5.x brokers        native_names.py
exporter    those of Apache's rocketmq-exporter              exporter_names.py
own         rocketrio's                                      here
"""

from collections.abc import Collection, Iterator
from typing import Final

from rocketrio.exporter.exporter_names import exporter_names
from rocketrio.exporter.native_names import group_labels, native_names
from rocketrio.exporter.rounds import Round
from rocketrio_protocol import broker_metrics
from rocketrio_protocol.broker_metrics import VERDICT, node_labels
from rocketrio_protocol.exposition import Family, label_text

UP: Final = Family(
    "rocketrio_exporter_up", "gauge", "Whether the broker answered in the last round."
)
SECONDS: Final = Family("rocketrio_exporter_duration_seconds", "gauge", "Length of the last round.")
KNOWN: Final = broker_metrics.LAG_KNOWN.described("Whether the group's lag is known.")
MEMBERS: Final = broker_metrics.MEMBERS.described("Members that are connected.")


def page_of(found: Round, names: Collection[str]) -> Iterator[str]:
    """Yield the page in short pieces."""
    if "own" in names:
        yield from _own(found)
    if "native" in names:
        yield from native_names(found)
    if "exporter" in names:
        yield from exporter_names(found)


def _own(found: Round) -> Iterator[str]:
    yield SECONDS.alone("", found.seconds)
    yield UP.head()
    for one in found.brokers:
        labels = {**node_labels(one.cluster, one.name), "broker_id": one.id, "address": one.addr}
        yield UP.sample(label_text(labels), int(one.runtime is not None))
    yield KNOWN.head()
    for row in found.rows:
        yield KNOWN.sample(group_labels(row), int(row.lag is not None))
    yield VERDICT.head()
    for row in found.rows:
        yield VERDICT.sample(f'{group_labels(row)},verdict="{row.verdict}"', 1)
    yield MEMBERS.head()
    for group, count in found.member_counts.items():
        yield MEMBERS.sample(label_text({"consumer_group": group}), count)
