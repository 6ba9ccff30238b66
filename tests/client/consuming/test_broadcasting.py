"""Broadcasting: every member gets every message, and keeps its own progress in a file."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, receive, send

from rocketrio import NOT_FOUND, ClientInstance, Error, MessageExt, MessageQueue, open_consumer
from rocketrio.consuming.local_offset_store import OffsetFile, default_offsets_path
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


async def test_every_member_gets_every_message(
    client: ClientInstance, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    await send(client, 40)
    async with (
        client_of(cluster) as other,
        open_consumer(
            TOPIC, group="g", mode="broadcasting", start_from="earliest", client=client,
            offsets_path=tmp_path / "one.json",
        ) as one,
        open_consumer(
            TOPIC, group="g", mode="broadcasting", start_from="earliest", client=other,
            offsets_path=tmp_path / "two.json",
        ) as two,
    ):  # fmt: skip
        assert len(one.assignment) == len(two.assignment) == 4
        assert sorted(await receive(one, 40)) == list(range(40))
        assert sorted(await receive(two, 40)) == list(range(40))
        model = client.heartbeat.data().consumer_data_set[0]
        assert model.message_model == "BROADCASTING"
        assert [data.topic for data in model.subscription_data_set] == [TOPIC]


async def test_member_continues_at_the_offset_of_its_file(
    client: ClientInstance, tmp_path: Path
) -> None:
    await send(client, 10, queues=1)
    path = tmp_path / "deep" / "offsets.json"
    for expected in ([0, 1, 2, 3], [4, 5, 6, 7]):
        async with open_consumer(
            TOPIC, group="g", mode="broadcasting", start_from="earliest", client=client,
            offsets_path=path,
        ) as consumer:  # fmt: skip
            assert await receive(consumer, 4) == expected
            await trio.sleep(6)
            assert await consumer.committed_offset(QUEUE) == expected[-1]
    assert OffsetFile(path).read() == {QUEUE: 8}
    assert path.read_text().startswith('{"offsetTable":{{"brokerName":"broker-a","queueId":0')


async def test_new_member_begins_at_the_end(client: ClientInstance, tmp_path: Path) -> None:
    await send(client, 10, queues=1)
    async with open_consumer(
        TOPIC, group="g", mode="broadcasting", client=client, offsets_path=tmp_path / "o.json"
    ) as consumer:
        await trio.sleep(1)
        await send(client, 1, start=10, queues=1)
        assert await receive(consumer, 1) == [10]
        consumer.seek(QUEUE, 3)
        assert await receive(consumer, 1) == [3]
        await consumer.commit()
        assert await consumer.committed_offset(QUEUE) == 4


async def test_failed_message_is_dropped(client: ClientInstance, tmp_path: Path) -> None:
    await send(client, 4, queues=1)
    seen: list[int] = []

    async def handle(message: MessageExt) -> None:
        seen.append(int(message.body))
        if message.body == b"1":
            raise ValueError("not here")

    async with open_consumer(
        TOPIC, group="g", mode="broadcasting", start_from="earliest", client=client,
        offsets_path=tmp_path / "o.json",
    ) as consumer:  # fmt: skip
        with trio.move_on_after(30):
            await consumer.run(handle, concurrency=1)
        consumer.seek(QUEUE, 0)
        message = await consumer.receive()
        with pytest.raises(ConfigError, match="member of a group"):
            await consumer.retry(message)
    assert seen == [0, 1, 2, 3]


async def test_disk_that_takes_nothing_is_an_error(client: ClientInstance, tmp_path: Path) -> None:
    await send(client, 4, queues=1)
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    async with open_consumer(
        TOPIC, group="g", mode="broadcasting", start_from="earliest", client=client,
        offsets_path=tmp_path / "o.json",
    ) as consumer:  # fmt: skip
        await receive(consumer, 1)
        os.mkdir(tmp_path / "o.json.tmp")
        with pytest.raises(Error, match="offsets_path="):
            await consumer.commit()
        assert await consumer.committed_offset(QUEUE) is NOT_FOUND
        os.rmdir(tmp_path / "o.json.tmp")


# ---------------------------------------------------------------------------------------- the file


def test_file_of_java_is_read(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"orders"\n'
        '\t\t}:12,{\n\t\t\t"brokerName":"broker-b",\n\t\t\t"queueId":3,\n\t\t\t"topic":"orders"\n\t\t}:7\n\t}\n}'
    )
    assert OffsetFile(path).read() == {QUEUE: 12, MessageQueue(TOPIC, "broker-b", 3): 7}


def test_file_before_counts_where_the_last_one_cannot_be_read(tmp_path: Path) -> None:
    file = OffsetFile(tmp_path / "offsets.json")
    file.write({QUEUE: 5}, {QUEUE: "1.0.a"})
    file.write({QUEUE: 9}, {})
    file.path.write_bytes(b"")
    assert file.read() == {QUEUE: 5}
    file.path.unlink()
    assert file.read_all() == ({QUEUE: 5}, {QUEUE: "1.0.a"})
    (tmp_path / "offsets.json.bak").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        file.read()


async def test_empty_file_is_a_missing_one(client: ClientInstance, tmp_path: Path) -> None:
    await send(client, 2, queues=1)
    path = tmp_path / "offsets.json"
    path.touch()
    (tmp_path / "offsets.json.bak").touch()
    assert OffsetFile(path).read_all() == ({}, {})
    async with open_consumer(
        TOPIC, group="g", mode="broadcasting", start_from="earliest", client=client,
        offsets_path=path,
    ) as consumer:  # fmt: skip
        assert await receive(consumer, 2) == [0, 1]
    assert OffsetFile(path).read() == {QUEUE: 2}


@pytest.mark.parametrize("text", [b"\0" * 300, b"{", b"null", b'{"offsetTable":{{"brokerNa'])
async def test_unreadable_file_is_refused_or_ignored_as_the_member_says(
    client: ClientInstance, tmp_path: Path, text: bytes
) -> None:
    await send(client, 2, queues=1)
    path = tmp_path / "offsets.json"
    path.write_bytes(text)
    options: dict[str, Any] = {
        "group": "g", "mode": "broadcasting", "start_from": "earliest", "client": client,
        "offsets_path": path,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="ignore_unreadable_offsets=True"):
        async with open_consumer(TOPIC, **options):
            raise AssertionError("open")
    assert path.read_bytes() == text
    async with open_consumer(TOPIC, ignore_unreadable_offsets=True, **options) as consumer:
        assert await receive(consumer, 2) == [0, 1]
    assert OffsetFile(path).read() == {QUEUE: 2}


def test_offsets_file_is_by_default_where_java_has_it() -> None:
    home = Path.home() / ".rocketmq_offsets"
    assert default_offsets_path("10.0.0.1@7#abc", "g") == home / "10.0.0.1@DEFAULT/g/offsets.json"
    assert default_offsets_path("mine", "g") == home / "mine/g/offsets.json"


@pytest.mark.parametrize(
    "client_id",
    ["..", ".", "", "../../etc", "/etc", "a/../../b", "a/b", "a\0b", "../a@1#2"],
)
def test_client_id_that_cannot_name_a_folder_is_refused(client_id: str) -> None:
    with pytest.raises(ConfigError, match="can be no folder's name"):
        default_offsets_path(client_id, "g")


def test_offsets_are_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        file = OffsetFile(tmp_path / "offsets" / "me" / "g" / "offsets.json")
        for offset in (5, 6):
            file.write({QUEUE: offset}, {})
    finally:
        os.umask(before)
    made = list((tmp_path / "offsets").rglob("*"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made}
    assert modes == {
        "me": 0o700, "g": 0o700, "offsets.json": 0o600, "offsets.json.bak": 0o600
    }  # fmt: skip
    assert file.read() == {QUEUE: 6}


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"mode": "multicast"}, "neither 'clustering' nor 'broadcasting'"),
        ({"mode": "broadcasting", "queues": [QUEUE]}, "no queues="),
        ({"offsets_path": "o.json"}, "for mode='broadcasting'"),
        ({"ignore_unreadable_offsets": True}, "for mode='broadcasting'"),
    ],
)
async def test_wrong_use_is_refused(
    client: ClientInstance, arguments: dict[str, object], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        async with open_consumer(TOPIC, group="g", client=client, **arguments):  # type: ignore[arg-type]
            pass
