"""A refusal of appends has an owner: no other part lifts it, and the first of several names the reason."""

from itertools import permutations

import pytest
from tests.support.stores import opened, put_of, stored

from rocketrio_broker.store.put_message import PutStatus
from rocketrio_broker.store.refusals import Refuser
from rocketrio_broker.testing.memory_disk import MemoryDisk

PAIRS = [
    pytest.param(one, other, id=f"{one.name} and {other.name}")
    for one, other in permutations(Refuser, 2)
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_refusal_holds_until_its_own_owner_lifts_it(one: Refuser, other: Refuser) -> None:
    async with opened(MemoryDisk()) as store:
        refusals = store.refusals
        refusals.refuse(one, "of the one")
        refusals.refuse(other, "of the other")
        first = "of the one" if list(Refuser).index(one) < list(Refuser).index(other) else None
        assert store.refusal == (first or "of the other")
        refusals.lift(other)
        refusals.lift(other)
        assert store.refusal == "of the one"
        assert not store.writable
        refused = store.append(put_of())
        assert (refused.status, refused.remark) == (
            PutStatus.SERVICE_NOT_AVAILABLE,
            "of the one",
        )
        refusals.lift(one)
        assert store.writable
        assert store.refusal == ""
        stored(store.append(put_of()))


@pytest.mark.parametrize("refuser", Refuser)
async def test_second_reason_of_one_part_replaces_its_first(refuser: Refuser) -> None:
    async with opened(MemoryDisk()) as store:
        store.refusals.refuse(refuser, "at first")
        store.refusals.refuse(refuser, "later")
        assert (store.refusal, store.refusals.of(refuser)) == ("later", "later")
        store.refusals.lift(refuser)
        assert (store.refusal, store.refusals.of(refuser)) == ("", "")


@pytest.mark.parametrize("refuser", [one for one in Refuser if one is not Refuser.REPLICATION])
async def test_end_of_replication_lifts_no_other_refusal(refuser: Refuser) -> None:
    async with opened(MemoryDisk()) as store:
        store.refusals.refuse(refuser, "held")
        store.begin_replication()
        store.end_replication()
        assert store.refusal == "held"
        store.refusals.lift(refuser)


@pytest.mark.parametrize("refuser", [one for one in Refuser if one is not Refuser.DISK])
async def test_room_on_the_disk_lifts_no_other_refusal(refuser: Refuser) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        store.refusals.refuse(refuser, "held")
        disk.used = 0.95
        await store._retention.check_disk()
        assert store.refusal == "held"
        assert "95.0 % full" in store.refusals.of(Refuser.DISK)
        disk.used = 0.5
        await store._retention.check_disk()
        assert store.refusals.of(Refuser.DISK) == ""
        assert store.refusal == "held"
        store.refusals.lift(refuser)
