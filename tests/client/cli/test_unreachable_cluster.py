"""Commands while the name server knows no broker: an error, not an empty list. And long names."""

from collections.abc import AsyncIterator

import pytest
import trio
from tests.support.commands import Done, commands, rocketrio
from tests.support.waiting import HANGS

from rocketrio import (
    GIVE_UP,
    ConsumeLater,
    Message,
    MessageExt,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_protocol.remoting.tcp import listen_tcp

COMMANDS = [
    ("topic", "list"),
    ("topic", "show", "orders"),
    ("topic", "create", "orders"),
    ("topic", "delete", "orders"),
    ("group", "list"),
    ("group", "show", "billing"),
    ("group", "members", "billing"),
    ("group", "delete", "billing"),
    ("lag",),
    ("lag", "billing", "--once", "--json"),
    ("offsets", "orders", "--group", "billing"),
    ("consume", "orders", "--group", "billing", "--until-caught-up"),
    ("produce", "orders", "--count", "1"),
    ("dead-letters", "list", "billing"),
    ("dead-letters", "list", "billing", "--json"),
    ("dead-letters", "resend", "billing", "--all"),
]


@pytest.fixture
async def lonely() -> AsyncIterator[str]:
    """The address of a name server without brokers."""
    listener = await listen_tcp("127.0.0.1:0")
    async with trio.open_nursery() as nursery:
        await nursery.start(NameServer([listener]).run)
        yield listener.addr
        nursery.cancel_scope.cancel()


@pytest.mark.real
async def test_unreachable_name_server_is_an_error_of_every_command(lonely: str) -> None:
    told: dict[tuple[str, ...], Done] = {}
    limit = trio.CapacityLimiter(4)

    async def tell(arguments: tuple[str, ...]) -> None:
        async with limit:
            told[arguments] = await rocketrio(*arguments, env={"NAMESRV_ADDR": lonely})

    with trio.fail_after(HANGS):
        async with trio.open_nursery() as nursery:
            for arguments in COMMANDS:
                nursery.start_soon(tell, arguments)
    for arguments, done in told.items():
        assert done.code == 1, (arguments, done)
        assert done.err.startswith("error: "), (arguments, done)
        assert arguments[0] == "produce" or done.out == "", (arguments, done)
    # That none is registered, the name server itself can say.
    done = await rocketrio("cluster", "list", "--json", env={"NAMESRV_ADDR": lonely})
    assert (done.code, done.json) == (0, [[]])


@pytest.mark.real
async def test_commands_take_the_long_names_that_lists_show() -> None:
    """The command has no namespace: it sees all of them, under the names that brokers have."""
    async with commands() as (cluster, run):
        async with (
            open_client(namespace="ns", name_servers=cluster.name_servers) as client,
            open_producer(client=client) as producer,
        ):
            await producer.send(Message("orders", b"0"))

            async def refuse(message: MessageExt) -> None:
                scope.cancel()
                raise ConsumeLater(GIVE_UP)

            async with open_consumer(
                "orders", group="billing", start_from="earliest", client=client
            ) as consumer:
                with trio.CancelScope() as scope:
                    await consumer.run(refuse)
        topics: Done = await run("topic", "list", "--json")
        assert topics.json == [[{"topic": "ns%orders"}]]
        groups: Done = await run("group", "list", "--json")
        assert groups.json == [[{"group": "ns%billing"}]]
        for arguments in (
            ("topic", "show", "ns%orders"),
            ("group", "show", "ns%billing"),
            ("group", "members", "ns%billing"),
            ("offsets", "ns%orders", "--group", "ns%billing", "--json"),
        ):
            done: Done = await run(*arguments)
            assert (done.code, done.err) == (0, "")
            assert '"committed_offset": 1' in done.out or arguments[0] != "offsets"
        dead: Done = await run("dead-letters", "list", "ns%billing", "--json")
        assert [each["topic"] for each in dead.json] == ["ns%orders"]
        again: Done = await run("dead-letters", "resend", "ns%billing", "--all")
        assert (again.code, again.out) == (0, "sent again: 1\n")
