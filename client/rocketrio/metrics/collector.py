"""A collector of prometheus_client that reads what a client knows when Prometheus asks.

Names that begin with `rocketmq_` are those of RocketMQ's 5.x clients (RIP-46), times are in milliseconds there; the
others are rocketrio's own. What is unknown has no sample.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rocketrio.arguments import instance
from rocketrio.client import ClientInstance
from rocketrio.consuming.consumer import Consumer
from rocketrio.metrics.measured import Measured
from rocketrio.producing.pipeline import SendPipeline
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.extras import how_to_install
from rocketrio_protocol.histogram import Histogram

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.core import HistogramMetricFamily

_TRIES: Final = 5
log = logging.getLogger("rocketrio")


def collector(client: ClientInstance) -> "ClientCollector":
    """Return a collector for `prometheus_client.REGISTRY.register`; take it out again when the client is closed.

    Sends and handlers are timed only by a client that was opened with `metrics=True`. Raises ConfigError if
    prometheus_client is not installed.
    """
    instance(ClientInstance, "client", client, hint="`async with open_client() as client`")
    try:
        import prometheus_client.core  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            "prometheus_client is not installed", remedy=how_to_install("metrics")
        ) from error
    return ClientCollector(client)


class ClientCollector:
    """The metrics of one client."""

    def __init__(self, client: ClientInstance) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<ClientCollector of {self._client!r}>"

    def describe(self) -> "Iterable[Metric]":
        """Return nothing, so that a registry does not ask the client before there is anything to ask."""
        return ()

    def collect(self) -> "Iterable[Metric]":
        """Return the metrics as they are now; may be called in another thread than the client's."""
        for _ in range(_TRIES):
            try:
                return self._collected()
            except RuntimeError as error:  # The client's thread changed a table meanwhile.
                log.debug("metrics read again error=%s", error)
        return []

    def _collected(self) -> "Iterable[Metric]":
        found = [*self._of_consumers(), *self._of_connections()]
        hooks = self._client.hooks
        if isinstance(hooks, Measured):
            found += self._of_times(hooks)
        return found

    def _of_consumers(self) -> "Iterable[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels = ["client_id", "consumer_group", "topic"]
        queue = [*labels, "broker", "queue_id"]
        messages = GaugeMetricFamily(
            "rocketmq_consumer_cached_messages",
            "Messages in memory that are not handed out.",
            labels=labels,
        )
        size = GaugeMetricFamily(
            "rocketmq_consumer_cached_bytes", "Bytes of these messages.", labels=labels
        )
        position = GaugeMetricFamily(
            "rocketrio_client_position", "Offset of the next message.", labels=queue
        )
        read_from = GaugeMetricFamily(
            "rocketrio_client_read_from",
            "1 for the broker that the queue is read from.",
            labels=[*queue, "broker_id"],
        )
        pulls = CounterMetricFamily(
            "rocketrio_client_pulls",
            "Pulls, by the reason for which their broker was chosen.",
            labels=["client_id", "consumer_group", "reason"],
        )
        client_id = self._client.client_id
        for consumer in [*self._client.open_consumers]:
            assert isinstance(consumer, Consumer)
            cached: dict[str, list[int]] = {}
            reasons: dict[str, int] = {}
            for where, one in consumer.statistics().queues.items():
                total = cached.setdefault(where.topic, [0, 0])
                total[0] += one.cached_messages
                total[1] += one.cached_bytes
                of = [
                    client_id,
                    consumer.group,
                    where.topic,
                    where.broker_name,
                    str(where.queue_id),
                ]
                if one.position is not None:
                    position.add_metric(of, one.position)
                read_from.add_metric([*of, str(one.pull_from_which_node)], 1)
                for reason, count in one.pulls.items():
                    name = reason.name.lower()
                    reasons[name] = reasons.get(name, 0) + count
            for topic, (count, bytes_) in cached.items():
                messages.add_metric([client_id, consumer.group, topic], count)
                size.add_metric([client_id, consumer.group, topic], bytes_)
            for name, count in reasons.items():
                pulls.add_metric([client_id, consumer.group, name], count)
        return messages, size, position, read_from, pulls

    def _of_connections(self) -> "Iterable[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        of = [self._client.client_id]
        channels = [
            channel.statistics()
            for addr in self._client.pool.open_addrs
            if (channel := self._client.pool.open_channel(addr)) is not None
        ]
        pending = GaugeMetricFamily(
            "rocketrio_client_pending_calls", "Calls without an answer yet.", labels=["client_id"]
        )
        pending.add_metric(of, sum(one.pending_count for one in channels))
        unsent = GaugeMetricFamily(
            "rocketrio_client_unsent_bytes",
            "Bytes that wait for the network.",
            labels=["client_id"],
        )
        unsent.add_metric(of, sum(one.unsent_size for one in channels))
        late = GaugeMetricFamily(
            "rocketrio_client_late_answers",
            "Answers that came too late, on the connections that are open now.",
            labels=["client_id"],
        )
        late.add_metric(of, sum(one.late_answer_count for one in channels))
        waiting = GaugeMetricFamily(
            "rocketrio_client_pipeline_waiting",
            "Messages in pipelines without an answer yet.",
            labels=["client_id"],
        )
        count = 0
        for pipeline in [*self._client.open_pipelines]:
            assert isinstance(pipeline, SendPipeline)
            count += pipeline.statistics().pending
        waiting.add_metric(of, count)
        found: list[Metric] = [pending, unsent, late, waiting]
        if self._client.traces is not None:
            dropped = CounterMetricFamily(
                "rocketrio_client_trace_dropped", "Dropped trace records.", labels=["client_id"]
            )
            dropped.add_metric(of, self._client.traces.statistics().dropped)
            found.append(dropped)
        return found

    def _of_times(self, measured: Measured) -> "Iterable[Metric]":
        from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

        client_id = self._client.client_id
        sends = HistogramMetricFamily(
            "rocketmq_send_cost_time",
            "Milliseconds of sends.",
            labels=["client_id", "topic", "invocation_status"],
        )
        for (topic, is_stored), histogram in list(measured.sends.items()):
            _add(sends, [client_id, topic, _status(is_stored)], histogram)
        handlers = HistogramMetricFamily(
            "rocketmq_process_time",
            "Milliseconds of handlers.",
            labels=["client_id", "consumer_group", "topic", "invocation_status"],
        )
        for (group, topic, is_done), histogram in list(measured.handlers.items()):
            _add(handlers, [client_id, group, topic, _status(is_done)], histogram)
        busy = GaugeMetricFamily(
            "rocketrio_client_handlers_busy",
            "Handlers that run now.",
            labels=["client_id", "consumer_group"],
        )
        for group, count in list(measured.busy.items()):
            busy.add_metric([client_id, group], count)
        return sends, handlers, busy


def _status(is_success: bool) -> str:
    return "success" if is_success else "failure"


def _add(family: "HistogramMetricFamily", labels: list[str], histogram: Histogram) -> None:
    family.add_metric(labels, list(histogram.buckets()), histogram.sum)
