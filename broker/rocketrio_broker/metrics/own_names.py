"""The metrics that only rocketrio's brokers have. What is unknown has no sample."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.metrics.apache_names import Named
from rocketrio_broker.metrics.certificates import Certificates
from rocketrio_broker.metrics.counts import CountedAnswers, CountedStats
from rocketrio_broker.metrics.event_counts import EventCounts
from rocketrio_broker.metrics.group_lags import TopicLag
from rocketrio_broker.metrics.loop_delay import LoopDelay
from rocketrio_broker.store.query import store_timestamp_from
from rocketrio_protocol.broker_metrics import LAG_KNOWN, MEMBERS, VERDICT
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.exposition import Family, histogram_text
from rocketrio_protocol.lag import lag_of
from rocketrio_protocol.names import SCHEDULE_TOPIC
from rocketrio_protocol.remoting.ports import split_addr
from rocketrio_protocol.times import age_ms

if TYPE_CHECKING:
    from rocketrio_broker.state import BrokerState

INFO: Final = Family("rocketrio_broker_info", "gauge", "1, with what the broker is.")
TAKES_WRITES: Final = Family(
    "rocketrio_broker_takes_writes",
    "gauge",
    "Whether the broker leads its name and takes messages.",
)
CONNECTIONS: Final = Family("rocketrio_broker_connections", "gauge", "Connections of clients.")
FAULTS: Final = Family(
    "rocketrio_connection_faults_total",
    "counter",
    "Connections that a fault of this program has ended; the log has tracebacks.",
)
HELD_PULLS: Final = Family("rocketrio_broker_held_pulls", "gauge", "Pulls that wait for messages.")
WAITING: Final = Family(
    "rocketrio_broker_waiting_answers", "gauge", "Sends that wait for the disk or for slaves."
)
LOOP_DELAY: Final = Family(
    "rocketrio_loop_delay_seconds", "gauge", "The longest delay of the event loop in the last 10 s."
)
LOOP_DELAYS: Final = Family(
    "rocketrio_loop_delays_seconds", "histogram", "How late a task wakes that sleeps for 0.1 s."
)
ANSWERED: Final = Family(
    "rocketrio_sends_answered_total",
    "counter",
    "Sends that had to wait for the disk or for slaves, by the status of their answer.",
)
SEND_WAIT: Final = Family(
    "rocketrio_send_wait_seconds", "histogram", "How long sends waited for the disk or for slaves."
)
HA_LIVE: Final = Family(
    "rocketrio_ha_live_slaves", "gauge", "Slaves that follow and have reported."
)
HA_WANTED: Final = Family(
    "rocketrio_ha_in_sync_slaves_wanted",
    "gauge",
    "Slaves that must have a message; in_sync_slaves.",
)
HA_REQUIRED: Final = Family(
    "rocketrio_ha_required", "gauge", "Whether sends wait for slaves: the role is sync-master."
)
SLAVE_BYTES: Final = Family(
    "rocketrio_ha_slave_behind_bytes", "gauge", "Bytes of the log that the slave lacks."
)
SLAVE_SECONDS: Final = Family(
    "rocketrio_ha_slave_behind_seconds", "gauge", "Age of the first message that the slave lacks."
)
SLAVE_SENT: Final = Family(
    "rocketrio_ha_slave_sent_bytes_total", "counter", "Bytes sent on the slave's connection."
)
SLAVE_REPORT: Final = Family(
    "rocketrio_ha_slave_report_age_seconds", "gauge", "Seconds since the slave last reported."
)
SLAVE_SINCE: Final = Family(
    "rocketrio_ha_slave_connected_since_seconds", "gauge", "When the slave connected, since 1970."
)
HA_STATE: Final = Family("rocketrio_ha_state", "gauge", "1 for what the slave is doing now.")
HA_RECEIVED: Final = Family(
    "rocketrio_ha_received_bytes_total", "counter", "Bytes of the log that came from masters."
)
HA_CONNECTS: Final = Family(
    "rocketrio_ha_connects_total", "counter", "Connections that the slave made to masters."
)
HA_TRANSFER: Final = Family(
    "rocketrio_ha_transfer_age_seconds", "gauge", "Seconds since the master sent something."
)
HA_VERIFIED: Final = Family(
    "rocketrio_ha_verified_offset", "gauge", "Address up to which the log equals the master's."
)
HA_TABLES: Final = Family(
    "rocketrio_ha_synchronize_age_seconds", "gauge", "Seconds since topics and offsets were copied."
)
LOG_OFFSETS: Final = (
    (Family("rocketrio_log_first_offset", "gauge", "First address."), "min_physical_offset"),
    (Family("rocketrio_log_end_offset", "gauge", "Address after the log."), "max_physical_offset"),
    (Family("rocketrio_log_flushed_offset", "gauge", "End of what is on disk."), "flushed_offset"),
    (
        Family("rocketrio_log_dispatched_offset", "gauge", "End of what queues have."),
        "dispatched_offset",
    ),
)
"""Addresses of the log, with the fields of StoreStatistics that have them."""
STORE_BYTES: Final = Family("rocketrio_store_bytes", "gauge", "Bytes of the store's files.")
DISK_FREE: Final = Family(
    "rocketrio_store_disk_free_bytes", "gauge", "Free bytes of the log's file system."
)
DISK_RATIO: Final = Family(
    "rocketrio_store_disk_used_ratio", "gauge", "Used part of the log's file system, 0 to 1."
)
PUT_FAILED: Final = Family(
    "rocketrio_store_put_failed_total", "counter", "Messages that the store refused."
)
RESETS: Final = Family(
    "rocketrio_offset_resets_total", "counter", "Queues whose offset an operator reset."
)
REFUSED: Final = Family(
    "rocketrio_offsets_refused_total",
    "counter",
    "Commits that were dropped: after a reset, for a queue that the sender lost, or for messages that were cut off.",
)
DIFFER: Final = Family(
    "rocketrio_group_subscriptions_differ", "gauge", "Whether members subscribe differently."
)
OPEN_TRANSACTIONS: Final = Family(
    "rocketrio_transactions_open",
    "gauge",
    "Transactions without a decision, old enough to be asked about.",
)
CHECKED: Final = Family(
    "rocketrio_transactions_checked_total", "counter", "Questions to producers about transactions."
)
GIVEN_UP: Final = Family(
    "rocketrio_transactions_given_up_total", "counter", "Transactions that stayed undecided."
)
TRANSACTION_AGE: Final = Family(
    "rocketrio_transaction_age_seconds",
    "histogram",
    "Seconds from the birth of a message to the commit of its transaction.",
)
DELAYED: Final = Family("rocketrio_delayed_messages", "gauge", "Delayed messages by level.")
DELIVERED: Final = Family(
    "rocketrio_delayed_delivered_total", "counter", "Delayed messages that were delivered."
)
LOST: Final = Family(
    "rocketrio_delayed_lost_total", "counter", "Delayed messages that could not be delivered."
)
EXPIRES: Final = Family(
    "rocketrio_certificate_expires_timestamp_seconds",
    "gauge",
    "When a certificate ends, since 1970.",
)
EVENTS: Final = Family("rocketrio_events_total", "counter", "Log lines by event and level.")
DROPPED: Final = Family(
    "rocketrio_metrics_dropped_series", "gauge", "Groups left out because of metrics_series_limit."
)


def node(
    broker: "BrokerState", labels: Named, *, version: str, connections: int, loop: LoopDelay
) -> Iterator[str]:
    """Yield what the broker is and does."""
    config = broker.config.broker
    what = {"version": version, "role": config.role, "broker_id": config.broker_id}
    yield INFO.alone(labels(**what, address=broker.address), 1)
    takes_writes = not config.is_slave and broker.standing.leads and broker.store.writable
    yield TAKES_WRITES.alone(labels(), int(takes_writes))
    yield CONNECTIONS.alone(labels(), connections)
    yield FAULTS.alone(labels(), broker.faults.count)
    yield HELD_PULLS.alone(labels(), len(broker.held_pulls))
    yield WAITING.alone(labels(), len(broker.waiting_answers))
    yield LOOP_DELAY.alone(labels(), loop.longest)
    yield LOOP_DELAYS.head() + histogram_text(loop.delays, LOOP_DELAYS.name, labels())


def sends(waiting: CountedAnswers, labels: Named) -> Iterator[str]:
    """Yield how sends were answered that had to wait."""
    yield ANSWERED.head()
    for code, count in waiting.statistics().answered.items():
        status = "PUT_OK" if code == ResponseCode.SUCCESS else code.name
        yield ANSWERED.sample(labels(status=status), count)
    yield SEND_WAIT.head()
    yield histogram_text(waiting.disk_waits, SEND_WAIT.name, labels(**{"for": "disk"}))
    yield histogram_text(waiting.slave_waits, SEND_WAIT.name, labels(**{"for": "slaves"}))


def slaves(broker: "BrokerState", labels: Named) -> Iterator[str]:
    """Yield what a master knows of its slaves."""
    found = broker.ha_service.statistics()
    transfer = found.group_transfer
    yield HA_LIVE.alone(labels(), transfer.live_slaves)
    yield HA_WANTED.alone(labels(), transfer.in_sync_slaves)
    yield HA_REQUIRED.alone(labels(), int(transfer.is_required))
    end, first = found.max_physical_offset, broker.store.min_physical_offset
    rows: dict[str, tuple[float | None, ...]] = {}
    for one in found.connections:
        known_id = broker.live_slaves.id_of(one.addr)
        slave = split_addr(one.addr)[0] if known_id is None else str(known_id)
        begin = max(one.slave_ack_offset, first)
        rows[labels(slave=slave)] = (  # A slave that connects again is the newest connection.
            lag_of(begin, end),
            _seconds_behind(broker, begin, end),
            one.bytes_sent,
            one.last_report_age,
            one.connected_since_ms / 1000,
        )
    families = (SLAVE_BYTES, SLAVE_SECONDS, SLAVE_SENT, SLAVE_REPORT, SLAVE_SINCE)
    for number, family in enumerate(families):
        yield family.head()
        for text, values in rows.items():
            if (value := values[number]) is not None:
                yield family.sample(text, value)


def _seconds_behind(broker: "BrokerState", begin: int, end: int) -> float | None:
    if begin >= end:
        return 0.0 if begin == end else None
    stored_ms = store_timestamp_from(broker.store.read_log, begin)
    return None if stored_ms is None else age_ms(stored_ms, broker.wall_clock.now_ms()) / 1000


def following(broker: "BrokerState", labels: Named) -> Iterator[str]:
    """Yield how a slave follows its master."""
    slave = broker.slave_statistics()
    if slave is None:
        return
    yield HA_STATE.head()
    for state in HAClientState:
        yield HA_STATE.sample(
            labels(state=state.text, state_id=state.value), int(state is slave.log.state)
        )
    yield HA_RECEIVED.alone(labels(), slave.log.bytes_received)
    yield HA_CONNECTS.alone(labels(), slave.log.connection_count)
    yield HA_TRANSFER.alone(labels(), slave.log.last_transfer_age)
    yield HA_VERIFIED.alone(labels(), slave.log.verified_offset)
    yield HA_TABLES.alone(labels(), slave.tables.last_round_age)


def store(broker: "BrokerState", labels: Named) -> Iterator[str]:
    """Yield the positions of the log, and what the store takes of the disk."""
    store = broker.store
    statistics = store.statistics()
    for family, field in LOG_OFFSETS:
        yield family.alone(labels(), getattr(statistics, field))
    yield PUT_FAILED.alone(labels(), statistics.put_message_failed_times)
    size = 0
    for queue in list(store.queue_table):
        size += queue.file_bytes
        yield ""
    yield STORE_BYTES.head()
    yield STORE_BYTES.sample(labels(part="commitlog"), store.commit_log.files.size)
    yield STORE_BYTES.sample(labels(part="consumequeue"), size)
    yield STORE_BYTES.sample(labels(part="index"), store.key_index.size)
    total, free = store.disk_capacity
    if total:
        yield DISK_FREE.alone(labels(), free)
        yield DISK_RATIO.alone(labels(), store.disk_used_ratio)


def verdicts(found: Sequence[tuple[str, TopicLag]], verdicts: Sequence[str]) -> Iterator[str]:
    """Yield how groups keep up."""
    yield VERDICT.head()
    for (text, _), verdict in zip(found, verdicts, strict=True):
        yield VERDICT.sample(f'{text},verdict="{verdict}"', 1)


def groups(
    broker: "BrokerState", found: Sequence[tuple[str, TopicLag]], labels: Named, limit: int
) -> Iterator[str]:
    """Yield what is known of groups."""
    yield LAG_KNOWN.head()
    for text, each in found:
        yield LAG_KNOWN.sample(text, int(each.lag is not None))
    connected = broker.consumers.consumer_table
    names = list(dict.fromkeys((*broker.groups.subscription_group_table, *connected)))[:limit]
    texts = []
    for name in names:
        texts.append(labels(consumer_group=name))
        yield ""
    yield MEMBERS.head()
    for name, text in zip(names, texts, strict=True):
        yield MEMBERS.sample(text, len(broker.consumers.client_ids(name)))
    yield RESETS.head()
    for name, text in zip(names, texts, strict=True):
        yield RESETS.sample(text, broker.consumer_offsets.resets.get(name, 0))
    yield REFUSED.head()
    for name, text in zip(names, texts, strict=True):
        yield REFUSED.sample(text, broker.consumer_offsets.refused.get(name, 0))
    yield DIFFER.head()
    for name, text in zip(names, texts, strict=True):
        info = connected.get(name)
        yield DIFFER.sample(text, int(info is not None and info.subscriptions_differ))


def parked(broker: "BrokerState", labels: Named) -> Iterator[str]:
    """Yield delayed messages and transactions, of a master that has led."""
    check, schedule = broker.transaction_check, broker.schedule
    if check is not None:
        yield OPEN_TRANSACTIONS.alone(labels(), len(broker.ledger.open))
        yield CHECKED.alone(labels(), check.statistics.checked)
        yield GIVEN_UP.alone(labels(), check.statistics.given_up)
    if schedule is not None:
        yield DELAYED.head()
        for queue_id in sorted(broker.store.queues().get(SCHEDULE_TOPIC, {})):
            level = queue_id + 1
            _, end = broker.store.queue_bounds(SCHEDULE_TOPIC, queue_id) or (0, 0)
            # None if the progress lies beyond the end: it counts other messages, so what waits is unknown.
            waiting = lag_of(broker.delay_offsets.offset_table.get(level, 0), end)
            if waiting is not None:
                yield DELAYED.sample(labels(level=level), waiting)
        yield DELIVERED.alone(labels(), schedule.statistics.delivered)
        yield LOST.alone(labels(), schedule.statistics.lost)


def transaction_ages(stats: CountedStats, labels: Named, limit: int) -> Iterator[str]:
    """Yield how long committed transactions were open, by topic."""
    yield TRANSACTION_AGE.head()
    for topic, seconds in list(stats.committed.items())[:limit]:
        yield histogram_text(seconds, TRANSACTION_AGE.name, labels(topic=topic))


def certificates(found: Certificates, labels: Named) -> Iterator[str]:
    """Yield when certificates end."""
    yield EXPIRES.head()
    for path, end in found.ends():
        yield EXPIRES.sample(labels(file=path), end)


def events(counts: EventCounts, labels: Named) -> Iterator[str]:
    """Yield how often each kind of line was logged in this process."""
    yield EVENTS.head()
    for (event, level), count in counts.by_kind():
        yield EVENTS.sample(labels(event=event, level=level), count)
