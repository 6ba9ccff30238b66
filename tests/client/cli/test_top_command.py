"""`rocketrio top` in a real terminal (a pty): keys, Ctrl-C, errors, and what the terminal is like afterwards."""

import signal

import pytest
import trio
from tests.client.cli.terminals import terminal
from tests.support.commands import LIMIT, commands, rocketrio

from rocketrio import Message, open_client, open_consumer, open_producer

ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"


async def produce_and_commit(namesrv: str, *, lag: int) -> None:
    """Commit all that is in the topic, and add what the group then lacks."""
    async with (
        open_client(name_servers=[namesrv]) as client,
        open_consumer("orders", group="billing", start_from="earliest", client=client) as consumer,
        open_producer(client=client) as producer,
    ):
        await producer.send(Message("orders", b"x"))
        await consumer.receive()
        await consumer.commit()
        for _ in range(lag):
            await producer.send(Message("orders", b"x"))


@pytest.mark.real
@pytest.mark.slow
async def test_keys_change_what_is_shown_and_the_terminal_is_restored() -> None:
    async with commands(slaves=1) as (cluster, run):
        assert (await run("topic", "create", "orders")).code == 0
        namesrv = cluster.name_servers[0]
        async with terminal("top", namesrv=namesrv) as tty:
            await tty.until(lambda seen: b"takes writes" in seen)
            assert ALTERNATE in tty.seen
            assert not tty.is_as_before
            tty.press(b"t")
            await tty.until(lambda seen: b"orders" in seen)
            tty.press(b"/xyz\r")
            await tty.until(lambda seen: b"only 'xyz'" in seen)
            tty.press(b"q")
            assert await tty.ended() == 0
            assert BACK in tty.seen
            assert tty.is_as_before
        async with terminal("top", "groups", "--every", "0.2", namesrv=namesrv) as tty:
            await tty.until(lambda seen: b"window" in seen)
            # Not by a member: a look between a send and its commit would find a lag.
            assert (await run("group", "create", "billing")).code == 0
            last = "--topic", "orders", "--to", "last", "--yes"
            assert (await run("offsets", "reset", "billing", *last)).code == 0
            await tty.until(lambda seen: "▁▁".encode() in seen)
            assert "█".encode() not in tty.seen
            await produce_and_commit(namesrv, lag=5)
            await tty.until(lambda seen: "█".encode() in seen)
            tty.process.send_signal(signal.SIGINT)
            assert await tty.ended() == 0
            assert BACK in tty.seen
            assert tty.is_as_before
        async with terminal("top", "--every", "0.2", namesrv=namesrv) as tty:
            await tty.until(lambda seen: b"takes writes" in seen)
            await cluster.kill_master()
            tty.seen = b""
            await tty.until(lambda seen: b"findings" in seen or b"did not answer" in seen)
            tty.process.send_signal(signal.SIGTERM)
            await tty.ended()
            assert tty.is_as_before


@pytest.mark.real
@pytest.mark.slow
async def test_top_without_a_name_server_is_an_error_and_leaves_the_terminal_alone() -> None:
    with trio.fail_after(LIMIT):
        async with terminal("top", namesrv="127.0.0.1:1") as tty:
            assert await tty.ended() == 1
            assert ALTERNATE not in tty.seen
            assert tty.is_as_before


async def test_top_without_a_terminal_is_wrong_use_that_names_what_to_use() -> None:
    done = await rocketrio("top", "--namesrv", "127.0.0.1:1")
    assert (done.code, "lag --watch" in done.err) == (2, True), done
