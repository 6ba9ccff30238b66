"""Records the golden frames of Java peers that speak the ROCKETMQ header (serialize type 1).

`python -m tests.interop.record_header` writes `tests/golden/rocketmq-header/<version>/`: name server,
master, slave and client of one version run with `rocketmq.serialize.type=ROCKETMQ` behind the recorder;
at the end a client that speaks JSON asks the same servers, to show which header they answer it with.
"""

import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.jars import VERSIONS
from tests.interop.java_client import JavaClient, JavaError
from tests.interop.recorder import Listener, Recorder, recording
from tests.support.processes import free_port
from tests.support.waiting import wait_until
from tests.support.wire import max_physical_offset

GOLDEN = Path(__file__).parent.parent / "golden" / "rocketmq-header"
_SLAVE_METADATA_WAIT = 90.0
"""Seconds; a 5.3.3 slave copies metadata a minute after its start, a 4.9.7 one at once."""
_LAST_COPIED = "00c9"
"""What a slave asks for last: GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), as the header's first bytes."""

_STEP_LENGTH = 400

_QUEUE: dict[str, Any] = {"topic": "orders", "broker": "broker-a", "queue_id": 0}
_STEPS: list[tuple[str, dict[str, Any]]] = [
    ("send", {**_QUEUE, "queue_id": 1, "body": "plain"}),
    (
        "send",
        {
            **_QUEUE,
            "body": "full",
            "tags": "red",
            "keys": "k1 k2",
            "properties": {"colour": "blau-grün", "size": "12"},
        },
    ),
    ("send", {**_QUEUE, "body": "asynchronous", "mode": "async", "tags": "green"}),
    ("send", {**_QUEUE, "body": "oneway", "mode": "oneway"}),
    ("send", {**_QUEUE, "body": "compressed " * 600}),
    ("send_batch", {**_QUEUE, "bodies": ["b-0", "b-1", "b-2"], "tags": "red"}),
    ("send", {**_QUEUE, "queue_id": 99, "body": "no such queue"}),
    ("send", {"topic": "made-by-sending", "body": "a new topic"}),
    ("pull", {**_QUEUE, "offset": 0, "max": 2}),
    ("pull", {**_QUEUE, "offset": 0, "tags": "red"}),
    ("pull", {**_QUEUE, "offset": 0, "tags": "nobody"}),
    ("pull", {**_QUEUE, "offset": 77}),
    ("pull", {**_QUEUE, "offset": 7}),
    ("pull", {**_QUEUE, "queue_id": 50, "offset": 0}),
    ("offsets", {**_QUEUE, "timestamp_ms": 0}),
    ("committed", {**_QUEUE, "group": "billing"}),
    ("commit", {**_QUEUE, "group": "billing", "offset": 3}),
    ("committed", {**_QUEUE, "group": "billing"}),
    ("committed", {"topic": "nowhere", "broker": "broker-a", "queue_id": 0, "group": "billing"}),
    ("route", {"topic": "orders"}),
    ("route", {"topic": "nowhere"}),
    ("topics", {}),
    ("cluster", {}),
    ("topic_stats", {"topic": "orders"}),
    ("query_key", {"topic": "orders", "key": "k1"}),
    ("push_start", {"topic": "orders", "group": "shipping"}),
    ("push_take", {"group": "shipping", "count": 8, "timeout": 15}),
    ("group_members", {"group": "shipping"}),
    ("push_stop", {"group": "shipping"}),
    ("consume_stats", {"topic": "orders", "group": "shipping"}),
    ("group_members", {"group": "nobody"}),
]
_JSON_STEPS: list[tuple[str, dict[str, Any]]] = [
    ("send", {**_QUEUE, "body": "from a client that speaks JSON"}),
    ("pull", {**_QUEUE, "offset": 0, "max": 1}),
    ("route", {"topic": "orders"}),
    ("send", {**_QUEUE, "queue_id": 99, "body": "no such queue"}),
]


def record(version: str, folder: Path) -> None:
    """Run the whole story of one version under `folder` and write its golden files."""
    log: list[str] = []
    name_server = ApacheNameServer(version, folder / "namesrv", "ROCKETMQ")
    shown_name_server = free_port()
    master = ApacheBroker(
        version, folder / "master", f"127.0.0.1:{shown_name_server}", serialize_type="ROCKETMQ"
    )
    slave = ApacheBroker(
        version,
        folder / "slave",
        f"127.0.0.1:{shown_name_server}",
        serialize_type="ROCKETMQ",
        role="SLAVE",
        broker_id=1,
    )
    listeners = [Listener("namesrv", shown_name_server, name_server.port)]
    renamed = {}
    for broker in (master, slave):
        shown = free_port(-2)
        broker.listed_at = name_server.address
        broker.listed_as = f"127.0.0.1:{shown}"
        renamed[broker.address.encode()] = broker.listed_as.encode()
        listeners += [Listener("broker", shown - less, broker.port - less) for less in (0, 2)]
    shown_master = listeners[1].port
    master_address = f"127.0.0.1:{shown_master}"
    with ExitStack() as stack:
        recorder = stack.enter_context(recording(listeners, renamed))
        stack.enter_context(name_server)
        name_server.wait_ready()
        stack.enter_context(master)
        stack.enter_context(slave)
        with JavaClient(version, master.name_server, folder / "client", "ROCKETMQ") as client:
            _run(client, "create_topic", log, address=master_address, topic="orders", queues=2)
            client.until("publish_queues", topic="orders")
            for op, request in _STEPS:
                _run(client, op, log, **request)
            stored = client.call("send", **_QUEUE, body="looked up by its id")
            shown_id = _via(stored["offset_id"], shown_master)
            _run(client, "view_message", log, topic="orders", message_id=shown_id)
            _run(client, "runtime", log, address=master_address)
        with JavaClient(version, master.name_server, folder / "json-client") as client:
            for op, request in _JSON_STEPS:
                _run(client, op, log, who="json-client ", **request)
        wait_until(
            lambda: max_physical_offset(slave.address) == max_physical_offset(master.address),
            "the slave has everything",
        )
        wait_until(
            lambda: any(str(line["hex"])[16:20] == _LAST_COPIED for line in recorder.lines),
            "the slave has copied the metadata",
            _SLAVE_METADATA_WAIT,
        )
        time.sleep(1)  # The answer, and what 5.3.3 asks besides.
    _write(version, recorder, folder, log)


def _run(client: JavaClient, op: str, log: list[str], who: str = "", **request: Any) -> None:
    words = json.dumps(request, ensure_ascii=False)
    log.append(f"{time.time_ns() // 1_000_000} {who}{op} {words[:200]}")
    try:
        log.append("# " + json.dumps(client.call(op, **request), ensure_ascii=False))
    except JavaError as error:
        log.append("! " + str(error).replace("\n", " "))


def _via(offset_id: str, port: int) -> str:
    """The same message id with another port in it: host (4 bytes), port, physical offset, as hex."""
    return offset_id[:8] + f"{port:08X}" + offset_id[16:]


def _write(version: str, recorder: Recorder, folder: Path, log: list[str]) -> None:
    found = str(folder)
    shown = ("/srv/rocketmq/" + "x" * len(found))[: len(found)]
    recorder.write(GOLDEN / version / "frames.jsonl.xz", {found.encode(): shown.encode()})
    lines = [line.replace(found, shown)[:_STEP_LENGTH] for line in log]
    (GOLDEN / version / "steps.txt").write_text("\n".join(lines) + "\n")


def main() -> None:
    for version in VERSIONS:
        with tempfile.TemporaryDirectory(prefix="header-") as folder:
            record(version, Path(folder))


if __name__ == "__main__":
    main()
