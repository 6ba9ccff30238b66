"""When changed files are used (`remoting/reloaded_files.py`)."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.clocks import SettableClock
from tests.support.tls import authority, write_files
from trio.testing import MockClock

from rocketrio_protocol.remoting.ports import SystemWallClock
from rocketrio_protocol.remoting.reloaded_files import RELOAD_PERIOD, ReloadedFiles
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.remoting.tls_files import ServerTlsFiles, TlsIdentity


async def inline(work: Any, *arguments: Any) -> Any:
    return work(*arguments)


def watched(folder: Path) -> ReloadedFiles[ssl.SSLContext]:
    identity = TlsIdentity(certificate_file=folder / "cert.pem", key_file=folder / "key.pem")
    files = ServerTlsFiles(identity=identity)
    return ReloadedFiles(
        files.context,
        files.files(),
        what="the server's certificate",
        certificates=[identity.certificate_file],
        wall_clock=SystemWallClock(),
        run_blocking=inline,
    )


async def test_changed_certificate_is_used_within_the_period(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    write_files(tmp_path)
    files = watched(tmp_path)
    first = files.current
    async with background_nursery() as nursery:
        nursery.start_soon(files.run)
        await trio.sleep(3 * RELOAD_PERIOD)
        assert files.current is first
        write_files(tmp_path)
        await trio.sleep(RELOAD_PERIOD)
        assert files.current is not first


async def test_pair_that_does_not_match_yet_changes_nothing_and_is_logged_once(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path)
    files = watched(tmp_path)
    first = files.current
    issued = authority().issue_cert("10.0.0.1")
    async with background_nursery() as nursery:
        nursery.start_soon(files.run)
        issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
        await trio.sleep(4 * RELOAD_PERIOD)
        assert files.current is first
        assert caplog.text.count("the former ones stay in use") == 1
        issued.private_key_pem.write_to_path(tmp_path / "key.pem")
        await trio.sleep(RELOAD_PERIOD)
        assert files.current is not first


async def test_files_behind_a_link_that_changes_are_used(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        write_files(tmp_path / name)
    (tmp_path / "now").symlink_to("old")
    files = watched(tmp_path / "now")
    first = files.current
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").rename(tmp_path / "now")
    await files.look()
    assert files.current is not first


async def test_missing_file_keeps_the_former_certificate(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path)
    files = watched(tmp_path)
    first = files.current
    (tmp_path / "cert.pem").rename(tmp_path / "away.pem")
    await files.look()
    assert files.current is first
    assert "No such file" in caplog.text
    (tmp_path / "away.pem").rename(tmp_path / "cert.pem")
    await files.look()
    assert files.current is first


async def test_certificate_that_ends_soon_is_logged_each_day(
    autojump_clock: MockClock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketrio_protocol.remoting.reloaded_files.RELOAD_PERIOD", 3600)
    write_files(tmp_path, days=60)
    clock = SettableClock(SystemWallClock().now_ms())
    files = watched(tmp_path)
    files._wall_clock = clock
    async with background_nursery() as nursery:
        nursery.start_soon(files.run)
        await trio.sleep(3.5 * 86_400)
        assert "ends soon" not in caplog.text
        clock.now += 40 * 86_400_000
        await trio.sleep(3 * 86_400)
    assert caplog.text.count("a certificate ends soon") == 3
    assert "days_left=19" in caplog.text
