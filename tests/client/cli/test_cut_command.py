"""`rocketrio broker cut`: what brokers put aside is shown and sent again, whatever is damaged."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result
from tests.support.commands import Done, in_cluster
from tests.support.stores import SMALL, body_of, opened, put_of, read_all, stored
from tests.support.waiting import HANGS
from trio.testing import MockClock

from rocketrio.admin.cut_log import (
    PROPERTY_CUT_FROM,
    CutDamage,
    CutRecord,
    cut_files,
    read_records,
)
from rocketrio.cli import main
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_protocol.message import decode_messages

INTERNAL = 2


async def cut_away(root: Path, *, count: int = 60) -> tuple[Path, list[bytes]]:
    """A data directory whose last messages were cut off, over the end of a file; and their bodies."""
    bodies = [b"%03d" % number + b"x" * 400 for number in range(count)]
    async with opened(InlineDisk(), SMALL, root=root) as store:
        for number in range(5):
            stored(store.append(put_of(b"kept %d" % number)))
        start = store.max_physical_offset
        for body in bodies:
            stored(store.append(put_of(body, properties=b"KEYS\1k" + body[:3])))
        for topic in ("SCHEDULE_TOPIC_XXXX", "%RETRY%billing"):
            stored(store.append(put_of(b"a broker's own", topic)))
        await store.cut_tail(start, now_ms=1_700_000_000_000)
        assert len(read_all(store, "orders")) == 5
    [file] = cut_files(root)
    assert file.physical_offset == start
    return file.path, bodies


def cut(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["broker", "cut", *map(str, arguments)])


async def test_everything_that_was_cut_off_is_shown(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    path, bodies = await cut_away(tmp_path)
    listed = cut("list", tmp_path, "--json")
    assert listed.exit_code == 0, listed.output
    [row] = json.loads(listed.output)
    assert (row["file"], row["messages"], row["damaged"]) == (path.name, len(bodies) + INTERNAL, 0)
    assert row["topics"]["orders"] == len(bodies)
    [file] = cut_files(tmp_path)
    assert row["physical_offset"] == file.physical_offset
    assert datetime.fromisoformat(row["cut_at"]) == file.cut_at
    assert path.name in cut("list", tmp_path).output
    shown = cut("show", tmp_path, path.name, "--json")
    assert shown.exit_code == 0, shown.output
    lines = [json.loads(line) for line in shown.output.splitlines()]
    assert [line["keys"] for line in lines[: len(bodies)]] == [
        f"k{body[:3].decode()}" for body in bodies
    ]
    assert lines[0]["queue_offset"] == 5
    assert lines[0]["physical_offset"] == file.physical_offset
    assert lines[0]["body_size"] == len(bodies[0])
    assert datetime.fromisoformat(lines[0]["store_time"]).utcoffset() == timedelta(0)
    assert [line["internal"] for line in lines[-INTERNAL:]] == [True, True]
    assert "k007" in cut("show", tmp_path, path.name).output


async def test_damage_hides_nothing_else(autojump_clock: MockClock, tmp_path: Path) -> None:
    path, bodies = await cut_away(tmp_path)
    [file] = cut_files(tmp_path)
    first, second, third = [one for one in read_records(file) if isinstance(one, CutRecord)][:3]
    data = bytearray(path.read_bytes())
    data[second.physical_offset - file.physical_offset + 4] ^= 0xFF
    path.write_bytes(data[:-10])
    found = list(read_records(file))
    damage = [one for one in found if isinstance(one, CutDamage)]
    assert damage[0].physical_offset == second.physical_offset
    assert damage[0].size == third.physical_offset - second.physical_offset
    assert len(found) - len(damage) == len(bodies) + INTERNAL - 2
    assert found[0].physical_offset == first.physical_offset
    shown = cut("show", tmp_path, path.name, "--json")
    assert shown.exit_code == 1
    assert f"{damage[0].size} bytes at {second.physical_offset}" in shown.stderr
    assert len(shown.stdout.splitlines()) == len(bodies) + INTERNAL - 2


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    for no_data in (tmp_path, tmp_path / "nowhere"):
        nowhere = cut("list", no_data)
        assert nowhere.exit_code == 1
        assert f"{no_data} has no commitlog" in nowhere.stderr
    (tmp_path / "commitlog").mkdir()
    assert cut("list", tmp_path, "--json").output == "[]\n"
    unknown = cut("show", tmp_path, "x.log")
    assert unknown.exit_code == 1
    assert "there are: none" in unknown.stderr


@pytest.mark.real
async def test_messages_are_sent_again_where_it_ended(tmp_path: Path) -> None:
    path, bodies = await cut_away(tmp_path, count=4)
    async with EmbeddedCluster(network="loopback") as cluster:
        run = in_cluster(cluster)
        with trio.fail_after(HANGS):
            dry: Done = await run("broker", "cut", "resend", str(tmp_path), path.name, "--dry-run")
            assert dry.out == "would be sent: 4; passed over, as they are brokers' own: 2\n"
            [file] = cut_files(tmp_path)
            second = [one for one in read_records(file) if isinstance(one, CutRecord)][1]
            done: Done = await run(
                "broker",
                "cut",
                "resend",
                str(tmp_path),
                path.name,
                "--from",
                str(second.physical_offset),
            )
            assert (done.code, done.err) == (0, "")
            assert done.out == "sent again: 3; passed over, as they are brokers' own: 2\n"
        store = cluster.master.broker.store
        records = [
            record
            for queue in store.queues()["orders"]
            for record in read_all(store, "orders", queue)
        ]
        assert sorted(body_of(record) for record in records) == bodies[1:]
        for record in records:
            [message] = decode_messages(record)
            assert message.properties[PROPERTY_CUT_FROM].startswith(f"{path.name}@")
            assert message.keys == f"k{message.body[:3].decode()}"
