"""The commands `rocketrio offsets show` and `rocketrio offsets reset`."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.clients import client_of
from tests.support.commands import commands
from tests.support.orders import fill

from rocketrio import MessageQueue, open_consumer
from rocketrio.cli import main

QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["billing", "--topic", "orders"],
        ["billing", "--to", "first"],
        ["billing", "--topic", "orders", "--all-topics", "--to", "first"],
        ["billing", "--topic", "orders", "--to", "first", "--shift", "3"],
        ["billing", "--topic", "orders", "--to", "first", "--queue", "3"],
        ["--topic", "orders", "--to", "first"],
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["offsets", "reset", *arguments])
    assert done.exit_code == 2, done.output


@pytest.mark.real
async def test_group_is_reset_by_a_plan(tmp_path: Path) -> None:
    async with commands() as (cluster, run):
        async with client_of(cluster) as client:
            await fill(client, 5, read=4)
        reset = ("offsets", "reset", "billing")

        done = await run(*reset, "--topic", "orders", "--to", "first", "--dry-run", "--json")
        assert done.code == 0, done.err
        [plan] = done.json
        assert (plan["way"], plan["is_dry_run"], plan["members"]) == ("offline", True, 0)
        assert plan["queues"] == [
            {
                "topic": "orders", "broker_name": "broker-a", "queue_id": 0, "from_offset": 4, "to_offset": 0,
                "messages_again": 4, "messages_skipped": 0, "way": "offline", "after": None,
                "has_arrived": None,
            }
        ]  # fmt: skip
        done = await run(*reset, "--all-topics", "--shift", "-1")
        assert done.code == 0, done.err
        assert "offsets are committed" in done.out
        # A first word that is no command is a topic, as before there were commands.
        done = await run("offsets", "orders", "--group", "billing", "--json")
        [[found]] = done.json
        assert found["committed_offset"] == 3

        offsets = tmp_path / "offsets.csv"
        offsets.write_text("topic,broker_name,queue_id,offset\norders,broker-a,0,1\n")
        done = await run(*reset, "--from-file", str(offsets), "--json")
        assert (done.code, done.json[0]["queues"][0]["after"]) == (0, 1)
        offsets.write_text("topic,queue_id\norders,0\n")
        done = await run(*reset, "--from-file", str(offsets))
        assert done.code == 2
        assert "is not CSV or JSON" in done.err

        async with open_consumer("orders", group="billing", name_servers=cluster.name_servers):
            done = await run(*reset, "--topic", "orders", "--to", "2")
            assert done.code == 2
            assert "members" in done.err
            done = await run(*reset, "--topic", "orders", "--to", "first", "--json")
            assert (done.code, done.json[0]["way"]) == (0, "online")
        done = await run("offsets", "reset", "missing", "--topic", "orders", "--to", "first")
        assert done.code == 1
