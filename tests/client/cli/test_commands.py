"""The command `rocketrio` as scripts use it: names, fields, exit codes."""

import json
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from tests.support.commands import (
    LIMIT,
    Done,
    Run,
    begin,
    commands,
    in_cluster,
    interrupted,
    printed,
    rocketrio,
)
from tests.support.waiting import eventually

from rocketrio import Message, MessageQueue, open_producer
from rocketrio.cli import main
from rocketrio.limits import MAX_MESSAGE_SIZE
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.bodies.topics import Permission, TopicConfig


@pytest.mark.real
async def test_round_trip_by_commands() -> None:
    async with commands(slaves=1) as (cluster, run):
        await _topics(run)
        await _messages(run)
        await _resets(run)
        await _groups(run)
        await _cluster(run, cluster)
        await _deletion(run)


async def _topics(run: Run) -> None:
    done: Done = await run("topic", "create", "orders", "--queues", "2")
    assert (done.code, done.out, done.err) == (0, "orders on broker-a: 2 queues\n", "")
    done = await run("topic", "create", "orders", "--perm", "w")
    assert done.out == "orders on broker-a: 2 queues, may not be read\n"
    done = await run("topic", "create", "orders", "--perm", "rw", "--json")
    [broker] = done.json[0]["brokers"]
    assert (broker["broker_name"], broker["read_queues"], broker["readable"]) == (
        "broker-a",
        2,
        True,
    )
    done = await run("topic", "list", "--json")
    assert done.json == [[{"topic": "orders"}]]
    done = await run("topic", "show", "orders", "--json")
    [shown] = done.json
    assert [(q["queue_id"], q["min_offset"], q["max_offset"]) for q in shown["queues"]] == [
        (0, 0, 0),
        (1, 0, 0),
    ]


async def _messages(run: Run) -> None:
    group = ("--group", "billing")
    assert (await run("group", "create", "billing")).code == 0
    done: Done = await run("offsets", "orders", *group, "--json")
    [queues] = done.json
    assert [queue["committed_offset"] for queue in queues] == [None, None]
    done = await run(
        "produce", "orders", "--keys", "k1", "--tags", "paid", stdin=b"one\ntwo\n\nfour"
    )
    assert done.code == 0
    assert done.out.startswith("stored 4 messages in orders")
    done = await run("produce", "orders", "--count", "50", "--size", "10", "--json")
    assert done.json[0]["stored"] == 50
    done = await run("consume", "orders", *group, "--tags", "paid", "--count", "4", "--json")
    assert {message["body"] for message in done.json} == {"one", "two", "", "four"}
    names = {"topic", "broker_name", "queue_id", "queue_offset", "keys", "tags", "body"}
    assert all(message.keys() == names for message in done.json)
    assert {(m["keys"], m["tags"], m["broker_name"]) for m in done.json} == {
        ("k1", "paid", "broker-a")
    }
    await run("produce", "plain", stdin=b"with a carriage return\r\nwithout\r")
    done = await run("consume", "plain", "--group", "g", "--count", "2", "--json")
    told = {(m["body"], m["keys"], m["tags"]) for m in done.json}
    assert told == {("with a carriage return\r", None, None), ("without\r", None, None)}
    done = await run("consume", "orders", "--group", "audit", "--until-caught-up")
    assert (done.code, len(done.out.splitlines())) == (0, 54)
    done = await run("consume", "orders", "--group", "audit", "--until-caught-up")
    assert (done.code, done.out) == (0, "")
    done = await run("offsets", "orders", "--group", "audit", "--json")
    [queues] = done.json
    assert all(
        queue["lag"] == 0 and queue["committed_offset"] == queue["max_offset"] for queue in queues
    )
    assert sum(queue["max_offset"] for queue in queues) == 54
    assert set(queues[0]) == {
        "broker_name",
        "queue_id",
        "min_offset",
        "max_offset",
        "committed_offset",
        "lag",
        "ahead",
    }


async def _resets(run: Run) -> None:
    audit = ("offsets", "orders", "--group", "audit")
    done: Done = await run(*audit, "--reset-to", "earliest", "--json")
    [queues] = done.json
    assert all(queue["committed_offset"] == queue["min_offset"] == 0 for queue in queues)
    # A pipeline on a busy machine may have stored all messages in one queue.
    fullest = max(queues, key=lambda queue: queue["max_offset"])["queue_id"]
    done = await run(*audit, "--reset-to", "1", "--queue-id", str(fullest), "--json")
    [queues] = done.json
    assert [queue["committed_offset"] for queue in queues] == [
        1 if queue["queue_id"] == fullest else 0 for queue in queues
    ]
    done = await run(*audit, "--reset-to", "latest", "--json")
    [queues] = done.json
    assert all(queue["lag"] == 0 for queue in queues)
    done = await run(*audit, "--reset-to", "2000-01-01", "--dry-run", "--json")
    [queues] = done.json
    assert [(queue["target_offset"], queue["lag"]) for queue in queues] == [(0, 0)] * len(queues)
    done = await run(*audit, "--reset-to", "0", "--queue-id", "0", "--dry-run")
    *table, total = done.out.splitlines()
    assert total == "lag in all: 0"
    places = [line.split()[-1] for line in table[1:]]
    assert len({len(line.rstrip()) for line in table}) == 1  # Numbers stand below each other.
    assert sorted(places) == ["-"] * (len(queues) - 1) + ["0"]
    done = await run(*audit, "--reset-to", "2000-01-01T00:00+01:00", "--json")
    [queues] = done.json
    assert all(queue["committed_offset"] == 0 and "target_offset" not in queue for queue in queues)
    done = await run(*audit, "--dry-run")
    assert (done.code, done.out) == (2, "")
    for wrong in (
        ("--reset-to", "now"),
        ("--reset-to", "first"),
        ("--reset-to", "0001-01-01T00:00"),
        ("--reset-to", "99999"),
        ("--reset-to", "0", "--queue-id", "9999"),
    ):
        done = await run(*audit, *wrong)
        assert (done.code, done.out) == (2, "")
        assert f"Error: {wrong[-2]} {wrong[-1]} is n" in done.err


async def _groups(run: Run) -> None:
    done: Done = await run("group", "create", "billing", "--max-retries", "3", "--json")
    assert done.json == [{"group": "billing", "broker_names": ["broker-a"]}]
    done = await run("group", "create", "billing", "--reads-from", "1")
    assert (done.code, done.out) == (0, "created billing on broker-a\n")
    done = await run("group", "show", "billing", "--json")
    [[shown]] = done.json
    assert (shown["broker_name"], shown["group"]) == ("broker-a", "billing")
    assert (shown["settings"]["retry_max_times"], shown["settings"]["broker_id"]) == (3, 1)
    done = await run("group", "list", "--json")
    assert {"group": "billing"} in done.json[0]
    done = await run("group", "members", "billing", "--json")
    assert done.json == [[]]
    done = await run("group", "members", "nobody-knows-it")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")
    done = await run("group", "delete", "billing", "--dry-run")
    assert (done.code, done.out) == (0, "billing would be deleted from broker-a\n")
    done = await run("group", "delete", "billing")
    assert (done.code, done.out) == (0, "deleted billing from broker-a\n")
    done = await run("group", "show", "billing")
    assert done.code == 1
    assert done.err.count("\n") == 1
    done = await run("group", "create", "billing", "--max-retries", "-2")
    assert done.code == 2


async def _cluster(run: Run, cluster: EmbeddedCluster) -> None:
    done: Done = await run("cluster", "list", "--json")
    [[master, slave]] = done.json
    assert (master["broker_id"], master["role"], slave["broker_id"], slave["role"]) == (
        0,
        "master",
        1,
        "slave",
    )
    assert master["address"] == cluster.master.broker.address
    assert master["ha_address"] == cluster.master.broker.ha_address
    assert master["max_physical_offset"] == slave["max_physical_offset"]
    done = await run("cluster", "list")
    lines = done.out.splitlines()
    assert lines[0].split()[:4] == ["cluster", "broker", "id", "role"]
    assert max(map(len, lines)) <= 110
    ports = [broker["ha_address"].rpartition(":")[2] for broker in (master, slave)]
    assert [line.split()[5] for line in lines[1:]] == [f":{port}" for port in ports]


async def _deletion(run: Run) -> None:
    done: Done = await run("topic", "delete", "orders", "--dry-run")
    assert done.out.startswith("orders on broker-a of DefaultCluster: ")
    assert (await run("topic", "show", "orders")).out == done.out
    done = await run("topic", "delete", "orders")
    assert done.code == 0
    for arguments in (
        ("topic", "show", "orders"),
        ("consume", "orders", "--group", "g", "--until-caught-up"),
        ("offsets", "orders", "--group", "g"),
        ("produce", "orders", "--count", "1", "--no-create"),
    ):
        done = await run(*arguments)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("error: ")
        assert done.err.count("\n") == 1
    for kind in ("topic", "group"):
        done = await run(kind, "delete", "orders")
        assert done.code == 1
        assert f"`rocketrio {kind} list` shows" in done.err
        assert "reate" not in done.err


@pytest.mark.real
async def test_a_topic_that_may_not_be_read_is_not_taken_for_consumed() -> None:
    async with EmbeddedCluster(network="loopback") as cluster:
        run = in_cluster(cluster)
        closed = TopicConfig("closed", read_queue_nums=2, write_queue_nums=3, perm=Permission.WRITE)
        cluster.master.broker.state.topics.update(closed)
        with trio.fail_after(LIMIT):
            shown: Done = await run("topic", "show", "closed")
            assert shown.out.splitlines()[0].endswith(
                "; 2 queues to read, 3 to write, may not be read"
            )
            for how in (["--until-caught-up"], []):
                done = await run("consume", "closed", "--group", "g", *how)
                assert (done.code, done.out) == (2, "")
                assert "closed may not be read" in done.err


@pytest.mark.real
async def test_attributes_of_a_topic_are_given_shown_and_taken_away() -> None:
    async with commands() as (_, run):
        done: Done = await run("topic", "create", "fifo", "--attribute", "message.type=FIFO")
        assert done.out == "fifo on broker-a: 4 queues, message.type=FIFO\n"
        done = await run("topic", "show", "fifo")
        assert done.out.splitlines()[0].endswith("; 4 queues, message.type=FIFO")
        done = await run("topic", "create", "fifo", "--attribute", "message.type=", "--json")
        assert done.json[0]["brokers"][0]["attributes"] == {}
        done = await run("topic", "create", "fifo", "--attribute", "odd=1")
        assert (done.code, "known: message.type" in done.err) == (1, True)


@pytest.mark.real
async def test_messages_that_are_not_stored_fail_the_command() -> None:
    async with commands() as (cluster, run):
        await run("topic", "create", "orders")
        await cluster.kill_master()
        done: Done = await run("produce", "orders", "--count", "3")
    assert done.code == 1
    assert done.err.count("\n") == 1


@pytest.mark.real
async def test_delayed_line_is_received_after_its_delay() -> None:
    async with commands() as (_, rocketrio):
        assert (await rocketrio("produce", "t", "--delay", "1s", stdin=b"late\n")).code == 0
        done = await rocketrio("consume", "t", "--group", "g", "--count", "1", "-f", "%v %D %d\n")
    body, born_ms, stored_ms = done.out.split()
    assert (done.code, body) == (0, "late")
    assert int(stored_ms) - int(born_ms) >= 1000


async def half_messages(run: Run, answer: str, *arguments: str) -> Done:
    return await run(
        "produce", "t", "--transaction-check", answer, *arguments, stdin=b"one\ntwo\nthree\n"
    )


QUICK_CHECKS = {"transaction_timeout": 0.2, "transaction_check_interval": 0.5}


@pytest.mark.real
async def test_half_messages_are_delivered_after_the_broker_asked_and_was_answered_commit() -> None:
    async with commands(**QUICK_CHECKS) as (_, run):
        dropped = await half_messages(run, "rollback", "--json")
        undecided = await half_messages(run, "unknown")
        committed = await half_messages(run, "commit", "--keys", "paid")
        received = await run(
            "consume", "t", "--group", "g", "--until-caught-up", "--from", "first", "-f", "%k %v\n"
        )
    assert (dropped.code, undecided.code, committed.code) == (0, 0, 0)
    numbers = {name: dropped.json[0][name] for name in ("stored", "asked", "answer")}
    assert numbers == {"stored": 3, "asked": 3, "answer": "rollback"}
    assert "stored 3 half messages in t; the broker asked for 3 of them" in undecided.out
    assert "waiting until the broker asks" in committed.err
    assert sorted(received.out.splitlines()) == ["paid one", "paid three", "paid two"]


@pytest.mark.real
async def test_half_messages_that_a_broker_refuses_end_with_one_and_say_why() -> None:
    async with commands(reject_transaction_message=True) as (_, run):
        done = await half_messages(run, "commit")
    assert done.code == 1
    assert "message 1 was not stored, and none was sent after it" in done.err
    assert "stored 0 half messages" in done.out


@pytest.mark.real
async def test_interrupt_while_a_broker_asks_for_nothing_ends_with_a_summary() -> None:
    async with commands() as (cluster, _):
        process = await begin(
            cluster, "produce", "t", "--transaction-check", "commit", "--count", "2"
        )
        while b"waiting until" not in await process.stderr.receive_some():
            pass
        _, out = await interrupted(process)
    assert b"stored 2 half messages in t; the broker asked for 0 of them" in out


@pytest.mark.real
async def test_line_that_is_too_long_is_counted_and_the_others_are_stored() -> None:
    async with commands() as (_, run):
        long = b"x" * (2 * MAX_MESSAGE_SIZE)
        done: Done = await run(
            "produce", "orders", "--json", stdin=b"one\n" + long + b"\ntwo\n" + long
        )
    assert (done.code, done.json[0]["stored"], done.json[0]["failed"]) == (1, 2, 2)
    assert "not stored: lines 2, 4: a line is longer than" in done.err
    assert "2 messages were not stored; the first one: a line is longer than" in done.err


@pytest.mark.real
async def test_interrupted_consumer_ends_well_and_has_committed() -> None:
    async with commands() as (cluster, run):
        await run("produce", "orders", "--count", "10")
        process = await begin(cluster, "consume", "orders", "--group", "g")
        await printed(process, 10)
        code, _ = await interrupted(process)
        assert code == 0
        done: Done = await run("offsets", "orders", "--group", "g", "--json")
    [queues] = done.json
    assert sum(queue["committed_offset"] or 0 for queue in queues) == 10


@pytest.mark.real
async def test_interrupted_consumer_that_cannot_commit_reports_it() -> None:
    async with commands() as (cluster, run):
        await run("produce", "orders", "--count", "10")
        process = await begin(cluster, "consume", "orders", "--group", "g")
        await printed(process, 10)
        await cluster.kill_master()
        code, _ = await interrupted(process)
        assert code == 1
        told = await process.stderr.receive_some()
    *waiting, last = told.splitlines()
    assert last.startswith(b"error: the messages printed last are not committed")
    assert [line.split(b":")[0] for line in waiting] in ([], [b"waiting for the cluster"])


def _sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.real
async def test_interrupted_producer_reports_which_messages_are_stored() -> None:
    async with commands() as (cluster, _):
        process = await begin(cluster, "produce", "orders")
        await process.stdin.send_all(b"one\ntwo\nthree\n")
        store = cluster.master.broker.store
        while _stored(store) < 3:
            await store.appended.wait_past(store.appended.value)
        # The answer to the last one is on its way; a process that sleeps has read it.
        await trio.sleep(0.2)
        await eventually(lambda: _sleeps(process.pid))
        code, out = await interrupted(process)
        assert (code, await process.stderr.receive_some()) == (130, b"error: interrupted\n")
        assert out.startswith(b"stored 3 messages in orders")

        process = await begin(cluster, "produce", "orders", "--count", "100000000", "--json")
        await store.appended.wait_past(store.appended.value)
        code, out = await interrupted(process)
        assert code == 130
        summary = json.loads(out)
        in_store = _stored(store) - 3
        assert 0 < summary["stored"] <= in_store <= summary["stored"] + summary["unknown"]
        assert summary["failed"] == 0


def _stored(store: MessageStore) -> int:
    """Messages in orders."""
    return sum((store.queue_bounds("orders", id_) or (0, 0))[1] for id_ in range(8))


@pytest.mark.real
async def test_consume_ends_before_a_place_and_the_next_run_continues_there() -> None:
    async with commands() as (cluster, run):
        assert (await run("topic", "create", "orders", "--queues", "2")).code == 0
        async with open_producer(name_servers=cluster.name_servers) as producer:
            for queue_id in range(2):
                await producer.send_batch(
                    [Message("orders", b"%d.%d" % (queue_id, number)) for number in range(10)],
                    queue=MessageQueue("orders", "broker-a", queue_id),
                )

        async def consumed(*options: str, group: str = "g") -> list[str]:
            done = await run("consume", "orders", "--group", group, *options)
            assert (done.code, done.err) == (0, "")
            return sorted(done.out.split())

        def between(start: int, end: int) -> list[str]:
            return [f"{queue_id}.{number}" for queue_id in "01" for number in range(start, end)]

        assert await consumed("--to", "6") == between(0, 6)
        assert await consumed("--to", "3") == []
        assert await consumed("--to", "+8", "--count", "100") == between(6, 8)
        assert await consumed("--until-caught-up") == between(8, 10)
        assert await consumed("--from", "2:4", group="other") == between(2, 4)
        assert await consumed("--to", "last", group="other") == between(4, 10)
        done = await run("message", "browse", "orders", "--from", "2:4", "--json")
        assert sorted(each["body"] for each in done.json) == between(2, 4)


@pytest.mark.real
async def test_no_name_server_is_one_clear_line() -> None:
    done = await rocketrio("topic", "list", "--namesrv", "127.0.0.1:1")
    assert done.code == 1
    assert "127.0.0.1:1" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "orders"],
        ["topic", "create", "bad topic"],
        ["topic", "create", "t", "--queues", "0"],
        ["produce", "t", "--size", "5"],
        ["consume", "t", "--group", "bad group"],
        ["consume", "t", "--group", "g", "--from", "yesterday"],
        ["consume", "t", "--group", "g", "--from", "9", "--to", "3"],
        ["consume", "t", "--group", "g", "--from", "1:2", "--to", "3"],
        ["consume", "t", "--group", "g", "--until-caught-up", "--to", "3"],
        ["message", "browse", "t", "--from", "2:1"],
        ["topic", "list", "--namesrv", "nowhere"],
        ["produce", "t", "--delay", "7s"],
        ["produce", "t", "--delay", "5s", "--transaction-check", "commit"],
        ["produce", "t", "--transaction-check", "perhaps"],
        ["nonsense"],
    ],
)
def test_wrong_use_ends_with_two(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "Error: " in done.output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["consume", "t", "--group", "g", "--from", "LATEST"], "last"),
        (["offsets", "t", "--group", "g", "--queue", "1"], "--queue-id"),
    ],
)
def test_former_word_is_an_error_that_names_the_present_one(
    arguments: list[str], named: str
) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert named in done.output.partition("Error: ")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["topic"],
        ["topic", "create"],
        ["topic", "list"],
        ["topic", "show"],
        ["topic", "delete"],
        ["cluster"],
        ["cluster", "list"],
        ["produce"],
        ["consume"],
        ["offsets"],
    ],
)
def test_help_has_an_example(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, [*arguments, "--help"])
    assert done.exit_code == 0
    assert " ".join(["  rocketrio", *arguments]) in done.output
