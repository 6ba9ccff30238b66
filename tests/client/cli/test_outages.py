"""What a command that goes on says while the cluster is away, and which lines it could not send."""

import pytest
import trio
from tests.support.clients import client_of
from trio.testing import MockClock

from rocketrio import Message, open_producer
from rocketrio.cli.outages import reporting_outages
from rocketrio.cli.produce import RANGES_SHOWN, _NotStored
from rocketrio_broker.embedded import EmbeddedCluster


@pytest.mark.slow
@pytest.mark.parametrize("writes", [False, True])
async def test_outage_and_its_end_are_reported_once(
    writes: bool, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        EmbeddedCluster() as cluster,
        client_of(cluster) as client,
        open_producer(client=client) as producer,
    ):
        await producer.send(Message("orders", b"x"))
        async with reporting_outages(client, "orders", writes=writes):
            await trio.sleep(60)
            assert capsys.readouterr().err == ""
            for _ in range(2):
                await cluster.kill_master()
                await trio.sleep(60)
                told = capsys.readouterr().err
                assert told.startswith("waiting for the cluster: ")
                assert told.count("\n") == 1
                await cluster.master.start()
                await trio.sleep(60)
                assert capsys.readouterr().err == "the cluster is back\n"


@pytest.mark.slow
async def test_reads_that_a_slave_serves_are_no_outage(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        EmbeddedCluster(slaves=1) as cluster,
        client_of(cluster) as client,
        open_producer(client=client) as producer,
    ):
        await producer.send(Message("orders", b"x"))
        await trio.sleep(60)
        async with reporting_outages(client, "orders", writes=False):
            await cluster.kill_master()
            await trio.sleep(10)
        assert capsys.readouterr().err == ""
        async with reporting_outages(client, "orders", writes=True):
            await trio.sleep(10)
        assert capsys.readouterr().err.count("waiting for the cluster: ") == 1


def test_lines_that_were_not_stored_are_named_by_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = _NotStored()
    told.is_whole = True
    assert not told
    for number in (9, 3, 4, 5):
        told.add(number, "no\nbroker")
    told.add(1, "too long")
    assert told.first == "too long"
    told.show("line")
    assert capsys.readouterr().err == (
        "not stored: lines 3-5, 9: no broker\nnot stored: line 1: too long\n"
    )


def test_very_many_lines_are_shown_in_part_and_what_was_not_read_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = _NotStored()
    for number in range(1, 2 * RANGES_SHOWN + 11, 2):
        told.add(number, "no")
    told.lines = 77
    told.show("line")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(" and 5 more: no")
    assert second == "not sent: lines from 77 on"
