"""The doctor's bundle: what is in it, who may read it, and that no secret is in it."""

import io
import json
import logging
import re
import stat
import tarfile
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.support.clients import open_admin, open_consumer, open_producer
from tests.support.private_files import private_file
from tests.support.secured_broker import INNER, SECRET, secured
from tests.support.snapshots import ALL_WRONG
from trio.testing import MockClock

from rocketrio import Message
from rocketrio.admin.diagnosis import diagnosis_of
from rocketrio.admin.diagnosis.bundle import (
    bundle_of,
    write_bundle,
)
from rocketrio.admin.name_servers import ORDER_NAMESPACE
from rocketrio.admin.secret_settings import CUT, without_secrets
from rocketrio_protocol.errors import ConfigError

MARK = "marker-9f2c"
APACHE = {
    "accessKey": MARK,
    "secretKey": MARK,
    "aclEnable": "true",
    "brokerName": "broker-a",
    "haListenPort": "10912",
    "innerClientAuthenticationCredentials": f'{{"accessKey":"a","secretKey":"{MARK}"}}',
    "initAuthenticationUser": f'{{"username":"root","password":"{MARK}"}}',
    "metricsGrpcExporterHeader": f"authorization token={MARK}",
    "metricsGrpcExporterTarget": f"https://user:{MARK}@host/",
    "pem": f"-----BEGIN PRIVATE KEY-----{MARK}",
    "tlsKeyPassword": MARK,
    "empty": "",
}


def test_settings_that_may_be_secrets_are_cut_and_the_others_stay() -> None:
    shown = without_secrets(APACHE)
    assert MARK not in str(shown)
    kept = {name: value for name, value in shown.items() if value != CUT}
    assert kept == {
        "aclEnable": "true",
        "brokerName": "broker-a",
        "empty": "",
        "haListenPort": "10912",
    }


def read(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            entry.name: io.TextIOWrapper(archive.extractfile(entry) or io.BytesIO()).read()
            for entry in archive.getmembers()
        }


def test_bundle_is_json_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "case.tar.gz"
    write_bundle(path, bundle_of(ALL_WRONG, diagnosis_of(ALL_WRONG), log="one line\n"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files = read(path)
    assert files.pop("rocketrio-doctor/log.txt") == "one line\n"
    found: dict[str, Any] = {name: json.loads(text) for name, text in files.items()}
    findings = found["rocketrio-doctor/findings.json"]["findings"]
    assert {one["code"] for one in findings} >= {"R04", "S02", "T01"}
    assert found["rocketrio-doctor/brokers/broker-a-0-h_1/settings.json"]["haListenPort"] == "10912"
    with pytest.raises(ConfigError, match="exists"):
        write_bundle(path, {})


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("../../../../somewhere/x", "127.0.0.1:10911"),
        ("/etc/cron.d/x", "127.0.0.1:10911"),
        ("a/../../../x", "127.0.0.1:10911"),
        ("broker-a", "../../x:10911"),
        ("..\\..\\x", "127.0.0.1:10911"),
        ("C:x", "127.0.0.1:10911"),
        ("a\0b", "127.0.0.1:10911"),
        ("line\nend\x1b]0;x\a\u202e", "127.0.0.1:10911"),
        ("n" * 300, "127.0.0.1:10911"),
        ("", "[::1]:10911"),
    ],
)
def test_broker_with_a_hostile_name_gets_a_number_in_the_archive(
    tmp_path: Path, name: str, address: str
) -> None:
    [former, *_] = [one.address for one in ALL_WRONG.brokers if one.address in ALL_WRONG.settings]
    brokers = [
        attrs.evolve(one, broker_name=name, address=address) if one.address == former else one
        for one in ALL_WRONG.brokers
    ]
    settings = {**ALL_WRONG.settings, address: ALL_WRONG.settings[former]}
    seen = attrs.evolve(ALL_WRONG, brokers=brokers, settings=settings)
    path, target = tmp_path / "case.tar.gz", tmp_path / "deep" / "in" / "here"
    write_bundle(path, bundle_of(seen, diagnosis_of(seen)))
    files = read(path)
    number = [one.address for one in brokers].index(address)
    assert f"rocketrio-doctor/brokers/{number}/settings.json" in files
    assert json.loads(files["rocketrio-doctor/status.json"])[number]["address"] == address
    for member in files:
        assert re.fullmatch(r"[A-Za-z0-9._/-]+", member)
        assert (target / member).resolve().is_relative_to(target / "rocketrio-doctor")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "a//x", "a/./x", "a\\x", "a b", ""])
def test_archive_with_a_path_that_leads_out_is_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="lead out"):
        write_bundle(tmp_path / "case.tar.gz", {"about.json": {}, name: "text"})
    assert list(tmp_path.iterdir()) == []


async def test_no_secret_and_no_message_is_in_the_bundle_of_a_secured_cluster(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret_file = private_file(tmp_path / "ha.secret", f"{MARK}-of-replication")
    async with secured(tmp_path, slaves=1, ha_secret_file=secret_file) as here:
        await here.add_user("ordinary", {"Topic:*": ["Pub", "Sub"], "Group:*": ["Sub"]})
        names = {"name_servers": here.cluster.name_servers, "dial": here.cluster.dial}
        async with open_admin(
            **names, credentials=INNER, wall_clock=here.cluster.wall_clock
        ) as admin:
            await admin.create_topic("orders", queues=1)
            async with (
                open_producer(client=admin.client) as producer,
                open_consumer(
                    "orders", group="billing", start_from="earliest", client=admin.client
                ) as consumer,
            ):
                await producer.send(Message("orders", f"{MARK}-body".encode()))
                await consumer.receive()
                seen = await admin.whole_snapshot(seconds=0)
                events = await admin.events().poll()
                await admin.put_name_server_text(ORDER_NAMESPACE, "password", f"{MARK}-text")
                more = await admin.bundle_files(seen)
        ours = ("rocketrio", "rocketrio_protocol")  # Brokers log to their own files.
        lines = [one.getMessage() for one in caplog.records if one.name.split(".")[0] in ours]
        log = "\n".join(lines)
        files = bundle_of(seen, diagnosis_of(seen), events=events, log=log, more=more)
        write_bundle(tmp_path / "case.tar.gz", files)
    files = read(tmp_path / "case.tar.gz")
    names = [name.rpartition("/")[2] for name in files]
    assert names.count("replication.json") == 2
    assert {"groups.json", "offsets.json", "settings.json", "runtime.json"} <= set(names)
    text = str(files)
    assert "billing" in text
    assert "haSecretFile" in text
    for marker in (MARK, SECRET, INNER.secret_key):
        assert marker not in text, marker
