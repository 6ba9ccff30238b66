"""The commands that replace those of mqadmin, as operators use them: what they print, and how they end."""

import json
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from tests.client.dead_letters import give_up_all
from tests.support.commands import LIMIT, Done, Run, commands, in_cluster

from rocketrio import Message, MessageExt, open_client, open_consumer, open_producer
from rocketrio.cli import main
from rocketrio_broker.embedded import EmbeddedCluster

pytestmark = pytest.mark.real


async def shown(run: Run, *words: str) -> list[dict[str, object]]:
    """Run a command that succeeds, and return its rows."""
    done: Done = await run(*words, "--json")
    assert (done.code, done.err) == (0, ""), done
    [rows] = done.json
    assert isinstance(rows, list)
    return rows


async def test_topics_are_shown_ranked_and_changed() -> None:
    async with commands() as (_, run):
        made = await run(
            "topic", "create", "orders", "--queues", "2", "--order", "--message-type", "fifo"
        )
        assert made.out == "orders on broker-a: 2 queues, message.type=FIFO\n"
        await run("produce", "orders", "--count", "3")

        [row] = await shown(run, "topic", "list", "--long")
        assert (row["queues"], row["messages"], row["perm"]) == (2, 3, "rw")
        assert (row["message_type"], row["brokers"], row["groups"]) == ("fifo", ["broker-a"], [])
        table = await run("topic", "list", "--long")
        assert "in/s" in table.out.splitlines()[0]

        would = await shown(run, "topic", "perm", "orders", "r", "--dry-run")
        assert [(one["before"], one["after"]) for one in would] == [("rw", "r")]
        await shown(run, "topic", "perm", "orders", "r")
        [row] = await shown(run, "topic", "list", "--long")
        assert row["perm"] == "r"
        unknown = await run("topic", "perm", "other", "r")
        assert (unknown.code, "lacks the topic" in unknown.err) == (1, True)

        assert (await run("topic", "order", "orders")).out == "the queues of orders are not fixed\n"
        [row] = await shown(run, "topic", "order", "orders", "broker-a:2", "--dry-run")
        assert (row["before"], row["after"]) == (None, "broker-a:2")
        assert await shown(run, "topic", "order", "orders") == []
        await shown(run, "topic", "order", "orders", "broker-a:2")
        [row] = await shown(run, "topic", "order", "orders")
        assert row["value"] == "broker-a:2"
        [row] = await shown(run, "namesrv", "kv", "get", "ORDER_TOPIC_CONFIG", "orders")
        assert row["value"] == "broker-a:2"
        await shown(run, "topic", "order", "orders", "--remove")
        gone = await run("namesrv", "kv", "get", "ORDER_TOPIC_CONFIG")
        assert (gone.code, "no name server has a text" in gone.err) == (1, True)

        [server] = await shown(run, "namesrv", "show")
        assert (server["brokers"], server["differs"]) == (1, [])
        [row] = await shown(run, "namesrv", "settings", "orderMessageEnable=true", "--dry-run")
        assert (row["value"], row["before"]) == ("true", "false")
        [row] = await shown(run, "namesrv", "settings", "orderMessageEnable=true")
        assert (row["value"], row["before"]) == ("true", "false")
        refused = await run("namesrv", "settings", "clusterTest=true")
        assert (refused.code, "clusterTest" in refused.err) == (1, True)


async def test_groups_and_clients_are_shown_and_offsets_kept_in_files(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with (
            EmbeddedCluster(network="loopback") as cluster,
            open_client(name_servers=cluster.name_servers) as client,
        ):
            run = in_cluster(cluster)
            await run("topic", "create", "orders", "--queues", "2")
            async with open_producer(client=client, group="shop") as producer:
                for _ in range(4):
                    await producer.send(Message("orders", b"x"))
                await client.heartbeat.send_all()
                async with open_consumer(
                    "orders", group="billing", start_from="earliest", client=client
                ) as consumer:
                    for _ in range(4):
                        await consumer.receive()
                    await consumer.commit()
                    [row] = await shown(run, "topic", "groups", "orders", "--online")
                    assert (row["group"], row["members"], row["lag"]) == ("billing", 1, 0)
                    [row] = await shown(run, "producers", "orders", "--group", "shop")
                    assert (row["client_id"], row["version"]) == (client.client_id, "V4_9_7")
                    rows = await shown(run, "clients", "--language", "python")
                    [row] = [one for one in rows if one["client_id"] == client.client_id]
                    assert "shop" in str(row["produces"])
                    assert row["consumes"] == ["billing"]
                    assert await shown(run, "clients", "--older-than", "4.9.7") == []
                    [row] = await shown(run, "group", "list", "--long")
                    assert (row["group"], row["members"], row["lag"]) == ("billing", 1, 0)
                    words = ("group", "members", "billing")
                    [row] = await shown(run, *words)
                    assert (row["client_id"], row["version"]) == (client.client_id, "V4_9_7")
                    [row] = await shown(run, *words, "--queues", "--subscription")
                    assert row["queues"] == ["orders broker-a/0", "orders broker-a/1"]
                    assert row["subscriptions"] == {"orders": "*"}
                    table = await run(*words, "--queues")
                    assert table.out.splitlines()[0].split() == [
                        *("client_id", "address", "language", "version", "since", "queues")
                    ]
                    kept = await run("offsets", "delete", "billing")
                    assert (kept.code, "has 1 member, which" in kept.err) == (2, True)
            path = tmp_path / "billing.csv"
            done = await run("offsets", "export", "billing")
            path.write_text(done.out)
            assert done.out.splitlines()[0] == "topic,broker_name,queue_id,offset"
            would = await run("offsets", "delete", "billing", "--dry-run")
            assert would.out.splitlines()[-1] == "nothing was deleted"
            topics = [one["topic"] for one in await shown(run, "offsets", "export", "billing")]
            assert topics == ["%RETRY%billing", "orders", "orders"]
            await shown(run, "offsets", "delete", "billing")
            assert await shown(run, "offsets", "export", "billing") == []
            back = await run("offsets", "reset", "billing", "--from-file", str(path))
            assert back.code == 0, back
            assert (await run("offsets", "export", "billing")).out == done.out
            path.write_text((await run("offsets", "export", "billing", "--json")).out)
            back = await run(
                "offsets", "reset", "billing", "--from-file", str(path), "--dry-run", "--json"
            )
            assert len(back.json[0]["queues"]) == 3
            mode = await run("group", "mode", "billing", "orders", "pop", "--dry-run")
            assert (mode.code, "does not know pop" in mode.err) == (1, True)
            none = await run("topic", "groups", "orders", "--online")
            assert none.out == "no group reads orders\n"


async def test_message_is_followed_and_delivered_to_a_member() -> None:
    handled: list[bytes] = []
    is_handled = trio.Event()

    async def handle(message: MessageExt) -> None:
        handled.append(message.body)
        is_handled.set()
        if len(handled) == 2:
            raise ValueError("no")

    async with commands() as (cluster, run):
        await run("topic", "create", "orders", "--queues", "1")
        async with (
            open_client(name_servers=cluster.name_servers, trace=True) as client,
            open_producer(client=client, group="shop") as producer,
            open_consumer("orders", group="billing", client=client) as consumer,
            trio.open_nursery() as nursery,
        ):
            sent = await producer.send(Message("orders", b"x"))
            nursery.start_soon(consumer.run, handle)
            await is_handled.wait()
            one = ("message", "deliver", sent.message_id, "--topic", "orders")
            to = ("--group", "billing", "--client", client.client_id)
            would = await run(*one, *to, "--dry-run")
            assert "would get" in would.out
            assert len(handled) == 1
            failed = await run(*one, *to)
            assert (failed.code, "CR_THROW_EXCEPTION" in failed.out) == (1, True)
            [row] = await shown(run, *one, *to)
            assert row["result"] == "CR_SUCCESS"
            nobody = await run(*one, "--group", "billing", "--client", "nobody")
            assert (nobody.code, "group members billing" in nobody.err) == (1, True)
            await consumer.commit()
            [row] = await shown(run, "message", "status", sent.offset_message_id)
            assert (row["group"], row["status"]) == ("billing", "CONSUMED")
            nursery.cancel_scope.cancel()
        done = await run("message", "trace", sent.message_id, "--json")
        [trace] = done.json
        steps = [step["what"] for step in trace["steps"]]
        assert steps[:3] == ["sent", "delivered", "handled"]
        assert sorted(steps[3:]) == ["delivered", "delivered", "failed", "handled"]
        table = await run("message", "trace", sent.message_id)
        assert table.out.splitlines()[0].split() == [
            *("time", "what", "group", "client_host", "where", "ms", "result")
        ]
        nothing = await run("message", "trace", "0" * 32)
        assert (nothing.code, "no trace of" in nothing.err) == (1, True)


async def test_dead_letters_are_counted_exported_and_sent_again_in_parts(tmp_path: Path) -> None:
    async with commands() as (cluster, run):
        await run("produce", "orders", "--count", "3", "--tags", "red")
        await give_up_all(cluster, count=3)
        [row] = await shown(run, "dead-letters", "count", "--all-groups")
        assert (row["group"], row["messages"], row["last_hour"]) == ("billing", 3, 3)
        missing = await run("dead-letters", "count", "nobody")
        assert (missing.code, "nobody" in missing.err) == (1, True)

        folder = tmp_path / "dead"
        done = await run("dead-letters", "export", "billing", str(folder))
        assert done.out == f"wrote 3 messages to {folder}\n"
        lines = (folder / "messages.ndjson").read_text().splitlines()
        first = json.loads(lines[0])
        assert (len(lines), first["topic"], first["properties"]["TAGS"]) == (3, "orders", "red")
        assert (folder / first["body_file"]).stat().st_size == first["body_size"] == 128
        again = await run("dead-letters", "export", "billing", str(folder))
        assert (again.code, "is not empty" in again.err) == (2, True)

        state = str(tmp_path / "state")
        words = ("dead-letters", "resend", "billing", "--all", "--state", state)
        would = await shown(run, *words, "--dry-run")
        assert [row["outcome"] for row in would] == ["would be sent"] * 3
        assert not await trio.Path(state).exists()
        none = await run(*words, "--where", "TAGS = 'blue'")
        assert none.out == "sent again: 0\n"
        some = await run(*words, "--rate", "100/s", "--where", "TAGS = 'red'")
        assert some.out == "sent again: 3\n"
        more = await run(*words)
        assert more.out == "sent again: 0; sent before, by the state file: 3\n"
        wrong = await run(*words, "--where", "TAGS =")
        assert (wrong.code, "not an SQL92 expression" in wrong.err) == (2, True)


async def test_broker_is_shown_measured_and_cleaned() -> None:
    async with commands() as (_, run):
        [row] = await shown(run, "cluster", "list")
        address = str(row["address"])
        rows = {row["key"]: row for row in await shown(run, "broker", "show", address)}
        assert rows["broker_name"]["value"] == "broker-a"
        assert (rows["disk_free"]["unit"], rows["log_size"]["unit"]) == ("bytes", "bytes")
        raw = await shown(run, "broker", "show", address, "--raw")
        assert "bootTimestamp" in {row["key"] for row in raw}
        rows = {row["key"]: row for row in await shown(run, "broker", "stats", address)}
        assert rows["stored_in_all"]["value"] == 0
        would = await shown(run, "cluster", "rtt", "--count", "3", "--dry-run")
        assert would == [{"broker_name": "broker-a", "sends": 3, "bytes": 128}]
        [row] = await shown(run, "cluster", "rtt", "--count", "3")
        assert (row["sends"], row["failures"], row["problem"]) == (3, 0, None)
        would = await run("broker", "clean", address, "log", "--dry-run")
        assert would.out.splitlines()[-2:] == [
            "nothing would go: the oldest message is younger than 72 hours",
            "nothing was deleted",
        ]
        for what in ("queues", "topics", "log"):
            done = await run("broker", "clean", "broker-a" if what == "log" else address, what)
            assert (done.code, "after" in done.out) == (0, True)
        dead = await run("broker", "show", "127.0.0.1:9")
        assert (dead.code, dead.out) == (1, "")


def test_id_is_decoded_without_a_cluster() -> None:
    words = ["message", "get", "7F00000100002A9F00000000000004D2", "--decode-only"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0
    assert done.output.splitlines()[1].split()[:4] == ["offset", "id", "127.0.0.1:10911", "1234"]
    done = CliRunner().invoke(main, ["message", "get", "12", "--decode-only"])
    assert (done.exit_code, "is not a message id" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("dead-letters resend g --all --rate fast", "is not a rate like 5/s"),
        ("dead-letters resend g --all --rate 0/s", "is not a rate like 5/s"),
        ("dead-letters resend g id --state f", "--state is for --all"),
        ("dead-letters count", "name groups, or give --all-groups"),
        ("dead-letters count g --all-groups", "name groups, or give --all-groups"),
        ("topic order t broker-a", "is not BROKER:QUEUES"),
        ("topic order t a:1 a:2", "named twice"),
        ("topic order t a:0", "broker-a:4"),
        ("topic order t a:1 --remove", "not both"),
        ("topic perm t x", "is not one of"),
        ("topic create t --message-type fifo --attribute message.type=DELAY", "not both"),
        ("clients --older-than new", "is not a version like 4.9.7"),
        ("namesrv settings a", "is not KEY=VALUE"),
        ("broker clean here:x log", "'here:x' is not an address"),
        ("message deliver ID --group g", "--client"),
    ],
)
def test_wrong_use_is_named(words: str, text: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert (done.exit_code, text in done.output) == (2, True), done.output
