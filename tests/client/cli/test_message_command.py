"""The commands `rocketrio message …`."""

import pytest
from click.testing import CliRunner
from tests.support.commands import begin, commands, interrupted, printed

from rocketrio import Message, MessageQueue, open_producer
from rocketrio.cli import main


@pytest.mark.real
@pytest.mark.slow
async def test_messages_are_found_shown_and_listed() -> None:
    async with commands() as (cluster, run):
        assert (await run("topic", "create", "orders", "--queues", "2")).code == 0
        async with open_producer(name_servers=cluster.name_servers) as producer:
            for number in range(5):
                sent = await producer.send(
                    Message(
                        "orders",
                        b"\x1b[31m%d\n" % number,
                        keys=[f"A-{number}", "all"],
                        properties={"origin": "web"},
                    ),
                    queue=MessageQueue("orders", "broker-a", number % 2),
                )
            binary = await producer.send(Message("orders", b"\xff\x00"))

        done = await run("message", "find", "orders", "--key", "A-3", "--json")
        (found,) = done.json
        assert (found["queue_id"], found["queue_offset"], found["body"]) == (1, 1, "\x1b[31m3\n")
        done = await run("message", "find", "orders", "--key", "all", "--count", "3")
        assert len(done.out.splitlines()) == 1 + 3
        assert done.err == "the first 3 of more; --count shows more\n"

        done = await run("message", "get", sent.message_id, "--topic", "orders")
        assert "property origin" in done.out
        assert "\\x1b[31m4" in done.out
        assert "\x1b" not in done.out
        done = await run("message", "get", binary.offset_message_id, "--json")
        (found,) = done.json
        assert (found["body"], found["encoding"]) == ("/wA=", "base64")
        done = await run("message", "get", "0" * 32, "--topic", "orders")
        assert (done.code, done.out) == (1, "")
        assert "no broker of orders knows the message" in done.err

        done = await run("message", "at", "orders", "broker-a/1", "0", "--count", "2", "--json")
        assert [each["body"][-2] for each in done.json] == ["1", "3"]
        done = await run("message", "at", "orders", "broker-a/1", "99")
        assert (done.code, "has no message at 99" in done.err) == (1, True)

        done = await run("message", "browse", "orders", "--last", "--count", "2", "--json")
        assert [each["body"] for each in done.json] == ["\x1b[31m4\n", "/wA="]
        assert done.err == "the last 2 of 6; --count shows more\n"

        process = await begin(
            cluster, "message", "tail", "orders", "--from", "2000-01-01T00:00", "--json"
        )
        out = await printed(process, 6)
        _, rest = await interrupted(process)
        assert (out + rest).count(b"\n") == 6


def test_queue_has_a_broker_and_a_number() -> None:
    for text in ("3", "broker-a", "broker-a/x", "/3"):
        done = CliRunner().invoke(main, ["message", "at", "orders", text, "0"])
        assert done.exit_code == 2
        assert "is not a queue like broker-a/3" in done.output
