"""One message whose body cannot be read hides no other, in no command that reads messages.

Each command meets a damaged ZLIB body, one of an unknown codec, and LZ4 and ZSTD without their packages.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from click.testing import Result
from tests.client.cli.filled import cut_words, run_filled
from tests.client.cli.trees import all_commands
from tests.support.caller import Caller, accepted
from tests.support.running_cluster import Running, channel_pool, create_topic, running_cluster
from tests.support.waiting import eventually

from rocketrio import GIVE_UP, ClientInstance, open_client, open_consumer
from rocketrio.admin.admin import open_admin
from rocketrio.cli import message as message_commands
from rocketrio_protocol.record.compression import CompressionType, compress
from rocketrio_protocol.record.layout import COMPRESSED, COMPRESSION_TYPE_SHIFT

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOPIC, GROUP, TRACES = "t", "hg", "traces"
GOOD: Final = ("good0", "good3", "good6")
BODIES: Final = (
    (b"good0", None),
    (b"POISON", CompressionType.UNSPECIFIED),
    (b"abc", 7),
    (b"good3", None),
    (compress(b"far", CompressionType.LZ4), CompressionType.LZ4),
    (compress(b"away", CompressionType.ZSTD), CompressionType.ZSTD),
    (b"good6", None),
)
UNREADABLE: Final = tuple(offset for offset, (_, kind) in enumerate(BODIES) if kind is not None)
WHY: Final = (
    "is damaged",
    "unknown compression type 7",
    "LZ4, whose package",
    "ZSTD, whose package",
)
ALONE: Final = {
    # Which command needs which of these places: words in braces are of `Place`.
    "broker cut list": "{data}",
    "broker cut resend": "{data} {cut} --yes",
    "broker cut show": "{data} {cut} --json",
    "bench consume": "t2 --messages 7 --json --yes",
    "bench pingpong": "t3 --messages 2 --json --yes",
    "consume": "t --group g1 --until-caught-up --json --yes",
    "dead-letters count": "hg --json",
    "dead-letters export": "hg {folder}",
    "dead-letters list": "hg --json",
    "dead-letters resend": "hg --all --json --yes",
    "message at": "t {broker}/0 0 --count 10 --json",
    "message browse": "t --json",
    "message deliver": "{poison} --group hg --client {member} --dry-run",
    "message find": "t --key k --json",
    "message get": "U --topic t --json",
    "message status": "{poison} --json",
    "message tail": "t --from first --json",
    "message trace": "MID --trace-topic traces --json",
}
"""The arguments of each command that reads messages."""
READS_NONE: Final = {
    *("acl account delete", "acl account update", "acl account versions"),
    *(
        "acl account white-addresses",
        "acl check",
        "acl grant",
        "acl import",
        "acl list",
        "acl revoke",
    ),
    *("acl sign", "acl user create", "acl user delete", "acl user list", "acl user show"),
    *("acl user update", "apply", "bench produce", "bench replication", "broker clean"),
    *("broker drain", "broker hand-over", "broker role", "broker settings", "broker show"),
    *("broker stats", "broker undrain", "broker verify", "check broker", "check certificate"),
    *("check connection", "check dead-letters", "check disk", "check health", "check lag"),
    *("check replication", "check roundtrip", "check routes", "check transactions", "clients"),
    *("cluster events", "cluster health", "cluster list", "cluster rtt", "cluster status"),
    *("completion", "context add", "context check", "context copy", "context edit", "context list"),
    *("context remove", "context rename", "context show", "context unuse", "context use", "doctor"),
    *("export", "exporter", "group check", "group create", "group delete", "group list"),
    *("group members", "group mode", "group show", "group stacks", "lag", "namesrv kv delete"),
    *("namesrv kv get", "namesrv kv set", "namesrv settings", "namesrv show", "offsets delete"),
    *("offsets export", "offsets reset", "offsets show", "produce", "producers", "top"),
    *("topic create", "topic delete", "topic groups", "topic list", "topic order", "topic perm"),
    *("topic show", "topic stats"),
}
"""Those that read no messages, or only those that they have sent themselves."""


def test_each_command_is_known_to_read_messages_or_not() -> None:
    """A new command belongs into one of the two tables: with arguments if it shows or sends what is stored."""
    assert {name for name, _ in all_commands()} == ALONE.keys() | READS_NONE
    assert not ALONE.keys() & READS_NONE


@attrs.frozen
class Place:
    name_server: str
    words: dict[str, str]

    def run(self, name: str, arguments: str | None = None, *more: str) -> Result:
        """Run a command at the cluster."""
        given = ALONE[name] if arguments is None else arguments
        return run_filled(name, given, self.words, *more, at=("--namesrv", self.name_server))


async def _send(
    call: Caller, addr: str, topic: str, body: bytes, kind: int | None, **more: Any
) -> str:
    flag = 0 if kind is None else COMPRESSED | kind << COMPRESSION_TYPE_SHIFT
    properties = "KEYS\1k\2UNIQ_KEY\1U\2" if not more else "KEYS\1MID\2"
    answer = await call.send(addr, body, topic=topic, sys_flag=flag, properties=properties)
    return accepted(answer).ext_fields["msgId"]


async def _fill(cluster: Running) -> str:
    """Put the messages into topics, and into the dead letters of a group; return the id of an unreadable one."""
    async with channel_pool() as pool:
        call = Caller(pool)
        for topic in (TOPIC, "t2", "t3"):
            await create_topic(pool, cluster.master, topic, 1)
            for body, kind in BODIES:
                message_id = await _send(call, cluster.master, topic, body, kind)
                if topic == TOPIC and body == b"POISON":
                    poison = message_id
        await create_topic(pool, cluster.master, TRACES, 1)
        await _send(call, cluster.master, TRACES, b"POISON", 0, trace=True)
        record = f"Pub\1{1_700_000_000_000}\1R\1shop\1t\1MID\1\1\1a:1\0015\0013\0010\1OFF\1true\2"
        await _send(call, cluster.master, TRACES, record.encode(), None, trace=True)
    async with (
        open_client(name_servers=[cluster.name_server]) as client,
        open_consumer(TOPIC, group=GROUP, start_from="earliest", client=client) as consumer,
    ):
        for _ in BODIES:
            await consumer.retry(await consumer.receive(), GIVE_UP)
        await _dead(client)
    return poison


async def _dead(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        letters = admin.dead_letters(GROUP)

        async def are_dead() -> bool:
            return await letters.ever() == len(BODIES)

        await eventually(are_dead)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    data = tmp_path_factory.mktemp("cluster")
    with running_cluster(data) as cluster:
        poison = trio.run(partial(_fill, cluster))
        letters = str(tmp_path_factory.mktemp("letters") / "new")
        words = {"poison": poison, "broker": "broker-a", "folder": letters}
        words |= cut_words(data, tmp_path_factory.mktemp("broker"))
        yield Place(cluster.name_server, words)


@pytest.fixture(autouse=True)
def without_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)


def rows_of(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def all_are_there(rows: list[dict[str, Any]], where: str) -> None:
    """Each good body is there, and each other is null, with a reason that names its place."""
    assert [row["body"] for row in rows if row["body"] is not None] == list(GOOD)
    errors = [row["body_error"] for row in rows if row["body"] is None]
    for offset, error, why in zip(UNREADABLE, errors, WHY, strict=True):
        assert f"{where} offset {offset} cannot be read" in error
        assert why in error


READING = ("consume", "message at", "message browse", "message find", "message get", "message tail")


@pytest.mark.parametrize("name", READING)
def test_messages_are_rows_with_a_body_or_the_reason(
    place: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _end_after(len(BODIES), monkeypatch)
    all_are_there(rows_of(place.run(name)), "t@broker-a:0")


def _end_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C when `message tail` has printed `count` messages."""
    printed, show = 0, message_commands.print_message

    def counted(*arguments: Any) -> None:
        nonlocal printed
        show(*arguments)
        printed += 1
        if printed == count:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(message_commands, "print_message", counted)


@pytest.mark.parametrize("name", [name for name in READING if name != "consume"])
@pytest.mark.parametrize("form", ["table", "csv", "%o:%v %f{body_error}\\n", "%o:%k\\n"])
def test_other_forms_have_all_messages_too(
    place: Place, name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _end_after(len(BODIES), monkeypatch)
    arguments = ALONE[name].replace(" --json", "")
    done = place.run(name, arguments, "--format", form)
    assert done.exit_code == 0, done.output
    if form == "%o:%k\\n":
        assert done.output == "".join(f"{offset}:k\n" for offset in range(len(BODIES)))
        return
    for body in GOOD:
        assert body in done.stdout
    for why in WHY:
        assert why in done.output


def test_consume_prints_the_other_lines_and_names_each_that_it_cannot(place: Place) -> None:
    done = place.run("consume", "t --group g2 --until-caught-up --yes")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == list(GOOD)
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == len(UNREADABLE)
    for offset, line in zip(UNREADABLE, warnings, strict=True):
        assert f"the body of t@broker-a:0 offset {offset} cannot be read" in line
    done = place.run("consume", "t --group g2 --until-caught-up --yes")
    assert (done.exit_code, done.stdout) == (0, "")  # They are committed.


def test_dead_letters_are_listed_counted_and_exported(place: Place) -> None:
    [counted] = json.loads(place.run("dead-letters count").stdout)
    assert counted["messages"] == len(BODIES)
    rows = rows_of(place.run("dead-letters list"))
    assert [row["body_size"] for row in rows] == [5, None, None, 5, None, None, 5]
    for row, why in zip((rows[offset] for offset in UNREADABLE), WHY, strict=True):
        assert "%DLQ%hg@broker-a:0 offset" in row["body_error"]
        assert why in row["body_error"]
    shown = place.run("dead-letters list", "hg")
    assert (shown.exit_code, shown.stdout.count("cannot be read")) == (0, len(UNREADABLE))
    done = place.run("dead-letters export")
    assert done.exit_code == 0, done.output
    folder = Path(place.words["folder"])
    index = [json.loads(line) for line in (folder / "messages.ndjson").read_text().splitlines()]
    for row, (body, _) in zip(index, BODIES, strict=True):
        assert (folder / row["body_file"]).read_bytes() == body
    assert [row["body_error"] is not None for row in index] == [
        kind is not None for _, kind in BODIES
    ]


def test_dead_letters_that_can_be_read_are_sent_again(place: Place) -> None:
    done = place.run("dead-letters resend")
    assert done.exit_code == 0, done.output
    outcomes = [row["outcome"] for row in json.loads(done.stdout)]
    assert outcomes == ["unreadable" if kind is not None else "sent" for _, kind in BODIES]
    done = place.run("dead-letters resend", "hg --all --dry-run --json")
    assert [row["outcome"] for row in json.loads(done.stdout)].count("would be sent") == len(GOOD)
    done = place.run("dead-letters resend", "hg --all --yes")
    assert done.stdout == "sent again: 3; not sent, as their bodies cannot be read: 4\n"
    assert done.stderr.count("warning: the body of %DLQ%hg@broker-a:0") == len(UNREADABLE)


def test_trace_counts_the_message_that_it_cannot_read(place: Place) -> None:
    done = place.run("message trace")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert ([step["what"] for step in found["steps"]], found["damaged"]) == (["sent"], 1)


def test_unreadable_message_has_a_status_and_can_be_delivered(place: Place) -> None:
    assert place.run("message status").exit_code == 0
    place.words["member"] = "nobody"
    assert "the consumer group[hg] not online" in place.run("message deliver").output
    done = place.run("message get", "{poison}")
    assert done.exit_code == 0, done.output
    assert "body error" in done.stdout


def test_records_that_were_cut_off_are_shown_and_those_that_can_be_read_are_sent(
    place: Place,
) -> None:
    assert place.run("broker cut list").exit_code == 0
    done = place.run("broker cut show")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    mine = [row for row in rows if row["topic"] == TOPIC]
    assert [row["body_error"] is not None for row in mine] == [
        kind is not None for _, kind in BODIES
    ]
    done = place.run("broker cut resend")
    assert "sent again: " in done.stdout
    unreadable = sum(row["body_error"] is not None for row in rows if not row["internal"])
    assert done.stderr.count("is not sent again: ") == unreadable > 0


@pytest.mark.parametrize("name", ["bench consume", "bench pingpong"])
def test_measurements_of_a_topic_go_on(place: Place, name: str) -> None:
    done = place.run(name)
    assert done.exit_code == 0, done.output
