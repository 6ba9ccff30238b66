"""The network in memory: bytes in order, faults on demand, under a virtual clock."""

import pytest
import trio
import trio.testing

from rocketrio_broker.testing.memory_network import (
    PIPE_SIZE,
    MemoryListener,
    MemoryNetwork,
    memory_stream_pair,
)
from rocketrio_protocol.errors import ClosedError, ConfigError, NotReachableError
from rocketrio_protocol.remoting.ports import Transport

SERVER, CLIENT, OTHER = "10.0.0.1", "10.0.0.9", "10.0.0.8"


async def connected(
    network: MemoryNetwork, client: str = CLIENT
) -> tuple[MemoryListener, Transport, Transport]:
    listener = await network.host(SERVER).listen(f"{SERVER}:0")
    dialled = await network.host(client).dial(listener.addr)
    return listener, dialled, await listener.accept()


async def read_some(transport: Transport) -> bytes:
    buffer = memoryview(bytearray(100))
    return bytes(buffer[: await transport.receive_into(buffer)])


async def test_trio_holds_the_stream_to_its_rules() -> None:
    async def make() -> tuple[trio.abc.Stream, trio.abc.Stream]:
        return memory_stream_pair()

    async def make_clogged() -> tuple[trio.abc.Stream, trio.abc.Stream]:
        ours, theirs = memory_stream_pair()
        await ours.send_all(bytes(PIPE_SIZE))
        await theirs.send_all(bytes(PIPE_SIZE))
        return ours, theirs

    await trio.testing.check_two_way_stream(make, make_clogged)


async def test_ends_know_each_other_by_address() -> None:
    network = MemoryNetwork()
    listener, dialled, accepted = await connected(network)
    assert accepted.local_addr == dialled.remote_addr == listener.addr
    assert accepted.remote_addr == dialled.local_addr
    assert dialled.local_addr.startswith(f"{CLIENT}:")


async def test_one_listener_an_address_until_it_is_closed() -> None:
    host = MemoryNetwork().host(SERVER)
    listener = await host.listen(f"{SERVER}:10911")
    with pytest.raises(ConfigError, match="the address is in use"):
        await host.listen(f"{SERVER}:10911")
    listener.close()
    with pytest.raises(ClosedError):
        await listener.accept()
    await host.listen(f"{SERVER}:10911")


async def test_partition_holds_bytes_back_and_healing_delivers_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    listener, dialled, accepted = await connected(network)
    other = await network.host(OTHER).dial(listener.addr)
    other_accepted = await listener.accept()
    network.partition(SERVER, CLIENT)
    await dialled.send_all(b"held")
    await accepted.send_all(b"held too")
    await other.send_all(b"passes")
    assert await read_some(other_accepted) == b"passes"
    with trio.move_on_after(100) as scope:
        await read_some(accepted)
    assert scope.cancelled_caught
    network.heal()
    assert await read_some(accepted) == b"held"
    assert await read_some(dialled) == b"held too"


async def test_silent_host_is_cut_off_from_all_but_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    listener, dialled, accepted = await connected(network)
    within = await network.host(SERVER).dial(listener.addr)
    within_accepted = await listener.accept()
    network.silence(SERVER)
    await within.send_all(b"inside")
    assert await read_some(within_accepted) == b"inside"
    await dialled.send_all(b"outside")
    with trio.move_on_after(100) as scope:
        await read_some(accepted)
    assert scope.cancelled_caught
    start = trio.current_time()
    with pytest.raises(NotReachableError, match="within 2 s"):
        await network.host(CLIENT).dial(listener.addr, timeout=2)
    assert trio.current_time() - start == 2


async def test_end_of_a_peer_is_not_seen_during_silence(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    _, dialled, accepted = await connected(network)
    network.silence(CLIENT)
    await dialled.aclose()
    with trio.move_on_after(100) as scope:
        await read_some(accepted)
    assert scope.cancelled_caught
    network.heal()
    assert await read_some(accepted) == b""


async def test_dial_that_waits_in_silence_succeeds_when_it_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    listener = await network.host(SERVER).listen(f"{SERVER}:0")
    network.silence(SERVER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(network.host(CLIENT).dial, listener.addr)
        await trio.sleep(1)
        network.heal()
    assert (await listener.accept()).local_addr == listener.addr


async def test_refused_address_fails_at_once_and_open_connections_continue() -> None:
    network = MemoryNetwork()
    listener, dialled, accepted = await connected(network)
    network.refuse(listener.addr)
    with pytest.raises(NotReachableError, match="refused"):
        await network.host(CLIENT).dial(listener.addr)
    await dialled.send_all(b"still here")
    assert await read_some(accepted) == b"still here"
    network.heal()
    await network.host(CLIENT).dial(listener.addr)


async def test_cut_breaks_the_connections_it_names_at_both_ends() -> None:
    network = MemoryNetwork()
    listener, dialled, accepted = await connected(network)
    other = await network.host(OTHER).dial(listener.addr)
    other_accepted = await listener.accept()
    network.cut(SERVER, CLIENT)
    for end in (dialled, accepted):
        with pytest.raises(NotReachableError):
            await read_some(end)
        with pytest.raises(NotReachableError):
            await end.send_all(b"x")
    await other.send_all(b"whole")
    assert await read_some(other_accepted) == b"whole"
    network.cut(SERVER)
    with pytest.raises(NotReachableError):
        await read_some(other)


async def test_cut_behind_a_partition_is_seen_when_it_heals(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    _, dialled, accepted = await connected(network)
    network.partition(SERVER, CLIENT)
    network.cut(SERVER)
    await dialled.send_all(b"into the dark")
    with trio.move_on_after(100) as scope:
        await read_some(dialled)
    assert scope.cancelled_caught
    network.heal()
    for end in (dialled, accepted):
        with pytest.raises(NotReachableError):
            await read_some(end)


async def test_one_way_partition_holds_one_direction_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    listener, dialled, accepted = await connected(network)
    network.partition(SERVER, CLIENT, one_way=True)
    await dialled.send_all(b"passes")
    await accepted.send_all(b"held")
    assert await read_some(accepted) == b"passes"
    with trio.move_on_after(100) as scope:
        await read_some(dialled)
    assert scope.cancelled_caught
    with pytest.raises(NotReachableError, match="within 2 s"):
        await network.host(CLIENT).dial(listener.addr, timeout=2)
    network.reconnect(CLIENT, SERVER)
    assert await read_some(dialled) == b"held"


async def test_reconnecting_one_host_leaves_other_faults(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    _, dialled, accepted = await connected(network)
    network.silence(SERVER)
    network.partition(SERVER, CLIENT)
    network.reconnect(SERVER)
    await dialled.send_all(b"held")
    with trio.move_on_after(100) as scope:
        await read_some(accepted)
    assert scope.cancelled_caught
    network.reconnect(SERVER, CLIENT)
    assert await read_some(accepted) == b"held"


async def test_delayed_bytes_arrive_later_and_in_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    listener, dialled, accepted = await connected(network)
    start = trio.current_time()
    network.delay(SERVER, CLIENT, 0.5)
    await dialled.send_all(b"first")
    await trio.sleep(0.2)
    await dialled.send_all(b"second")
    network.delay(SERVER, CLIENT, 0)
    await dialled.send_all(b"third")
    await dialled.aclose()
    assert await read_some(accepted) == b"first"
    assert trio.current_time() - start == pytest.approx(0.5)
    assert await read_some(accepted) == b"secondthird"
    assert trio.current_time() - start == pytest.approx(0.7)
    assert await read_some(accepted) == b""
    network.delay(SERVER, CLIENT, 1)
    await network.host(CLIENT).dial(listener.addr)
    assert trio.current_time() - start == pytest.approx(2.7)


async def test_half_closed_connection_ends_for_the_reader_and_swallows_for_the_writer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    _, dialled, accepted = await connected(network)
    await dialled.send_all(b"before")
    network.half_close(CLIENT, SERVER)
    await dialled.send_all(bytes(2 * PIPE_SIZE))
    assert await read_some(accepted) == b"before"
    assert await read_some(accepted) == b""
    await accepted.send_all(b"the other way")
    assert await read_some(dialled) == b"the other way"


async def test_closed_listener_breaks_connections_that_were_not_accepted() -> None:
    network = MemoryNetwork()
    listener = await network.host("10.0.0.1").listen("10.0.0.1:1")
    transport = await network.host("10.0.0.2").dial("10.0.0.1:1")
    listener.close()
    with pytest.raises(NotReachableError):
        await transport.receive_into(memoryview(bytearray(1)))
