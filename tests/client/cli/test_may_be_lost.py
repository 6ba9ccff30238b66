"""Commands that destroy something for good: a person is asked, with what is lost; a program is not."""

import signal

import pytest
from tests.client.cli.terminals import terminal
from tests.support.commands import commands

from rocketrio_broker.embedded import EmbeddedCluster


async def ask(
    cluster: EmbeddedCluster, *arguments: str, answer: str | signal.Signals | None = None
) -> tuple[int, str]:
    """Run a command in a terminal, answer its question if it has one; return its exit code and what it showed."""
    asked = b""
    async with terminal(*arguments, namesrv=cluster.name_servers[0]) as there:
        if answer is not None:
            await there.until(lambda seen: b"[y/N]" in seen)
            asked = there.seen
            if isinstance(answer, str):
                there.press(answer.encode() + b"\n")
            else:
                there.process.send_signal(answer)
        code = await there.ended()
        return code, " ".join((asked + there.seen).decode().split())


@pytest.mark.real
async def test_person_is_asked_before_something_is_lost_and_a_program_is_not() -> None:
    async with commands() as (cluster, run):
        await run("produce", "orders", "--count", "3")
        await run("consume", "orders", "--group", "billing", "--until-caught-up")
        lost = "orders has 3 messages, which billing reads; they are lost with it. Go on? [y/N]"
        for answer, code in (("n", 4), ("", 4), (signal.SIGINT, 130)):
            found, text = await ask(cluster, "topic", "delete", "orders", answer=answer)
            assert found == code
            assert lost in text
        code, text = await ask(cluster, "group", "delete", "billing", answer="no")
        assert code == 4
        assert "progress in %RETRY%billing, orders" in text
        assert "error: nothing was done" in text
        code, text = await ask(cluster, "offsets", "delete", "billing", answer="n")
        assert code == 4
        assert "billing loses 5 committed offsets" in text
        code, text = await ask(cluster, "topic", "delete", "nosuch")
        assert code == 1
        assert "[y/N]" not in text
        code, text = await ask(cluster, "topic", "delete", "orders", answer="y")
        assert code == 0
        assert "deleted orders on broker-a: 3 messages, which billing reads" in text
        code, text = await ask(cluster, "group", "delete", "billing", "--yes")
        assert (code, text) == (0, "deleted billing from broker-a")
        code, text = await ask(cluster, "broker", "clean", "broker-a", "log", answer="n")
        assert code == 4
        assert "deletes files for good" in text
        await run("topic", "create", "orders")
        done = await run("topic", "delete", "orders", "--json")
        assert done.json == [[{"topic": "orders", "broker_name": "broker-a", "messages": 0}]]
