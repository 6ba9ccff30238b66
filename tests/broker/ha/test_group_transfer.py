"""What counts as "on enough slaves": by hand, and as the reports of slaves in raw bytes make it."""

import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.support.replication import MASTER_HA, OTHER_SLAVE, SLAVE, fill, master
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha.group_transfer import GroupTransferService

A, B, C = "10.0.0.11:1", "10.0.0.12:1", "10.0.0.13:1"


def service(in_sync_slaves: int = 1, *, fallbehind_max: int = 1000) -> GroupTransferService:
    return GroupTransferService(
        is_required=True,
        in_sync_slaves=in_sync_slaves,
        slave_fallbehind_max=fallbehind_max,
        max_physical_offset=10_000,
    )


def reported(group: GroupTransferService, addr: str, offset: int, *, is_first: bool = False) -> int:
    group.slave_reported(addr, offset, is_first=is_first)
    return group.replicated.value


def test_one_slave_is_as_good_as_its_report() -> None:
    group = service()
    assert group.replicated.value == 0
    assert reported(group, A, 100) == 100
    assert reported(group, A, 250) == 250
    assert group.last_slave == A


def test_the_best_of_several_slaves_counts_where_one_is_enough() -> None:
    group = service()
    reported(group, A, 100)
    assert reported(group, B, 300) == 300
    assert group.last_slave == B
    assert reported(group, A, 200) == 300
    assert group.last_slave == B


def test_the_second_best_counts_where_two_are_required() -> None:
    group = service(2)
    assert reported(group, A, 900) == 0
    assert reported(group, B, 300) == 300
    assert reported(group, C, 500) == 500
    assert group.last_slave == C


def test_a_slave_that_leaves_lowers_what_counts() -> None:
    group = service()
    reported(group, A, 100)
    reported(group, B, 300)
    group.slave_left(B)
    assert group.replicated.value == 100
    group.slave_left(A)
    assert group.replicated.value == 0
    group.slave_left(A)
    assert group.replicated.value == 0


async def test_waiting_send_is_released_by_the_report_that_covers_it(
    autojump_clock: MockClock,
) -> None:
    group = service()
    done: list[int] = []

    async def wait(end_offset: int) -> None:
        await group.replicated.wait_reached(end_offset)
        done.append(end_offset)

    async with trio.open_nursery() as nursery:
        for end_offset in (300, 100, 200):
            nursery.start_soon(wait, end_offset)
        await wait_all_tasks_blocked()
        reported(group, A, 200)
        await wait_all_tasks_blocked()
        assert sorted(done) == [100, 200]
        group.slave_left(A)
        reported(group, B, 299)
        await wait_all_tasks_blocked()
        assert len(done) == 2
        reported(group, B, 300)


def test_a_slave_is_waited_for_only_near_enough_to_the_end() -> None:
    group = service(fallbehind_max=1000)
    assert group.available_until <= 10
    reported(group, A, 500)
    assert group.available_until > 1499
    assert group.available_until <= 1500
    group.slave_left(A)
    assert group.available_until <= 600


def test_the_last_slave_that_is_required_decides_whether_to_wait() -> None:
    group = service(2, fallbehind_max=1000)
    reported(group, A, 5000)
    assert group.available_until <= 5100
    reported(group, B, 4000)
    assert group.available_until <= 5100
    reported(group, B, 4200)
    assert group.available_until > 5100


def test_bytes_that_were_not_sent_count_only_after_later_ones_were() -> None:
    group = service()  # Its log ended at 10,000 when it began to serve.
    assert reported(group, A, 10_500, is_first=True) == 10_000
    assert reported(group, A, 10_500, is_first=True) == 10_000
    group.transfer_sent(10_600)
    assert reported(group, A, 10_600) == 10_600


def test_a_slave_that_comes_back_counts_with_what_it_was_sent_before() -> None:
    group = service()
    group.transfer_sent(10_600)
    reported(group, A, 10_550)
    group.slave_left(A)
    assert reported(group, B, 10_600, is_first=True) == 10_600


def test_after_a_change_of_role_slaves_may_have_what_the_log_has() -> None:
    group = service()
    group.change_role(is_required=False, max_physical_offset=20_000)
    assert not group.is_required
    assert reported(group, A, 20_000, is_first=True) == 20_000


# --- a slave that comes back before its old connection is dropped ------------------------------

A_AGAIN, A_NEIGHBOUR = "10.0.0.11:2", "10.0.0.11:3"


def test_a_slave_that_came_back_is_not_two_slaves() -> None:
    group = service(2)
    reported(group, A, 500)
    assert reported(group, A_AGAIN, 500) == 0
    assert group.statistics().live_slaves == 1
    assert reported(group, A_AGAIN, 900) == 0
    assert reported(group, B, 700) == 700
    group.slave_left(A)
    assert group.replicated.value == 700
    assert group.statistics().live_slaves == 2


def test_an_older_connection_that_speaks_is_another_slave() -> None:
    group = service(2)
    reported(group, A, 500)
    reported(group, A_NEIGHBOUR, 800)
    assert reported(group, A, 600) == 600
    assert group.statistics().live_slaves == 2


def test_a_slave_in_doubt_is_waited_for() -> None:
    group = service(2, fallbehind_max=1000)
    reported(group, A, 500)
    reported(group, A_NEIGHBOUR, 800)
    assert group.replicated.value == 0
    assert group.available_until > 1499


def test_the_connection_in_doubt_may_be_the_one_that_stays() -> None:
    group = service()
    reported(group, A, 500)
    reported(group, A_AGAIN, 100)
    group.slave_left(A_AGAIN)
    assert group.replicated.value == 0
    assert reported(group, A, 500) == 500


@given(
    required=st.integers(1, 3),
    events=st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.one_of(st.none(), st.integers(0, 10_000)))
    ),
)
def test_replicated_offset_is_the_kth_best_of_the_connected_slaves(
    required: int, events: list[tuple[str, int | None]]
) -> None:
    group, there = service(required), dict[str, int]()
    for addr, offset in events:
        if offset is None:
            group.slave_left(addr)
            there.pop(addr, None)
        else:
            group.slave_reported(addr, offset, is_first=False)
            there[addr] = offset
        at_least = sorted(there.values(), reverse=True)[required - 1 : required]
        assert group.replicated.value == (at_least[0] if at_least else 0)
        assert group.statistics().live_slaves == len(there)


# --- with connections --------------------------------------------------------------------------


async def test_connection_does_not_count_before_its_first_report(autojump_clock: MockClock) -> None:
    async with master(messages=3) as ours:
        group = ours.service.group_transfer
        peer = await ours.raw_slave()
        await wait_all_tasks_blocked()
        assert group.statistics().live_slaves == 0
        await peer.report(0)
        await wait_all_tasks_blocked()
        assert group.statistics().live_slaves == 1


async def test_the_end_of_a_connection_takes_back_what_it_reported(
    autojump_clock: MockClock,
) -> None:
    async with master(messages=3) as ours:
        group, end = ours.service.group_transfer, ours.store.max_physical_offset
        good, other = await ours.raw_slave(SLAVE), await ours.raw_slave(OTHER_SLAVE)
        await good.report(end)
        await other.report(100)
        await wait_all_tasks_blocked()
        assert group.replicated.value == end
        await good.transport.aclose()
        await wait_all_tasks_blocked()
        assert group.replicated.value == 100


async def test_a_silent_slave_counts_until_it_is_dropped(autojump_clock: MockClock) -> None:
    async with master(messages=3) as ours:
        group, end = ours.service.group_transfer, ours.store.max_physical_offset
        peer = await ours.raw_slave()
        await peer.report(end)
        await trio.sleep(19.9)
        assert group.replicated.value == end
        await trio.sleep(0.2)
        assert group.replicated.value == 0


async def test_report_beyond_what_was_sent_releases_nothing(
    autojump_clock: MockClock,
) -> None:
    async with master(messages=3) as ours:
        group, before = ours.service.group_transfer, ours.store.max_physical_offset
        end = fill(ours.store, 1)
        peer = await ours.raw_slave()
        await peer.report(end)
        await wait_all_tasks_blocked()
        assert group.replicated.value == before
        later = fill(ours.store, 1)
        await peer.read_log(later)
        await peer.report(later)
        await wait_all_tasks_blocked()
        assert group.replicated.value == later


async def test_a_refused_slave_does_not_count(autojump_clock: MockClock) -> None:
    async with master(messages=3) as ours:
        peer = await ours.raw_slave()
        await peer.report(ours.store.max_physical_offset + 1)
        await peer.wait_ended()
        assert ours.service.group_transfer.statistics().live_slaves == 0


async def test_statistics_name_the_slave_that_is_waited_for(autojump_clock: MockClock) -> None:
    async with master(messages=3) as ours:
        peer = await ours.raw_slave()
        await peer.report(ours.store.max_physical_offset)
        await wait_all_tasks_blocked()
        numbers = ours.service.statistics().group_transfer
        assert numbers.replicated_offset == ours.store.max_physical_offset
        assert (numbers.last_slave or "").startswith(SLAVE)
        assert ours.service.ha_address == MASTER_HA
