"""Commands that destroy something for good: a person is asked, with what is lost; a program is not."""

import os
import pty
import signal
import subprocess
from collections.abc import Awaitable, Callable

import pytest
import trio
from tests.support.commands import ROCKETRIO, in_cluster
from tests.support.waiting import HANGS

from rocketrio_broker.embedded import EmbeddedCluster

Ask = Callable[..., Awaitable[tuple[int, str]]]


def in_terminal(cluster: EmbeddedCluster) -> Ask:
    """Return a function that runs a command in a terminal, and answers its question with a line or a signal."""
    env = {**os.environ, "NAMESRV_ADDR": cluster.name_servers[0]}

    def ask(arguments: tuple[str, ...], answer: str | signal.Signals) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [ROCKETRIO, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env,
            start_new_session=True,
        )
        os.close(theirs)
        shown = b""
        is_answered = False
        try:
            while data := os.read(ours, 4096):
                shown += data
                if b"[y/N]" in shown and not is_answered:
                    is_answered = True
                    if isinstance(answer, str):
                        os.write(ours, answer.encode() + b"\n")
                    else:
                        process.send_signal(answer)
        except OSError:  # The process has closed its terminal.
            pass
        os.close(ours)
        return process.wait(), " ".join(shown.decode().split())

    async def asked(*arguments: str, answer: str | signal.Signals = "") -> tuple[int, str]:
        return await trio.to_thread.run_sync(ask, arguments, answer)

    return asked


@pytest.mark.real
async def test_person_is_asked_before_something_is_lost_and_a_program_is_not() -> None:
    async with EmbeddedCluster(network="loopback") as cluster:
        ask, run = in_terminal(cluster), in_cluster(cluster)
        with trio.fail_after(HANGS):
            await run("produce", "orders", "--count", "3")
            await run("consume", "orders", "--group", "billing", "--until-caught-up")
            lost = "orders has 3 messages, which billing reads; they are lost with it. Go on? [y/N]"
            for answer, code in (("n", 4), ("", 4), (signal.SIGINT, 130)):
                found, text = await ask("topic", "delete", "orders", answer=answer)
                assert found == code
                assert lost in text
            code, text = await ask("group", "delete", "billing", answer="no")
            assert code == 4
            assert "progress in %RETRY%billing, orders" in text
            assert "error: nothing was done" in text
            code, text = await ask("offsets", "delete", "billing", answer="n")
            assert code == 4
            assert "billing loses 5 committed offsets" in text
            code, text = await ask("topic", "delete", "nosuch")
            assert code == 1
            assert "[y/N]" not in text
            code, text = await ask("topic", "delete", "orders", answer="y")
            assert code == 0
            assert "deleted orders on broker-a: 3 messages, which billing reads" in text
            code, text = await ask("group", "delete", "billing", "--yes")
            assert (code, text) == (0, "deleted billing from broker-a")
            code, text = await ask("broker", "clean", "broker-a", "log", answer="n")
            assert code == 4
            assert "deletes files for good" in text
            await run("topic", "create", "orders")
            done = await run("topic", "delete", "orders", "--json")
            assert done.json == [[{"topic": "orders", "broker_name": "broker-a", "messages": 0}]]
