"""An intruder between a slave and its master passes on what they say, and adds or changes something.

Each attack is first played on an open link, where it works: what stops it with a secret is the secret.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from tests.support.caller import Caller, caller_of
from tests.support.replication import REPORT, log_bytes, secret_file

from rocketrio_broker.broker import Broker, open_broker
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.namesrv.routes import RouteInfoManager
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_protocol.bodies.registration import (
    RegisterBrokerBody,
    body_crc32,
    encode_register_body,
)
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.cluster import RegisterBrokerRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT, Dial, Transport, join_addr

SLAVE_HOST, STRANGER = "10.0.0.11", "10.0.0.66"
STRANGER_HA = f"{STRANGER}:7777"
BODY = b"one hundred to Anna"
FORGED = b"one million to Eve.."


@attrs.define(eq=False)
class Stranger:
    """Passes on every connection; what it does beside that is up to the test."""

    dial: Dial
    target: str
    change: Callable[[bytes], bytes] = bytes
    """What becomes of bytes that the master sends."""
    slave_said: list[bytes] = attrs.Factory(list)
    to_master: list[Transport] = attrs.Factory(list)
    """Its ends of the connections to the master."""

    async def serve(self, transport: Transport) -> None:
        onward = await self.dial(self.target)
        self.to_master.append(onward)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_on, transport, onward, self._listen, nursery.cancel_scope)
            nursery.start_soon(self._pass_on, onward, transport, self._change, nursery.cancel_scope)
        for end in (transport, onward):
            await end.aclose()

    def _listen(self, data: bytes) -> bytes:
        self.slave_said.append(data)
        return data

    def _change(self, data: bytes) -> bytes:
        return self.change(data)

    async def _pass_on(
        self,
        source: Transport,
        sink: Transport,
        change: Callable[[bytes], bytes],
        scope: trio.CancelScope,
    ) -> None:
        buffer = memoryview(bytearray(1 << 20))
        try:
            while size := await source.receive_into(buffer):
                await sink.send_all(change(bytes(buffer[:size])))
        except Error:
            pass
        scope.cancel()


@attrs.define
class Relayed:
    cluster: EmbeddedCluster
    stranger: Stranger
    slave: Broker
    call: Caller

    @property
    def master(self) -> Broker:
        return self.cluster.master.broker


@asynccontextmanager
async def stranger_at(cluster: EmbeddedCluster) -> AsyncGenerator[Stranger]:
    """A stranger who serves at his own address, and passes on to the master's replication port."""
    stranger = Stranger(cluster.dial_from(STRANGER), cluster.master.broker.ha_address)
    listener = await cluster.listen_on(STRANGER)(STRANGER_HA)
    async with trio.open_nursery() as nursery:

        async def accept() -> None:
            while True:
                nursery.start_soon(stranger.serve, await listener.accept())

        nursery.start_soon(accept)
        yield stranger
        nursery.cancel_scope.cancel()


def slave_config(cluster: EmbeddedCluster, **settings: Any) -> BrokerConfig:
    return BrokerConfig(
        role="slave",
        broker_id=1,
        listen=join_addr(SLAVE_HOST, 10911),
        namesrv=cluster.name_server.addr,
        data=Path("/slave"),
        **settings,
    )


@asynccontextmanager
async def relayed(**settings: Any) -> AsyncGenerator[Relayed]:
    """A synchronous pair that has replicated a message through a stranger on the way between them."""
    async with (
        EmbeddedCluster(role="sync-master", slave_timeout=2.0, **settings) as cluster,
        stranger_at(cluster) as stranger,
        caller_of(cluster) as call,
    ):
        host = cluster.memory_network.host(SLAVE_HOST)

        async def dial(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
            """The slave dials its master, and its packets go to the stranger."""
            is_master = addr == cluster.master.broker.ha_address
            return await host.dial(STRANGER_HA if is_master else addr, timeout=timeout)

        async with open_broker(
            slave_config(cluster, **settings),
            disk=cluster.make_disk(),
            dial=dial,
            listen=host.listen,
            wall_clock=cluster.wall_clock,
        ) as slave:
            await trio.sleep(3)
            pair = Relayed(cluster, stranger, slave, call)
            answer = await call.send(pair.master.address, BODY)
            assert answer.code == ResponseCode.SUCCESS
            yield pair


@pytest.fixture(params=["open", "secret"])
def link(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of both brokers."""
    if request.param == "open":
        return {}
    return {"ha_secret_file": secret_file(tmp_path / "secret")}


def raw_report(stranger: Stranger, end: int) -> bytes:
    return REPORT.pack(end)


def sealed_report(stranger: Stranger, end: int) -> bytes:
    """A frame as the slave's, with a tag as long as its."""
    return (8).to_bytes(4) + REPORT.pack(end) + stranger.slave_said[-1][-16:]


def repeated(stranger: Stranger, end: int) -> bytes:
    return stranger.slave_said[-1]


def changed(stranger: Stranger, end: int) -> bytes:
    """The slave's last report with another number in it."""
    return sealed_report(stranger, end)[:12] + stranger.slave_said[-1][12:]


@pytest.mark.parametrize(
    ("link", "forge"),
    [("open", raw_report)]
    + [("secret", forge) for forge in (raw_report, sealed_report, repeated, changed)],
    indirect=["link"],
)
async def test_forged_acknowledgement_releases_no_send(
    link: dict[str, Any], forge: Callable[[Stranger, int], bytes]
) -> None:
    async with relayed(**link) as pair:
        # The slave gets nothing more.
        pair.stranger.change = lambda data: b""
        codes: list[int] = []

        async def send() -> None:
            codes.append((await pair.call.send(pair.master.address, BODY)).code)

        departed = pair.master.ha_service.departed.value
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.sleep(0.5)
            end = pair.master.store.max_physical_offset
            await pair.stranger.to_master[-1].send_all(forge(pair.stranger, end))
        assert pair.slave.store.max_physical_offset < end
        if not link:
            assert codes == [ResponseCode.SUCCESS]
            return
        assert codes != [ResponseCode.SUCCESS]
        assert pair.master.ha_service.departed.value > departed
        refusal = pair.master.ha_service.statistics().last_refusal
        assert "not what the other end has sent, and is refused" in (refusal or "")


async def test_record_that_the_master_did_not_send_is_not_stored(link: dict[str, Any]) -> None:
    async with relayed(**link) as pair:
        pair.stranger.change = lambda data: data.replace(BODY, FORGED[: len(BODY)])
        answer = await pair.call.send(pair.master.address, BODY)
        await trio.sleep(3)
        ours, theirs = log_bytes(pair.master.store), log_bytes(pair.slave.store)
        if not link:
            assert FORGED[: len(BODY)] in theirs
            return
        assert answer.code != ResponseCode.SUCCESS
        assert ours.startswith(theirs)
        assert len(theirs) < len(ours)
        assert pair.slave.slave is not None
        problem = pair.slave.slave.statistics().log.last_problem
        assert "not what the other end has sent" in (problem or "")
        # As soon as the intruder is gone it goes on.
        pair.stranger.change = bytes
        await pair.slave.store.appended.wait_reached(len(ours))
        assert log_bytes(pair.slave.store) == ours


def twice() -> Callable[[bytes], bytes]:
    return lambda data: data + data


def swapped() -> Callable[[bytes], bytes]:
    """The next two pieces in the other order."""
    held: list[bytes] = []

    def change(data: bytes) -> bytes:
        held.append(data)
        if len(held) == 1:
            return b""
        return data + held[0] if len(held) == 2 else data

    return change


def first_left_out() -> Callable[[bytes], bytes]:
    held: list[bytes] = []

    def change(data: bytes) -> bytes:
        held.append(data)
        return data if len(held) > 1 else b""

    return change


@pytest.mark.parametrize("attack", [twice, swapped, first_left_out])
async def test_transfers_in_another_order_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, attack: Callable[[], Callable[[bytes], bytes]]
) -> None:
    async with relayed(ha_secret_file=secret_file(tmp_path / "secret")) as pair:
        pair.stranger.change = attack()
        for _ in range(3):
            await pair.call.send(pair.master.address, BODY)
        assert "not what the other end has sent" in caplog.text
        pair.stranger.change = bytes
        await pair.slave.store.appended.wait_reached(pair.master.store.max_physical_offset)
        assert log_bytes(pair.slave.store) == log_bytes(pair.master.store)


async def test_stranger_that_the_name_server_lists_as_master_is_not_followed(
    link: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave dials the replication address that any host may register with the master's address."""
    # A name server that believes everybody, as Apache's.
    monkeypatch.setattr(RouteInfoManager, "_check_may_change", lambda *_: None)
    async with (
        EmbeddedCluster(**link) as cluster,
        stranger_at(cluster) as stranger,
        caller_of(cluster) as call,
    ):
        master = cluster.master.broker
        await call.send(master.address, BODY)
        body = encode_register_body(RegisterBrokerBody(master.state.topics.registered_wrapper()))
        header = RegisterBrokerRequestHeader(
            "broker-a",
            master.address,
            "DefaultCluster",
            STRANGER_HA,
            0,
            body_crc32=body_crc32(body),
        )
        await call.pool.call(cluster.name_servers[0], header, body)
        host = cluster.memory_network.host(SLAVE_HOST)
        async with open_broker(
            slave_config(cluster, **link),
            disk=cluster.make_disk(),
            dial=host.dial,
            listen=host.listen,
            wall_clock=cluster.wall_clock,
        ) as slave:
            await trio.sleep(5)
            assert stranger.to_master
            assert slave.slave is not None
            if not link:
                assert slave.store.max_physical_offset
                return
            assert slave.store.max_physical_offset == 0
            problem = slave.slave.statistics().log.last_problem or ""
            assert f"it is at '{master.ha_address}', and {STRANGER_HA} was dialled" in problem
            # The master registers again; the slave finds it.
            await slave.store.appended.wait_reached(master.store.max_physical_offset)
            assert log_bytes(slave.store) == log_bytes(master.store)
