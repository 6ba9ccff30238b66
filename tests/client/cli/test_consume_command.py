"""`rocketrio consume` where standard output cannot be written."""

from pathlib import Path

import pytest
from tests.support.commands import ROCKETRIO, commands, in_shell

from rocketrio import open_admin


@pytest.mark.real
@pytest.mark.parametrize("unbuffered", ["", "1"])
async def test_nothing_is_committed_that_standard_output_did_not_take(
    unbuffered: str, tmp_path: Path
) -> None:
    # A file may have 100 KiB: the write that reaches this is short, and the next one fails.
    full_file = f"ulimit -f 100; {{}} > {tmp_path}/printed"
    reader_that_ends = "{} | head -c 100; exit ${{PIPESTATUS[0]}}"
    async with commands() as (cluster, _):
        shell = in_shell(cluster, PYTHONUNBUFFERED=unbuffered)
        await shell(f"{ROCKETRIO} produce orders --count 100 --size 4000 --sharding-key a")
        for group, into, told in (
            ("file", full_file, "error: standard output takes no more: File too large\n"),
            ("pipe", reader_that_ends, ""),
        ):
            consume = f"{ROCKETRIO} consume orders --group {group} --count 62"
            done = await shell(into.format(consume))
            async with open_admin(name_servers=cluster.name_servers) as admin:
                offsets = await admin.offsets("orders", group)
            assert (done.code, done.err) == (1, told)
            assert [queue.committed_offset or 0 for queue in offsets] == [0] * len(offsets)


@pytest.mark.real
async def test_streams_that_cannot_be_used_are_one_line() -> None:
    async with commands() as (cluster, _):
        shell = in_shell(cluster)
        await shell(f"seq 3 | {ROCKETRIO} produce orders")
        for line, code, told in (
            (
                "consume orders --group full --count 1 > /dev/full",
                1,
                "output takes no more: No space",
            ),
            ("topic list --json > /dev/full", 1, "output takes no more: No space"),
            ("consume orders --group closed --count 1 >&-", 1, "standard output is closed"),
            ("produce orders <&-", 2, "standard input is closed"),
        ):
            done = await shell(f"{ROCKETRIO} {line}")
            assert done.code == code, line
            assert told in done.err.splitlines()[-1]
            assert "Traceback" not in done.err
        done = await shell(f"{ROCKETRIO} offsets orders --group full --json")
    assert all(not queue["committed_offset"] for queue in done.json[0])


@pytest.mark.real
async def test_format_strings_carry_messages_from_one_topic_to_another() -> None:
    async with commands() as (cluster, _):
        shell = in_shell(cluster)
        done = await shell(
            rf"printf 'k1 a\nk2 two words\n' | {ROCKETRIO} produce orders --sharding-key x -f '%k %v\n'"
        )
        assert done.out.startswith("stored 2 messages in orders"), done
        form = r"-f '%k\x1f%v{base64}\n'"
        done = await shell(
            f"{ROCKETRIO} consume orders --group g --count 2 {form} | {ROCKETRIO} produce copies {form}"
        )
        assert done.out.startswith("stored 2 messages in copies"), done
        consume = f"{ROCKETRIO} consume copies --group {{}} --count {{}} -f '%i %k=%v;'"
        done = await shell(consume.format("all", 2))
        assert sorted(done.out.split(";")[:-1]) in (
            ["1 k1=a", "2 k2=two words"],
            ["1 k2=two words", "2 k1=a"],
        )
        done = await shell(f"{ROCKETRIO} consume orders --group late --from -1 --count 1")
        assert done.out == "two words\n"
        done = await shell(rf"printf '<k> a\nb\n' | {ROCKETRIO} produce orders -f '<%k> %v\n'")
        assert done.code == 1
        assert done.out.startswith("stored 1 message")
        assert "record 2 has b'b" in done.err
        assert "nothing was sent from this record on" in done.err


@pytest.mark.real
async def test_new_group_begins_at_the_end_and_a_note_names_a_place_that_is_not_used() -> None:
    async with commands() as (_, run):
        await run("produce", "orders", stdin=b"1\n2\n3\n")
        for place in ("last", "latest", "-0"):
            consume = ("consume", "orders", "--group", f"by-{place}", "--from", place)
            done = await run(*consume, "--until-caught-up")
            assert (done.code, done.out, done.err) == (0, "", ""), place
        await run("produce", "orders", stdin=b"4\n")
        done = await run("consume", "orders", "--group", "by-last", "--count", "1")
        assert (done.out, done.err) == ("4\n", "")
        for place in ("last", "first", "@-1h"):
            consume = ("consume", "orders", "--group", "by-latest", "--from", place)
            done = await run(*consume, "--count", "1")
            assert done.out == "4\n", place
            assert "note: by-latest has committed in 4 of 4 queues of orders" in done.err
            assert done.err.count("\n") == 1
            await run("produce", "orders", stdin=b"4\n")


@pytest.mark.real
async def test_messages_that_go_to_a_file_are_counted_on_standard_error(tmp_path: Path) -> None:
    async with commands() as (cluster, _):
        shell = in_shell(cluster)
        done = await shell(f"echo a | {ROCKETRIO} produce orders")
        assert done.out.startswith("stored 1 message in orders in ")
        consume = f"{ROCKETRIO} consume orders --group g --count 1"
        done = await shell(f"{consume} > {tmp_path}/got; cat {tmp_path}/got")
        assert (done.out, done.err) == ("a\n", "consumed 1 message\n")
