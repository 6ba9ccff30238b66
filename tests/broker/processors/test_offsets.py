"""Apache's answers to these codes are compared in tests/broker/test_replay_broker.py; here are the rules."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import msgspec
import pytest
import trio
from tests.broker.processors.asking import Asking, asking
from trio.testing import MockClock

from rocketrio_broker.embedded import SMALL_STORE
from rocketrio_broker.offsets import manager as consumer_offsets
from rocketrio_broker.offsets.version import LEAD_LIMIT
from rocketrio_broker.processors.offsets import CLAIM_LIMIT
from rocketrio_broker.role.standing import CLAIMING, LEADING
from rocketrio_protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig, TopicConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import offset
from rocketrio_protocol.commands.offset import OffsetResponseHeader, TimestampResponseHeader
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.names import retry_topic
from rocketrio_protocol.reader_place import place_text

COMMIT_AND_SUBSCRIPTION = 1 | 4


@asynccontextmanager
async def knowing_t(**settings: Any) -> AsyncGenerator[Asking]:
    """All brokers know the topic T, which has two queues and no message yet."""
    async with asking(**settings) as one:
        for member in (one.cluster.master, *one.cluster.slaves):
            member.broker.state.topics.update(TopicConfig("T", 2, 2))
        yield one


async def committed(one: Asking, *, zero: bool | None = None, queue_id: int = 0) -> int | None:
    """The group's offset; None when the broker says that there is none."""
    answer = await one.ask(offset.QueryConsumerOffsetRequestHeader("G", "T", queue_id, zero))
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    assert answer.code == ResponseCode.SUCCESS
    return answer.header(OffsetResponseHeader).offset


async def test_a_commit_is_read_again_and_the_last_one_wins(autojump_clock: MockClock) -> None:
    async with knowing_t() as one:
        for value in (5, 3):
            commit = offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, value)
            assert (await one.ask(commit)).code == ResponseCode.SUCCESS
            assert await committed(one) == value
            assert await committed(one, zero=False) == value


@pytest.mark.parametrize(("lasts", "waits"), [(1.0, 1.0), (10.0, CLAIM_LIMIT)])
async def test_a_query_waits_while_its_broker_claims_to_lead(
    autojump_clock: MockClock, lasts: float, waits: float
) -> None:
    """It joins its slaves' offsets at the end of that; but a member waits only so long for an answer."""
    async with knowing_t() as one:
        standing, offsets = one.broker.state.standing, one.broker.state.consumer_offsets

        async def end_claim() -> None:
            await trio.sleep(lasts)
            offsets.commit_offset("G", "T", 0, 7)
            standing.now = LEADING
            standing.changes.advance(standing.changes.value + 1)

        offsets.commit_offset("G", "T", 0, 5)
        standing.now = CLAIMING
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_claim)
            began = trio.current_time()
            assert await committed(one) == (7 if lasts < CLAIM_LIMIT else 5)
            assert trio.current_time() == began + waits


async def test_commit_by_5_x_for_a_group_that_is_not_known_is_refused(
    autojump_clock: MockClock,
) -> None:
    asked = RemotingCommand.request(offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 5))
    async with knowing_t() as one:
        answer = await one.ask(attrs.evolve(asked, version=479))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert not one.broker.state.consumer_offsets.offset_table
        one.broker.state.groups.find("G")
        assert (await one.ask(attrs.evolve(asked, version=479))).code == ResponseCode.SUCCESS
        assert await committed(one) == 5


async def test_commit_by_5_x_of_a_member_whose_group_could_not_be_kept_is_taken(
    autojump_clock: MockClock,
) -> None:
    asked = RemotingCommand.request(offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 5))
    async with knowing_t(groups_limit=1) as one:
        data = ConsumerData("G", subscription_data_set=[SubscriptionData("T")])
        await one.beat(HeartbeatData("c1", [data]))
        assert "G" not in one.broker.state.groups.subscription_group_table
        assert (await one.ask(attrs.evolve(asked, version=479))).code == ResponseCode.SUCCESS
        assert await committed(one) == 5


async def test_impossible_commit_is_refused(autojump_clock: MockClock) -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"queue_id": -1}, "queue -1 of T; the first queue is 0"),
        ({"commit_offset": -1}, "-1 on queue 0 of T; the first offset is 0"),
        ({"topic": "a@b"}, "topic 'a@b' contains illegal characters"),
        ({"topic": ""}, "topic is blank"),
        ({"topic": "T" * 128}, "longer than 127"),
        ({"topic": "%RETRY%a@b"}, "'a@b' contains illegal characters"),
        ({"consumer_group": "a@b"}, "group 'a@b' contains illegal characters"),
        ({"consumer_group": " "}, "group is blank"),
    ]
    right = offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 5)
    async with asking() as one:
        for fields, why in cases:
            answer = await one.ask(msgspec.structs.replace(right, **fields))  # type: ignore[arg-type]
            assert answer.code == ResponseCode.SYSTEM_ERROR, fields
            assert answer.remark is not None
            assert why in answer.remark
            assert not one.broker.state.consumer_offsets.offset_table, fields


async def test_a_commit_is_taken_for_the_retry_topic_of_a_long_group(
    autojump_clock: MockClock,
) -> None:
    group = "G" * 255
    async with asking() as one:
        one.broker.state.groups.update(SubscriptionGroupConfig(group))  # From a broker of 5.x.
        commit = offset.UpdateConsumerOffsetRequestHeader(group, retry_topic(group), 0, 5)
        assert (await one.ask(commit)).code == ResponseCode.SUCCESS


async def test_new_group_starts_a_young_queue_at_0_unless_it_asks_for_not_found(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        assert await committed(one) == 0
        one.put("T", b"a")
        assert await committed(one) == 0
        assert await committed(one, zero=True) == 0
        assert await committed(one, zero=False) is None


async def test_a_new_group_on_a_queue_that_has_left_memory_has_no_offset(
    autojump_clock: MockClock,
) -> None:
    store = attrs.evolve(SMALL_STORE, access_message_in_memory_max_bytes=0)
    async with asking(store=store) as one:
        assert await committed(one) == 0
        one.put("T", b"a")
        assert await committed(one) is None


async def bounds(one: Asking, topic: str, queue_id: int = 0) -> tuple[int, int]:
    low = await one.ask(offset.GetMinOffsetRequestHeader(topic, queue_id))
    high = await one.ask(offset.GetMaxOffsetRequestHeader(topic, queue_id))
    return low.header(OffsetResponseHeader).offset, high.header(OffsetResponseHeader).offset


async def test_bounds_of_a_queue(autojump_clock: MockClock) -> None:
    async with asking() as one:
        one.broker.state.topics.update(TopicConfig("T", 2, 2))
        one.put("T", b"a", b"b", b"c")
        assert await bounds(one, "T") == (0, 3)
        assert await bounds(one, "T", 1) == (0, 0)
        assert await bounds(one, "T", 2) == (-1, 0)
        assert await bounds(one, "U") == (-1, 0)


async def test_offsets_by_store_time(autojump_clock: MockClock) -> None:
    async with asking() as one:
        times = []
        for body in (b"a", b"b", b"c"):
            times.append(one.cluster.wall_clock.now_ms())
            one.put("T", body)
            await trio.sleep(10)

        async def search(timestamp: int, boundary: str | None = None, version: int = 407) -> int:
            header = offset.SearchOffsetRequestHeader("T", 0, timestamp, boundary)
            request = RemotingCommand.request(header)
            request.version = version
            return (await one.ask(request)).header(OffsetResponseHeader).offset

        assert [await search(time) for time in times] == [0, 1, 2]
        assert await search(times[1] + 1, "LOWER") == 2
        assert await search(times[2] + 1, "LOWER") == 3
        assert await search(times[1] + 1, "UPPER") == 1
        # Without a boundary it is the nearest in 4.x, in 5.x none that is older.
        assert [await search(times[1] + 1, version=version) for version in (407, 479)] == [1, 2]
        earliest = await one.ask(offset.GetEarliestMsgStoretimeRequestHeader("T", 0))
        assert earliest.header(TimestampResponseHeader).timestamp == times[0]
        none = await one.ask(offset.GetEarliestMsgStoretimeRequestHeader("U", 0))
        assert none.header(TimestampResponseHeader).timestamp == -1


async def test_slave_takes_commits(autojump_clock: MockClock) -> None:
    async with knowing_t(slaves=1) as one:
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        await slave.ask(offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 5))
        assert await committed(slave) == 5


async def test_offset_reported_by_a_slave_for_an_empty_queue_is_kept(
    autojump_clock: MockClock,
) -> None:
    """Otherwise it tells it again every second, and never counts as level with its master."""
    async with knowing_t() as one:
        told = offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 0, "0.0")
        answer = (await one.ask(told)).header(offset.UpdateConsumerOffsetResponseHeader)
        assert (answer.outcome, answer.standing_offset) == ("stored", 0)
        assert await committed(one) == 0
        # What has no messages here at all may be of another topic.
        beyond = offset.UpdateConsumerOffsetRequestHeader("G", "T", 1, 7, "0.0")
        await one.ask(beyond)
        assert await committed(one, queue_id=1, zero=False) is None
        # A group that has begun here has not read on in another log: it would report that every second as well.
        answer = await one.ask(offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 7, "1.1"))
        stands = answer.header(offset.UpdateConsumerOffsetResponseHeader)
        assert (stands.generation, stands.standing_offset) == ("1.2", 0)


async def test_slave_takes_no_commit_of_another_branch(autojump_clock: MockClock) -> None:
    """Its log has other epochs where that member's was; one that it has not heard of yet may well be its master's."""
    async with asking(slaves=1) as one:
        one.put("T", b"x")
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        await trio.sleep(5)
        (line,) = slave.broker.store.epochs.lines

        async def outcome(epoch: str) -> str | None:
            header = offset.UpdateConsumerOffsetRequestHeader(
                "G", "T", 0, 5, "0.0", "1@member", epoch=epoch
            )
            answer = await slave.ask(header)
            return answer.header(offset.UpdateConsumerOffsetResponseHeader).outcome

        assert await outcome(f"{line.number}.0.another.") == "cut"
        assert await committed(slave, zero=False) is None
        assert await outcome(f"{line.number + 1}.0.another.") == "stored"
        assert await outcome(f"{line.number}.0.{line.id}.") == "stored"


async def claim(one: Asking, client_id: str) -> offset.QueryConsumerOffsetResponseHeader:
    query = offset.QueryConsumerOffsetRequestHeader("G", "T", 0, False, client_id)
    return (await one.ask(query)).header(offset.QueryConsumerOffsetResponseHeader)


async def commit(
    one: Asking,
    value: int,
    claimed: offset.QueryConsumerOffsetResponseHeader,
    *,
    seek: bool | None = None,
) -> tuple[str | None, str | None, int | None]:
    header = offset.UpdateConsumerOffsetRequestHeader(
        "G", "T", 0, value, claimed.generation, claimed.ownership, seek
    )
    answer = (await one.ask(header)).header(offset.UpdateConsumerOffsetResponseHeader)
    return answer.outcome, answer.generation, answer.standing_offset


async def test_client_without_a_claim_gets_the_answers_of_apache(autojump_clock: MockClock) -> None:
    async with knowing_t() as one:
        stored = await one.ask(offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 5))
        assert stored.ext_fields == {}
        query = offset.QueryConsumerOffsetRequestHeader("G", "T", 0)
        assert (await one.ask(query)).ext_fields == {"offset": "5"}
        query = offset.QueryConsumerOffsetRequestHeader("G", "T", 1, False)
        assert (await one.ask(query)).ext_fields == {}


async def test_claim_without_a_commit_is_answered(
    autojump_clock: MockClock,
) -> None:
    async with knowing_t() as one:
        first = await claim(one, "me")
        assert (first.offset, first.generation) == (None, "0.0")
        assert await commit(one, 7, first) == ("stored", "0.0", 7)
        again = await claim(one, "me")
        assert (again.offset, again.generation) == (7, "0.0")
        assert again.ownership != first.ownership


async def test_late_commit_of_a_former_owner_does_not_lower_the_offset(
    autojump_clock: MockClock,
) -> None:
    async with knowing_t() as one:
        old = await claim(one, "old")
        await commit(one, 100, old)
        new = await claim(one, "new")
        await commit(one, 120, new)
        assert await commit(one, 110, old) == ("stored", "0.0", 120)
        assert await commit(one, 50, old, seek=True) == ("unclaimed", "0.0", 120)
        assert await commit(one, 50, new, seek=True) == ("stored", "0.1", 50)
        assert await commit(one, 130, old) == ("unclaimed", "0.1", 50)
        assert await committed(one) == 50


async def test_owner_continues_after_a_plain_lowering_that_it_does_not_know(
    autojump_clock: MockClock,
) -> None:
    """As when a Java member's last commit comes after ours took its queue over."""
    async with knowing_t() as one:
        owner = await claim(one, "me")
        await commit(one, 100, owner)
        await one.ask(offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 90))
        assert await committed(one) == 90
        assert await commit(one, 110, owner) == ("stored", "0.1", 110)


async def test_reset_overrules_running_consumers_until_they_know_it(
    autojump_clock: MockClock,
) -> None:
    async with knowing_t() as one:
        one.put("T", *[b"x"] * 10)
        owner = await claim(one, "me")
        await commit(one, 100, owner)
        reset = offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 10, reset=True)
        assert (await one.ask(reset)).ext_fields["rocketrioGeneration"] == "1.0"
        assert await commit(one, 110, owner) == ("reset", "1.0", 10)
        assert await commit(one, 50, owner, seek=True) == ("reset", "1.0", 10)
        again = await claim(one, "me")
        assert again.offset == 10
        assert await commit(one, 20, again) == ("stored", "1.0", 20)


@pytest.mark.parametrize(
    ("at_slave", "number", "outcome"),
    [(False, 1, "reset"), (False, 3, "stored"), (True, 3, "reset")],
)
async def test_reset_of_a_queue_without_an_offset_overrules_members_that_may_have_read_on(
    at_slave: bool, number: int, outcome: str, autojump_clock: MockClock
) -> None:
    """A slave may not know yet what they committed before their master died. The next master may not know it either."""
    async with knowing_t(slaves=1) as one:
        one.put("T", b"a", b"b", b"c")
        if at_slave:
            one = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        owner = await claim(one, "me")
        reset = offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, number, reset=True)
        assert (await one.ask(reset)).code == ResponseCode.SUCCESS
        assert (await commit(one, 3, owner))[0] == outcome


async def test_reset_beyond_the_end_of_the_queue_is_refused_by_a_master_alone(
    autojump_clock: MockClock,
) -> None:
    """The number is from a log that was longer: the group would skip what comes next."""
    async with knowing_t(slaves=1) as one:
        one.put("T", b"a", b"b", b"c")
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        beyond, last = (
            offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, number, reset=True)
            for number in (4, 3)
        )
        refused = await one.ask(beyond)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark is not None
        assert "queue 0 of T ends at 3" in refused.remark
        assert await committed(one, zero=False) is None
        assert (await slave.ask(beyond)).code == ResponseCode.SUCCESS
        assert (await one.ask(last)).code == ResponseCode.SUCCESS
        assert await committed(one) == 3


async def test_offset_of_a_slave_beyond_the_end_of_the_queue_is_limited(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        one.put("T", b"a", b"b", b"c")
        for queue_id, told, stands in ((0, 2, 2), (0, 9, 3), (1, 4, None)):
            header = offset.UpdateConsumerOffsetRequestHeader("G", "T", queue_id, told, "0.0")
            await one.ask(header)
            assert await committed(one, zero=False, queue_id=queue_id) == stands


async def test_slave_takes_an_offset_of_another_slave_beyond_its_own_end(
    autojump_clock: MockClock,
) -> None:
    """A former master lacks what members have read at the next one, and does not decide what was lost."""
    async with asking(slaves=1) as one:
        one.put("T", b"a", b"b")
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        await trio.sleep(5)
        (line,) = slave.broker.store.epochs.lines

        async def told(value: int, epoch: str) -> tuple[int | None, str | None, int | None]:
            header = offset.UpdateConsumerOffsetRequestHeader(
                "G", "T", 0, value, "0.0", epoch=epoch
            )
            answer = (await slave.ask(header)).header(offset.UpdateConsumerOffsetResponseHeader)
            return await committed(slave), answer.generation, answer.standing_offset

        assert await told(1, f"{line.number}.0.another.") == (0, "0.0", None)
        assert await told(9, f"{line.number}.0.{line.id}.") == (9, "0.0", 9)
        assert await told(12, f"{line.number + 1}.300.next.{line.id}") == (12, "0.0", 12)


async def test_what_members_commit_while_a_slave_becomes_master_is_kept(
    autojump_clock: MockClock,
) -> None:
    """It has messages of its last master by then, and compares its offsets with its log a little later."""
    async with asking() as one:
        one.put("T", *(b"%d" % number for number in range(9)))
        offsets = one.broker.state.consumer_offsets
        offsets.commit_offset("G", "T", 1, 5)
        offsets.begin_copy("1.0.other.")
        claimed = await claim(one, "me")
        header = offset.UpdateConsumerOffsetRequestHeader(
            "G", "T", 0, 4, claimed.generation, claimed.ownership, epoch=claimed.epoch
        )
        await one.ask(header)
        assert offsets.cut(one.broker.store.next_queue_offset) == 1
        assert offsets.query_offsets("G", "T") == {0: 4, 1: 0}
        header.commit_offset = 6
        await one.ask(header)
        assert not offsets.named_epochs


async def test_slave_shows_an_offset_as_far_as_its_own_epoch_is_in_the_log(
    autojump_clock: MockClock,
) -> None:
    """Also one that the master has not judged yet: a member that began there would skip messages."""
    async with asking(slaves=1) as one:
        one.put("T", b"a", b"b")
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        await trio.sleep(5)
        offsets, (line,) = slave.broker.state.consumer_offsets, slave.broker.store.epochs.lines
        offsets.commit_offset("G", "T", 0, 9)
        version = offsets.query_version("G", "T", 0)

        async def shown(known_in: str, named: str) -> int | None:
            offsets.known_in = known_in
            offsets.named_epochs = {(("T", "G"), 0): (version, named)}
            told = await claim(slave, "me")
            assert told.epoch == place_text(newer if named == newer else current, 0)
            return told.offset

        current, lost = f"{line.number}.0.{line.id}.", f"{line.number}.0.another."
        newer = f"{line.number + 1}.300.next.{line.id}"
        assert await shown(current, lost) == 0
        assert await shown(lost, current) == 9
        assert await shown(current, newer) == 9
        assert await shown(lost, lost) == 0
        offsets.commit_offset("G", "T", 0, 10)
        assert await shown(current, lost) == 10


async def test_malformed_generation_is_refused(autojump_clock: MockClock) -> None:
    async with knowing_t() as one:
        header = offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 4, "first")
        assert (await one.ask(header)).code == ResponseCode.SYSTEM_ERROR


async def test_commit_far_ahead_of_every_generation_is_refused(autojump_clock: MockClock) -> None:
    commit = offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 5)
    async with asking() as one:
        one.put("T", b"a")
        for generation in ("999999999999999999.0", f"{LEAD_LIMIT + 1}.0", f"0.{LEAD_LIMIT + 1}"):
            for ownership in (None, "1@client"):
                told = msgspec.structs.replace(commit, generation=generation, ownership=ownership)
                assert (await one.ask(told)).code == ResponseCode.SYSTEM_ERROR
        assert not one.broker.state.consumer_offsets.offset_table
        told = msgspec.structs.replace(
            commit, commit_offset=1, generation=f"{LEAD_LIMIT}.{LEAD_LIMIT}"
        )
        assert (await one.ask(told)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("fields", "code", "why"),
    [
        ({"topic": "U"}, ResponseCode.TOPIC_NOT_EXIST, "Topic U not exist!"),
        ({"topic": "%RETRY%unknown"}, ResponseCode.TOPIC_NOT_EXIST, "not exist!"),
        ({"queue_id": 2}, ResponseCode.SYSTEM_ERROR, "queueId[2] is illegal, topic:[T] has 2"),
        ({"topic": "%RETRY%G", "queue_id": 1}, ResponseCode.SYSTEM_ERROR, "has 1 queues"),
    ],
)
async def test_commit_for_an_unknown_topic_or_queue_is_refused(
    autojump_clock: MockClock, fields: dict[str, Any], code: ResponseCode, why: str
) -> None:
    right = offset.UpdateConsumerOffsetRequestHeader("G", "T", 1, 5)
    async with knowing_t() as one:
        one.broker.state.groups.find("G")
        for generation in (None, "0.0"):
            answer = await one.ask(msgspec.structs.replace(right, generation=generation, **fields))
            assert answer.code == code
            assert why in (answer.remark or "")
        assert not one.broker.state.consumer_offsets.offset_table
        assert (await one.ask(right)).code == ResponseCode.SUCCESS
        retried = msgspec.structs.replace(right, topic="%RETRY%G", queue_id=0)
        assert (await one.ask(retried)).code == ResponseCode.SUCCESS


async def test_commit_for_a_queue_with_messages_is_taken_though_the_topic_has_fewer_now(
    autojump_clock: MockClock,
) -> None:
    async with knowing_t() as one:
        one.put("T", b"a", queue_id=7)
        one.put("U", b"a")  # As on a slave that has not copied the table of topics yet.
        for topic, queue_id in (("T", 7), ("U", 0)):
            commit = offset.UpdateConsumerOffsetRequestHeader("G", topic, queue_id, 1)
            assert (await one.ask(commit)).code == ResponseCode.SUCCESS


async def test_full_table_of_offsets_takes_known_queues_and_nothing_new(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 5)
    async with knowing_t() as one:
        one.put("T", *[b"x"] * 9)
        assert (await one.ask(commit)).code == ResponseCode.SUCCESS
        monkeypatch.setattr(consumer_offsets, "OFFSETS_SIZE_LIMIT", 10)
        offsets = one.broker.state.consumer_offsets
        for fields in ({"queue_id": 1}, {"commit_offset": 4}, {"commit_offset": 8, "reset": True}):
            answer = await one.ask(msgspec.structs.replace(commit, **fields))  # type: ignore[arg-type]
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "the table of offsets is full" in (answer.remark or "")
        pull = PullMessageRequestHeader("H", "T", 0, 0, 1, COMMIT_AND_SUBSCRIPTION, 5, 0, 0, "*")
        assert (await one.ask(pull)).code == ResponseCode.SUCCESS
        assert offsets.offset_table == {("T", "G"): {0: 5}}
        assert (
            await one.ask(msgspec.structs.replace(commit, commit_offset=6))
        ).code == ResponseCode.SUCCESS
        assert (
            await one.ask(msgspec.structs.replace(pull, consumer_group="G", commit_offset=7))
        ).code == 0
        assert offsets.offset_table == {("T", "G"): {0: 7}}
