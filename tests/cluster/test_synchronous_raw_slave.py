"""A synchronous master and a slave made by hand: 8-byte reports over a raw stream, as Apache's send them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from tests.support.caller import Caller, caller_of
from tests.support.replication import REPORT, RawPeer
from trio.testing import wait_all_tasks_blocked

from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.codes import ResponseCode

HOST, OTHER_HOST = "10.0.0.77", "10.0.0.78"


@attrs.define
class Sends:
    """Sends under way and their answers."""

    caller: Caller
    addr: str
    told: dict[bytes, tuple[int, float]] = attrs.Factory(dict)

    async def send(self, body: bytes) -> None:
        answer = await self.caller.send(self.addr, body)
        self.told[body] = (answer.code, trio.current_time())


@attrs.define
class Story:
    """A master without rocketrio slaves, a nursery for sends, and raw slaves on demand."""

    cluster: EmbeddedCluster
    master: Broker
    sends: Sends
    nursery: trio.Nursery

    async def slave(self, host: str = HOST) -> RawPeer:
        return RawPeer(await self.cluster.dial_from(host)(self.master.ha_address))

    async def start(self, body: bytes) -> int:
        """Send, and go on when the message is stored; the log's end then."""
        self.nursery.start_soon(self.sends.send, body)
        await wait_all_tasks_blocked()
        return self.master.store.max_physical_offset


@asynccontextmanager
async def story(**settings: Any) -> AsyncGenerator[Story]:
    async with (
        EmbeddedCluster(role="sync-master", **settings) as cluster,
        caller_of(cluster) as caller,
        trio.open_nursery() as nursery,
    ):
        master = cluster.master.broker
        yield Story(cluster, master, Sends(caller, master.address), nursery)


async def test_reports_byte_by_byte_release_sends() -> None:
    async with story() as one:
        peer = await one.slave()
        await peer.report(0)
        end = await one.start(b"first")
        assert one.sends.told == {}
        transfer = await peer.read_transfer()
        assert transfer is not None
        assert len(transfer.body) == end
        await trio.sleep(1)
        *most, last = REPORT.pack(end)
        await peer.transport.send_all(bytes(most))
        await wait_all_tasks_blocked()
        assert one.sends.told == {}
        await peer.transport.send_all(bytes([last]))
        await wait_all_tasks_blocked()
        assert one.sends.told == {b"first": (ResponseCode.SUCCESS, 1.0)}


async def test_report_releases_exactly_the_sends_it_covers() -> None:
    async with story() as one:
        peer = await one.slave()
        await peer.report(0)
        ends = [await one.start(body) for body in (b"one", b"two", b"three")]
        await peer.read_log(ends[2])
        await peer.report(ends[1] - 1)
        await wait_all_tasks_blocked()
        assert list(one.sends.told) == [b"one"]
        await peer.report(ends[1])
        await wait_all_tasks_blocked()
        assert set(one.sends.told) == {b"one", b"two"}
        await trio.sleep(4)
        assert one.sends.told[b"three"] == (ResponseCode.FLUSH_SLAVE_TIMEOUT, 3.0)


async def test_slave_that_claims_unsent_bytes_releases_no_send() -> None:
    async with story() as one:
        honest = await one.slave()
        await honest.report(0)
        end = await one.start(b"first")
        await honest.read_log(end)
        liar = await one.slave(OTHER_HOST)
        await liar.report(end + 100)
        await liar.wait_ended()
        assert one.sends.told == {}
        await honest.report(end)
        await wait_all_tasks_blocked()
        assert one.sends.told[b"first"][0] == ResponseCode.SUCCESS


async def test_stranger_with_a_log_as_long_releases_no_send() -> None:
    """These bytes were sent to no slave: whatever it holds up to there is not this message."""
    async with story() as one:
        waiting_for = await one.slave()
        await waiting_for.report(0)
        await wait_all_tasks_blocked()
        one.cluster.memory_network.silence(HOST)
        big = 300_000  # More than the way to the slave holds: the transfer stands in its middle.
        first = await one.start(bytes(big))
        end = await one.start(b"second")
        assert first > big
        stranger = await one.slave(OTHER_HOST)
        await stranger.report(end)
        await wait_all_tasks_blocked()
        assert bytes(big) in one.sends.told  # That one was being sent when it said so.
        assert b"second" not in one.sends.told


async def test_what_a_slave_had_is_forgotten_when_it_leaves() -> None:
    async with story() as one:
        fast, slow = await one.slave(), await one.slave(OTHER_HOST)
        for peer in (fast, slow):
            await peer.report(0)
        end = await one.start(b"first")
        await fast.read_log(end)
        await fast.report(end)
        await wait_all_tasks_blocked()
        assert one.sends.told[b"first"][0] == ResponseCode.SUCCESS
        await fast.transport.aclose()
        await wait_all_tasks_blocked()
        end = await one.start(b"second")
        await slow.read_log(end)
        await trio.sleep(1)
        await slow.report(end)
        await wait_all_tasks_blocked()
        assert one.sends.told[b"second"] == (ResponseCode.SUCCESS, 1.0)


async def test_slave_that_comes_back_early_alone_releases_no_send() -> None:
    """Two must have it, and the one that has it is connected twice: its old connection hangs."""
    async with story(in_sync_slaves=2) as one:
        other = await one.slave(OTHER_HOST)
        await other.report(0)
        peer = await one.slave()
        await peer.report(0)
        end = await one.start(b"first")
        await peer.read_log(end)
        await peer.report(end)
        again = await one.slave()
        await again.report(end)
        await wait_all_tasks_blocked()
        assert one.sends.told == {}
        await other.read_log(end)
        await other.report(end)
        await wait_all_tasks_blocked()
        assert one.sends.told == {b"first": (ResponseCode.SUCCESS, 0.0)}


async def test_two_slaves_of_one_host_are_two() -> None:
    async with story(in_sync_slaves=2) as one:
        peers = [await one.slave(), await one.slave()]
        for peer in peers:
            await peer.report(0)
            await wait_all_tasks_blocked()
        end = await one.start(b"first")
        for peer in peers:
            await peer.read_log(end)
            await peer.report(end)
        await wait_all_tasks_blocked()
        assert one.sends.told == {b"first": (ResponseCode.SUCCESS, 0.0)}
