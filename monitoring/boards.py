"""Writes the Grafana boards of this folder from the table below: `python monitoring/boards.py`.

Lags are asked as `A_milliseconds or A`: brokers of RocketMQ 5.1.0 to 5.1.3 have the second name. A board has the data
source and what it is about as variables.
"""

import json
from pathlib import Path
from typing import Any, Final

import attrs

FOLDER: Final = Path(__file__).parent / "grafana"
WIDTH: Final = 12
HEIGHT: Final = 8
COLUMNS: Final = 2

NODE: Final = 'cluster=~"$cluster",node_id=~"$node_id"'
GROUP: Final = f'{NODE},consumer_group=~"$consumer_group",topic=~"$topic"'
TOPIC: Final = f'{NODE},topic=~"$topic"'
LAG_AGE: Final = (
    f"(rocketmq_consumer_lag_latency_milliseconds{{{GROUP}}}"
    f" or rocketmq_consumer_lag_latency{{{GROUP}}}) / 1000"
)


@attrs.frozen
class Panel:
    """One diagram."""

    title: str
    description: str
    unit: str
    """As Grafana calls it."""
    queries: dict[str, str]
    """Expressions by the text of their legend."""


@attrs.frozen
class Board:
    """One page of diagrams."""

    name: str
    title: str
    variables: tuple[str, ...]
    panels: tuple[Panel, ...]


VARIABLES: Final = {
    "cluster": "label_values(rocketmq_broker_permission, cluster)",
    "node_id": 'label_values(rocketmq_broker_permission{cluster=~"$cluster"}, node_id)',
    "consumer_group": f"label_values(rocketmq_consumer_lag_messages{{{NODE}}}, consumer_group)",
    "topic": f"label_values(rocketmq_messages_in_total{{{NODE}}}, topic)",
    "client": "label_values(rocketmq_consumer_cached_messages, client_id)",
}

CLUSTER: Final = Board(
    "cluster",
    "RocketMQ: cluster",
    ("cluster", "node_id"),
    (
        Panel(
            "Brokers that take writes",
            "One of each name. Two are a split, none means that sends fail.",
            "short",
            {"{{node_id}}": f"sum by (node_id) (rocketrio_broker_takes_writes{{{NODE}}})"},
        ),
        Panel(
            "Messages in and out",
            "All topics; messages that groups read several times count several times.",
            "msg/s",
            {
                "in {{node_id}}": f"sum by (node_id) (rate(rocketmq_messages_in_total{{{NODE}}}[1m]))",
                "out {{node_id}}": f"sum by (node_id) (rate(rocketmq_messages_out_total{{{NODE}}}[1m]))",
            },
        ),
        Panel(
            "Bytes in and out",
            "What clients sent and got.",
            "Bps",
            {
                "in {{node_id}}": f"sum by (node_id) (rate(rocketmq_throughput_in_total{{{NODE}}}[1m]))",
                "out {{node_id}}": f"sum by (node_id) (rate(rocketmq_throughput_out_total{{{NODE}}}[1m]))",
            },
        ),
        Panel(
            "Groups furthest behind",
            "The ten groups with the oldest unread message.",
            "s",
            {
                "{{consumer_group}} {{topic}}": "topk(10, max by (consumer_group, topic)"
                ' ((rocketmq_consumer_lag_latency_milliseconds{cluster=~"$cluster"}'
                ' or rocketmq_consumer_lag_latency{cluster=~"$cluster"}) / 1000))'
            },
        ),
        Panel(
            "Disk",
            "The used part of each log's file system. Above 75 % old files go early, above 90 % sends are refused.",
            "percentunit",
            {"{{node_id}} {{instance}}": f"rocketrio_store_disk_used_ratio{{{NODE}}}"},
        ),
        Panel(
            "Events worth a look",
            "Warnings and errors of the logs, by event.",
            "short",
            {
                "{{event}}": f'sum by (event) (increase(rocketrio_events_total{{{NODE},level=~"warning|error"}}[5m]))'
            },
        ),
    ),
)
REPLICATION: Final = Board(
    "replication",
    "RocketMQ: replication",
    ("cluster", "node_id"),
    (
        Panel(
            "Slaves",
            "Live slaves, and how many a send waits for.",
            "short",
            {
                "live {{node_id}}": f"rocketrio_ha_live_slaves{{{NODE}}}",
                "wanted {{node_id}}": f"rocketrio_ha_in_sync_slaves_wanted{{{NODE}}}",
            },
        ),
        Panel(
            "Seconds behind",
            "Age of the first message that a slave lacks.",
            "s",
            {"{{node_id}} slave {{slave}}": f"rocketrio_ha_slave_behind_seconds{{{NODE}}}"},
        ),
        Panel(
            "Bytes behind",
            "What a slave has not acknowledged.",
            "bytes",
            {"{{node_id}} slave {{slave}}": f"rocketrio_ha_slave_behind_bytes{{{NODE}}}"},
        ),
        Panel(
            "What slaves do",
            "The state of each slave; docs/operations.md explains them.",
            "short",
            {"{{instance}} {{state}}": f"rocketrio_ha_state{{{NODE}}} == 1"},
        ),
        Panel(
            "Answers to sends that waited",
            "Everything but PUT_OK is less safe than was asked for.",
            "ops",
            {
                "{{node_id}} {{status}}": "sum by (node_id, status)"
                f" (rate(rocketrio_sends_answered_total{{{NODE}}}[1m]))"
            },
        ),
        Panel(
            "Waits of sends (99 %)",
            "How long sends wait for the disk and for slaves.",
            "s",
            {
                "{{node_id}} {{for}}": "histogram_quantile(0.99, sum by (node_id, for, le)"
                f" (rate(rocketrio_send_wait_seconds_bucket{{{NODE}}}[5m])))"
            },
        ),
        Panel(
            "Replicated bytes",
            "Bytes sent to each slave.",
            "Bps",
            {
                "{{node_id}} slave {{slave}}": f"rate(rocketrio_ha_slave_sent_bytes_total{{{NODE}}}[1m])"
            },
        ),
        Panel(
            "Connections to masters",
            "How often slaves connected; a healthy slave connects once.",
            "short",
            {"{{instance}}": f"increase(rocketrio_ha_connects_total{{{NODE}}}[10m])"},
        ),
    ),
)
GROUPS: Final = Board(
    "groups",
    "RocketMQ: consumer groups",
    ("cluster", "node_id", "consumer_group", "topic"),
    (
        Panel(
            "Unread messages",
            "Not committed. A gap means that nobody knows, not that nothing is unread.",
            "short",
            {
                "{{consumer_group}} {{topic}}": "sum by (consumer_group, topic)"
                f" (rocketmq_consumer_lag_messages{{{GROUP}}})"
            },
        ),
        Panel(
            "Age of the oldest unread message",
            "How late the group is.",
            "s",
            {"{{consumer_group}} {{topic}}": f"max by (consumer_group, topic) ({LAG_AGE})"},
        ),
        Panel(
            "In flight",
            "Pulled by members and not committed: what their handlers have.",
            "short",
            {
                "{{consumer_group}} {{topic}}": "sum by (consumer_group, topic)"
                f" (rocketmq_consumer_inflight_messages{{{GROUP}}})"
            },
        ),
        Panel(
            "Messages out",
            "Messages that the group was given.",
            "msg/s",
            {
                "{{consumer_group}} {{topic}}": "sum by (consumer_group, topic)"
                f" (rate(rocketmq_messages_out_total{{{GROUP}}}[1m]))"
            },
        ),
        Panel(
            "Verdicts",
            "Groups that are not well, by the rules of `rocketrio lag`.",
            "short",
            {
                "{{consumer_group}} {{topic}} {{verdict}}": "max by (consumer_group, topic, verdict)"
                f' (rocketrio_group_verdict{{{GROUP},verdict!="ok"}} == 1)'
            },
        ),
        Panel(
            "Members",
            "Members that are connected; every broker sees all members.",
            "short",
            {
                "{{consumer_group}}": "max by (consumer_group)"
                f' (rocketrio_group_members{{{NODE},consumer_group=~"$consumer_group"}})'
            },
        ),
        Panel(
            "Dead letters",
            "Messages that the group gave up.",
            "short",
            {
                "{{consumer_group}} {{topic}}": "sum by (consumer_group, topic)"
                f" (increase(rocketmq_send_to_dlq_messages_total{{{GROUP}}}[5m]))"
            },
        ),
        Panel(
            "Unknown lag",
            "Groups whose lag no broker knows, and members that subscribe differently.",
            "short",
            {
                "unknown {{consumer_group}} {{topic}}": f"rocketrio_group_lag_known{{{GROUP}}} == 0",
                "differ {{consumer_group}}": "rocketrio_group_subscriptions_differ"
                f'{{{NODE},consumer_group=~"$consumer_group"}} == 1',
            },
        ),
    ),
)
TOPICS: Final = Board(
    "topics",
    "RocketMQ: topics",
    ("cluster", "node_id", "topic"),
    (
        Panel(
            "Messages in",
            "By type.",
            "msg/s",
            {
                "{{topic}} {{message_type}}": "sum by (topic, message_type)"
                f" (rate(rocketmq_messages_in_total{{{TOPIC}}}[1m]))"
            },
        ),
        Panel(
            "Bytes in",
            "As stored.",
            "Bps",
            {"{{topic}}": f"sum by (topic) (rate(rocketmq_throughput_in_total{{{TOPIC}}}[1m]))"},
        ),
        Panel(
            "Message size (99 %)",
            "An estimate from six steps.",
            "bytes",
            {
                "{{topic}}": "histogram_quantile(0.99, sum by (topic, le)"
                f" (rate(rocketmq_message_size_bucket{{{TOPIC}}}[5m])))"
            },
        ),
        Panel(
            "Messages out",
            "To all groups together.",
            "msg/s",
            {"{{topic}}": f"sum by (topic) (rate(rocketmq_messages_out_total{{{TOPIC}}}[1m]))"},
        ),
        Panel(
            "Transactions",
            "Committed and rolled back.",
            "ops",
            {
                "committed {{topic}}": "sum by (topic)"
                f" (rate(rocketmq_commit_messages_total{{{TOPIC}}}[1m]))",
                "rolled back {{topic}}": "sum by (topic)"
                f" (rate(rocketmq_rollback_messages_total{{{TOPIC}}}[1m]))",
            },
        ),
        Panel(
            "Delayed messages",
            "Waiting, by level.",
            "short",
            {"level {{level}}": f"sum by (level) (rocketrio_delayed_messages{{{NODE}}})"},
        ),
    ),
)
BROKER: Final = Board(
    "broker",
    "RocketMQ: broker",
    ("cluster", "node_id"),
    (
        Panel(
            "Delay of the event loop",
            "The longest of ten seconds: what each send and pull may wait. Above 0.5 s clients notice.",
            "s",
            {"{{node_id}} {{instance}}": f"rocketrio_loop_delay_seconds{{{NODE}}}"},
        ),
        Panel(
            "Connections",
            "Of clients; pulls that wait for messages; sends that wait for disk or slaves.",
            "short",
            {
                "connections {{instance}}": f"rocketrio_broker_connections{{{NODE}}}",
                "held pulls {{instance}}": f"rocketrio_broker_held_pulls{{{NODE}}}",
                "waiting sends {{instance}}": f"rocketrio_broker_waiting_answers{{{NODE}}}",
            },
        ),
        Panel(
            "Not flushed, not dispatched",
            "Bytes of the log that are not on the disk yet, and those without queue entries.",
            "bytes",
            {
                "flush {{instance}}": f"rocketmq_storage_flush_behind_bytes{{{NODE}}}",
                "dispatch {{instance}}": f"rocketmq_storage_dispatch_behind_bytes{{{NODE}}}",
            },
        ),
        Panel(
            "Store",
            "Bytes of the files by part.",
            "bytes",
            {"{{instance}} {{part}}": f"rocketrio_store_bytes{{{NODE}}}"},
        ),
        Panel(
            "Age of the oldest message",
            "How far back the log goes.",
            "s",
            {
                "{{instance}}": f"(rocketmq_storage_message_reserve_time_milliseconds{{{NODE}}}"
                f" or rocketmq_storage_message_reserve_time{{{NODE}}}) / 1000"
            },
        ),
        Panel(
            "CPU and memory",
            "Of the process.",
            "short",
            {
                "cores {{instance}}": 'rate(process_cpu_seconds_total{job="rocketmq"}[1m])',
                "GiB {{instance}}": 'process_resident_memory_bytes{job="rocketmq"} / 1073741824',
            },
        ),
    ),
)
CLIENT: Final = Board(
    "client",
    "RocketMQ: clients",
    ("client",),
    (
        Panel(
            "Cached messages",
            "Received and not handled yet.",
            "short",
            {"{{client_id}} {{topic}}": 'rocketmq_consumer_cached_messages{client_id=~"$client"}'},
        ),
        Panel(
            "Cached bytes",
            "Bodies that wait in memory.",
            "bytes",
            {"{{client_id}} {{topic}}": 'rocketmq_consumer_cached_bytes{client_id=~"$client"}'},
        ),
        Panel(
            "Time of a send (99 %)",
            "From the call to the answer.",
            "ms",
            {
                "{{client_id}} {{topic}}": "histogram_quantile(0.99, sum by (client_id, topic, le)"
                ' (rate(rocketmq_send_cost_time_bucket{client_id=~"$client"}[5m])))'
            },
        ),
        Panel(
            "Time of a handler (99 %)",
            "How long handlers take for a message.",
            "ms",
            {
                "{{client_id}} {{topic}}": "histogram_quantile(0.99, sum by (client_id, topic, le)"
                ' (rate(rocketmq_process_time_bucket{client_id=~"$client"}[5m])))'
            },
        ),
    ),
)
BOARDS: Final = (CLUSTER, REPLICATION, GROUPS, TOPICS, BROKER, CLIENT)


def board_json(board: Board) -> str:
    """Return a board as Grafana imports it."""
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"}
    ]
    variables += [
        {
            "name": name,
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": {"query": VARIABLES[name], "refId": name},
            "includeAll": True,
            "multi": True,
            "refresh": 2,
            "sort": 1,
        }
        for name in board.variables
    ]
    made = {
        "uid": f"rocketmq-{board.name}",
        "title": board.title,
        "tags": ["rocketmq"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables},
        "panels": [_panel(panel, number) for number, panel in enumerate(board.panels)],
    }
    return json.dumps(made, indent=1) + "\n"


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    row, column = divmod(number, COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend}
            for index, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


def main() -> None:
    """Write all boards."""
    FOLDER.mkdir(exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(board_json(board))


if __name__ == "__main__":
    main()
