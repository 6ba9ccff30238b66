"""What is known of a master stays known, and a change wakes who waits for it."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha.master_address import MasterAddress


async def test_waits_until_an_address_is_known(autojump_clock: MockClock) -> None:
    address = MasterAddress()
    found: list[str] = []

    async def look() -> None:
        found.append(await address.wait_known())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        address.update(None)
        await wait_all_tasks_blocked()
        assert found == []
        address.update("10.0.0.1:10912")
    assert found == ["10.0.0.1:10912"]


async def test_wakes_for_another_address_only(autojump_clock: MockClock) -> None:
    address = MasterAddress("a:1")
    with trio.move_on_after(1) as waiting:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(address.wait_other_than, "a:1")
            await wait_all_tasks_blocked()
            address.update("a:1")
            address.update(None)
            await trio.sleep(0.5)
            assert address.value == "a:1"
            address.update("b:2")
    assert not waiting.cancelled_caught
    assert trio.current_time() == 0.5


async def test_address_that_differs_already_needs_no_wait(autojump_clock: MockClock) -> None:
    await MasterAddress("b:2").wait_other_than("a:1")
