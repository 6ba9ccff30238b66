"""Dead letters that are sent again: at a rate, some of them, and continued after an interruption."""

import json
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.client.dead_letters import give_up
from tests.support.clients import client_of, open_admin
from tests.support.clocks import SteppedClock
from tests.support.orders import TOPIC
from trio.testing import MockClock

from rocketrio import ClientInstance, open_consumer
from rocketrio.admin.dead_letters import DeadLetters, Resent, chooses
from rocketrio.admin.resend_journal import journal_state, open_journal
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError

WORDS = st.sampled_from(["sending", "sent", "refused"])


def line(word: str, key: str) -> bytes:
    return f"{json.dumps({word: key})}\n".encode()


@given(st.lists(st.sampled_from("abcd"), max_size=6), st.data())
def test_journal_cut_anywhere_forgets_no_message_that_was_sent(
    keys: list[str], data: st.DataObject
) -> None:
    """A send begins once its line is on the disk; the cut is where the power failed, perhaps within a line."""
    journal = b'{"resend": "g", "to": "group"}\n'
    begun_at: list[tuple[int, str]] = []
    for key in dict.fromkeys(keys):
        journal += line("sending", key)
        begun_at.append((len(journal), key))
        journal += line("sent", key)
    cut = data.draw(st.integers(0, len(journal)))
    state = journal_state(journal[:cut])
    perhaps_sent = {key for at, key in begun_at if at <= cut}
    assert perhaps_sent == {*state.finished, *state.doubtful}
    assert len(state.doubtful) <= 1
    assert state.size <= cut
    assert journal_state(journal[: state.size]) == state


def test_refused_message_is_neither_sent_nor_doubtful() -> None:
    state = journal_state(b"{}\n" + line("sending", "a") + line("refused", "a"))
    assert (state.finished, state.doubtful) == (set(), set())


def test_other_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("one\ntwo\n")
    with pytest.raises(ConfigError, match="not a line of a state"), open_journal(path):
        pass
    path.write_text('{"resend": "other", "to": "group"}\n')
    with open_journal(path) as journal:
        with pytest.raises(ConfigError, match="belongs to"):
            journal.begin('{"resend": "g", "to": "group"}')
        with pytest.raises(ConfigError, match="another process"), open_journal(path):
            pass


async def run(letters: DeadLetters, **options: object) -> list[tuple[bytes, str]]:
    found: list[Resent] = []
    await letters.resend_all(report=found.append, **options)  # type: ignore[arg-type]
    return [(one.message.body, one.outcome) for one in found]


async def received(client: ClientInstance, count: int) -> list[bytes]:
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        bodies = []
        with trio.move_on_after(10):
            while True:
                bodies.append((await consumer.receive()).body)
    return bodies


async def test_interrupted_resend_is_continued_and_sends_nothing_twice(
    client: ClientInstance, tmp_path: Path
) -> None:
    await give_up(client, 6)
    async with open_admin(client=client) as admin:
        letters = admin.dead_letters("g")
        path = tmp_path / "state"
        sent: list[Resent] = []
        with trio.CancelScope() as scope, open_journal(path) as journal:

            def report(one: Resent) -> None:
                sent.append(one)
                if len(sent) == 3:
                    scope.cancel()

            await letters.resend_all(report=report, journal=journal)
        assert len(sent) == 3
        with open_journal(path) as journal:
            dry = await run(letters, journal=journal, dry_run=True)
            assert [outcome for _, outcome in dry] == ["sent before"] * 3 + ["would be sent"] * 3
            assert await run(letters, journal=journal) == [
                (b"%d" % number, "sent before" if number < 3 else "sent") for number in range(6)
            ]
        with open_journal(path) as journal:
            assert {outcome for _, outcome in await run(letters, journal=journal)} == {
                "sent before"
            }
        assert sorted(await received(client, 6)) == [b"%d" % number for number in range(6)]


async def test_message_that_was_under_way_is_doubtful_and_not_sent(
    client: ClientInstance, tmp_path: Path
) -> None:
    await give_up(client, 2)
    async with open_admin(client=client) as admin:
        letters = admin.dead_letters("g")
        path = tmp_path / "state"
        with open_journal(path) as journal:
            await run(letters, journal=journal)
        whole = path.read_bytes()
        path.write_bytes(whole[: whole.rindex(b'{"sent"') + 9])  # The power failed here.
        with open_journal(path) as journal:
            outcomes = [outcome for _, outcome in await run(letters, journal=journal)]
        assert outcomes == ["sent before", "doubtful"]


async def test_rate_and_expression_are_kept(client: ClientInstance) -> None:
    await give_up(client, 5)
    async with open_admin(client=client) as admin:
        letters = admin.dead_letters("g")
        begun = trio.current_time()
        assert len(await run(letters, rate=2)) == 5
        assert 2 <= trio.current_time() - begun < 3
        nothing = await run(letters, where=chooses("origin = 'web'"))
        everything = await run(letters, where=chooses("origin IS NULL"), dry_run=True)
        assert (len(nothing), len(everything)) == (0, 5)
    with pytest.raises(ConfigError, match="not an SQL92 expression"):
        chooses("origin = ")


async def test_count_says_since_when_and_how_many_are_new(autojump_clock: MockClock) -> None:
    clock = SteppedClock()
    async with (
        EmbeddedCluster(wall_clock=clock) as cluster,
        client_of(cluster) as client,
        open_admin(client=client) as admin,
    ):
        await give_up(client, 2)
        clock.step_ms = 3_700_000
        await give_up(client, 3)
        found = await admin.dead_letters("g").counted()
        assert (found.messages, found.last_hour, found.problem) == (5, 3, None)
        assert found.oldest is not None
        assert found.newest is not None
        assert 3_700 <= (found.newest - found.oldest).total_seconds() < 3_800
        nothing = await admin.dead_letters("nobody").counted()
        assert (nothing.messages, nothing.oldest, nothing.last_hour) == (0, None, 0)
