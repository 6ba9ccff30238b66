"""The page of metrics, as parts that are each made within `STEP` seconds, so that sends are not delayed longer.

Between two parts the broker works on, so the samples of a page are not all of the same moment.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from time import perf_counter
from typing import Final

from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from rocketrio_broker.metrics import apache_names, own_names
from rocketrio_broker.metrics.certificates import Certificates
from rocketrio_broker.metrics.counts import CountedAnswers, CountedStats
from rocketrio_broker.metrics.event_counts import EventCounts
from rocketrio_broker.metrics.group_lags import GroupLags, TopicLag
from rocketrio_broker.metrics.loop_delay import LoopDelay
from rocketrio_broker.metrics.verdicts import Verdicts
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.broker_metrics import node_labels
from rocketrio_protocol.exposition import Family, Kind, label_text

STEP: Final = 0.0015
"""Seconds; the compression of its text takes half as long again, and on a busy machine all takes twice as long."""
_PIECES: Final = 4
"""Pieces of text between two readings of the clock."""


class MetricsPage:
    """Makes the page of one broker, again at each reading."""

    def __init__(
        self,
        broker: BrokerState,
        *,
        connections: Callable[[], int],
        loop: LoopDelay,
        events: EventCounts,
        certificates: Certificates,
    ) -> None:
        self._broker = broker
        self._connections = connections
        self._loop = loop
        self._events = events
        self._certificates = certificates
        self._lags = GroupLags(broker)
        self._verdicts = Verdicts(broker)
        self._version = version("rocketrio")
        # A registry of its own: those of prometheus_client would count themselves in the global one.
        registry = CollectorRegistry()
        self._process = ProcessCollector(registry=registry)
        self._runtime = (GCCollector(registry), PlatformCollector(registry))

    def parts(self) -> Iterator[bytes]:
        """Yield the page in parts."""
        pieces: list[str] = []
        begin = perf_counter()
        for number, piece in enumerate(self._pieces()):
            pieces.append(piece)
            if number % _PIECES == 0 and perf_counter() - begin > STEP:
                yield "".join(pieces).encode()
                pieces.clear()
                begin = perf_counter()
        yield "".join(pieces).encode()

    def _pieces(self) -> Iterator[str]:
        broker = self._broker
        config = broker.config.broker
        common = label_text(
            {
                **node_labels(config.cluster_name, config.broker_name),
                **config.metrics_labels,
            }
        )
        labels = partial(_labels, common)
        yield from own_names.node(
            broker, labels, version=self._version, connections=self._connections(), loop=self._loop
        )
        yield from apache_names.node(broker, labels)
        yield from own_names.store(broker, labels)
        yield from own_names.following(broker, labels)
        if not config.is_slave:
            yield from self._of_master(labels, config.metrics_series_limit)
        yield from own_names.certificates(self._certificates, labels)
        yield from own_names.events(self._events, labels)
        yield from self._of_process()

    def _of_master(self, labels: apache_names.Named, limit: int) -> Iterator[str]:
        broker = self._broker
        stats, answers = broker.stats, broker.waiting_answers
        assert isinstance(stats, CountedStats)
        assert isinstance(answers, CountedAnswers)
        yield from own_names.sends(answers, labels)
        yield from own_names.slaves(broker, labels)
        yield from own_names.parked(broker, labels)
        yield from apache_names.traffic(stats, labels, limit)
        yield from apache_names.transactions(broker, stats, labels, limit)
        yield from own_names.transaction_ages(stats, labels, limit)
        yield from apache_names.creations(stats, labels)
        yield from apache_names.clients(broker, labels, limit)
        lags: list[tuple[str, TopicLag]] = []
        verdicts: list[str] = []
        dropped = 0
        log_age_ms = self._log_age_ms()
        self._verdicts.begin()
        for each in self._lags.measure():
            if len(lags) < limit:
                lags.append((apache_names.lag_labels(labels, each), each))
                verdicts.append(self._verdicts.verdict(each, log_age_ms))
            else:
                dropped += 1
            yield ""
        yield from apache_names.lags(lags)
        yield from own_names.verdicts(lags, verdicts)
        yield from own_names.groups(broker, lags, labels, limit)
        yield own_names.DROPPED.alone(labels(), dropped)

    def _log_age_ms(self) -> int | None:
        """Return the age of the first message; None if no message was ever deleted."""
        store = self._broker.store
        first_ms = store.earliest_message_time() if store.min_physical_offset else None
        return None if first_ms is None else self._broker.wall_clock.now_ms() - first_ms

    def _of_process(self) -> Iterator[str]:
        """Yield memory, CPU and garbage collections of the process, in prometheus_client's words."""
        for collector in (self._process, *self._runtime):
            for metric in collector.collect():
                is_counter = metric.type == "counter"
                name = f"{metric.name}_total" if is_counter else metric.name
                kind: Kind = "counter" if is_counter else "gauge"
                family = Family(name, kind, metric.documentation)
                yield family.head()
                for sample in metric.samples:
                    if sample.name == family.name:
                        yield family.sample(label_text(sample.labels), sample.value)


def _labels(common: str, **labels: object) -> str:
    return label_text(labels, common) if labels else common
