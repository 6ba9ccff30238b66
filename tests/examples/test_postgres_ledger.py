"""The example that takes payments from PostgreSQL to PostgreSQL: relays and members are killed over and over."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from tests.examples.programs import EXAMPLES
from tests.support.postgres import postgres
from tests.support.waiting import HANGS, eventually

from rocketrio_broker.embedded import EmbeddedCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

PAYMENTS = 1500
LIVES = 2
"""How often the relay and the member are killed."""
END_CONNECTIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state = 'idle' AND query = 'COMMIT'
"""
"""What the member notices of a database that is started again, once it has connected."""


async def test_each_payment_is_applied_exactly_once_though_both_are_killed() -> None:
    psycopg = pytest.importorskip("psycopg")
    with postgres() as dsn:
        async with EmbeddedCluster(slaves=1, network="loopback") as cluster:
            env = {**os.environ, "DSN": dsn, "NAMESRV_ADDR": cluster.name_servers[0]}

            def command(*words: str) -> list[str | Path]:
                return [sys.executable, EXAMPLES / "postgres_ledger.py", *words]

            async def said(*words: str) -> str:
                done = await trio.run_process(command(*words), env=env, capture_stdout=True)
                return done.stdout.decode()

            async def live(word: str) -> None:
                """Start a program again and again; kill it when it has said that it did something.

                A relay has not deleted yet what it says that it sent, and a member has committed to the database
                alone what it says that it applied.
                """
                for _ in range(LIVES):
                    process = await trio.lowlevel.open_process(
                        command(word), env=env, stdout=subprocess.PIPE
                    )
                    assert process.stdout is not None
                    assert await process.stdout.receive_some()
                    process.kill()
                    await process.wait()

            with trio.fail_after(HANGS):
                await said("pay", str(PAYMENTS))
                for word in ("relay", "apply"):
                    await live(word)
                # What is left is done by programs that run on.
                last = [await trio.lowlevel.open_process(command("apply"), env=env)]
                with psycopg.connect(dsn, autocommit=True) as connection:
                    await eventually(lambda: connection.execute(END_CONNECTIONS).fetchall(), HANGS)
                last.append(await trio.lowlevel.open_process(command("relay"), env=env))
                try:

                    async def is_right() -> bool:
                        return await said("check") == (
                            f"{PAYMENTS} payments, {PAYMENTS} applied, 0 in the outbox\n"
                            "the ledger is right\n"
                        )

                    await eventually(is_right, HANGS, interval=1.0)
                finally:
                    for process in last:
                        process.send_signal(signal.SIGINT)
                        assert await process.wait() == 0
