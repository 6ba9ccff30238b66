"""The commands `rocketrio broker drain|undrain`."""

import pytest
from tests.support.commands import commands

from rocketrio import Message, open_producer


@pytest.mark.real
@pytest.mark.slow
async def test_broker_is_drained_and_put_back() -> None:
    async with commands() as (cluster, run):
        (server,) = cluster.name_servers
        assert (await run("topic", "create", "orders")).code == 0
        assert (await run("produce", "orders", stdin=b"1\n")).code == 0
        done = await run("consume", "orders", "--group", "billing", "--until-caught-up")
        assert done.code == 0
        async with open_producer(name_servers=cluster.name_servers) as producer:
            await producer.send(Message("orders", b"2"))

        done = await run("broker", "drain", "broker-a", "--dry-run")
        assert (done.code, done.out.split()) == (
            0, ["group", "topic", "unread", "billing", "orders", "1"],
        ), done  # fmt: skip
        assert (await run("produce", "orders", stdin=b"3\n")).code == 0

        async with open_producer(name_servers=cluster.name_servers) as producer:
            await producer.send(Message("orders", b"later", delay_level=18))
        done = await run("broker", "drain", "broker-a", "--dry-run")
        assert "not due yet on broker-a: 1 message\n" in done.out, done
        done = await run("broker", "drain", "broker-a", "--dry-run", "--json")
        (answer,) = done.json
        held = {key: answer[key] for key in ("delayed", "open_transactions", "dead_letters")}
        assert held == {"delayed": 1, "open_transactions": 0, "dead_letters": 0}

        done = await run("broker", "drain", "broker-a")
        assert (done.code, done.out.startswith(f"{server}: ")) == (0, True), done
        assert "rocketrio broker undrain broker-a" in done.out
        assert (await run("produce", "orders", stdin=b"4\n")).code == 1
        done = await run("broker", "drain", "broker-a", "--wait", "--timeout", "3")
        assert (done.code, done.err) == (1, "error: broker-a is still in use after 3 s\n")

        assert (await run("broker", "undrain", "broker-a", "--dry-run")).code == 0
        assert (await run("produce", "orders", stdin=b"5\n")).code == 1
        done = await run("broker", "undrain", "broker-a", "--json")
        (answer,) = done.json
        assert answer["topics"][server] >= 1
        assert (await run("produce", "orders", stdin=b"6\n")).code == 0

        for command in ("drain", "undrain"):
            for option in ((), ("--dry-run",)):
                done = await run("broker", command, "broker-z", *option)
                assert (done.code, "known names: broker-a" in done.err) == (1, True), done
