"""`rocketrio dead-letters` as operators use it."""

import pytest
from click.testing import CliRunner
from tests.client.dead_letters import give_up_all
from tests.support.commands import Done, commands

from rocketrio.cli import main

COLUMNS = ("message_id", "topic", "keys", "tags", "reconsume_times", "store_time", "body_size")


@pytest.mark.real
async def test_dead_letters_are_shown_and_sent_again() -> None:
    async with commands() as (cluster, run):
        none: Done = await run("dead-letters", "list", "billing", "--json")
        assert (none.code, none.out) == (1, "")
        assert "billing" in none.err
        await run("group", "create", "billing")
        none = await run("dead-letters", "list", "billing", "--json")
        assert (none.code, none.out) == (0, "")
        await run("produce", "orders", "--count", "3")
        await give_up_all(cluster, count=3)
        shown: Done = await run("dead-letters", "list", "billing", "--json")
        assert [(line["topic"], line["reconsume_times"]) for line in shown.json] == [
            ("orders", 1)
        ] * 3
        assert tuple(shown.json[0]) == (*COLUMNS, "body_error")
        assert shown.json[0]["body_size"] == 128
        stored = shown.json[0]["store_time"]
        assert stored.endswith("+00:00")
        since: Done = await run("dead-letters", "list", "billing", "--since", stored, "--json")
        assert since.json == shown.json
        table: Done = await run("dead-letters", "list", "billing", "--count", "1")
        message_id = shown.json[0]["message_id"]
        assert message_id in table.out
        assert len(table.out.splitlines()) == 2
        assert tuple(table.out.splitlines()[0].split()) == COLUMNS
        would: Done = await run("dead-letters", "resend", "billing", message_id, "--dry-run")
        assert message_id in would.out
        assert would.out.splitlines()[-1].endswith("would be sent")
        sent: Done = await run("dead-letters", "resend", "billing", message_id)
        assert (sent.code, sent.out) == (0, "sent again: 1\n")
        again: Done = await run("consume", "orders", "--group", "billing", "--count", "1")
        assert (again.code, len(again.out.splitlines())) == (0, 1)
        every: Done = await run("dead-letters", "resend", "billing", "--all", "--to", "topic")
        assert every.out == "sent again: 3\n"
        wrong: Done = await run("dead-letters", "resend", "billing", "0000")
        assert wrong.code == 1
        assert "no such dead letter: 0000" in wrong.err


@pytest.mark.real
async def test_all_are_more_than_a_list_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketrio.admin.browse.PAGE_MESSAGES", 2)
    async with commands() as (cluster, run):
        await run("produce", "orders", "--count", "5")
        await give_up_all(cluster, count=5)
        shown: Done = await run("dead-letters", "list", "billing", "--count", "9", "--json")
        last = shown.json[-1]["message_id"]
        one: Done = await run("dead-letters", "resend", "billing", last)
        assert one.out == "sent again: 1\n"
        every: Done = await run("dead-letters", "resend", "billing", "--all")
        assert every.out == "sent again: 5\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("resend", "billing"),
        ("resend", "billing", "ID", "--all"),
        ("list", "billing", "--since", "yesterday"),
        ("list", "bad group"),
    ],
)
def test_wrong_use_ends_with_two(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(main, ["dead-letters", *arguments]).exit_code == 2
