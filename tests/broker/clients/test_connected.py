import time

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.broker.builders import RecordingChannel

from rocketrio_broker.clients import static_members
from rocketrio_broker.clients.connected import (
    CHANNEL_EXPIRED_TIMEOUT,
    ClientChannelInfo,
    ConsumerManager,
    ProducerManager,
)
from rocketrio_broker.clients.static_members import AWAY_LIMIT
from rocketrio_protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from rocketrio_protocol.codes import LanguageCode


def client(channel: RecordingChannel, client_id: str = "c1") -> ClientChannelInfo:
    return ClientChannelInfo(channel, client_id, LanguageCode.JAVA, 407)


def consumer(*topics: str, version: int = 1, expression: str = "*") -> ConsumerData:
    return ConsumerData(
        "G",
        subscription_data_set=[
            SubscriptionData(topic, expression, sub_version=version) for topic in topics
        ],
    )


@pytest.fixture
def consumers() -> ConsumerManager:
    return ConsumerManager()


def test_a_new_member_is_a_change_and_its_next_heartbeat_is_none(
    consumers: ConsumerManager,
) -> None:
    channel = RecordingChannel()
    assert consumers.register(consumer("T"), client(channel), now=0)
    assert not consumers.register(consumer("T"), client(channel), now=30)
    assert consumers.client_ids("G") == ["c1"]
    assert consumers.channels("G") == [channel]


def test_two_members_are_listed_in_the_order_they_came(consumers: ConsumerManager) -> None:
    consumers.register(consumer("T"), client(RecordingChannel(), "c1"), now=0)
    consumers.register(consumer("T"), client(RecordingChannel(), "c2"), now=0)
    assert consumers.client_ids("G") == ["c1", "c2"]


def test_a_topic_that_comes_or_goes_is_a_change(consumers: ConsumerManager) -> None:
    channel = RecordingChannel()
    consumers.register(consumer("T"), client(channel), now=0)
    assert consumers.register(consumer("T", "U"), client(channel), now=1)
    assert consumers.register(consumer("U"), client(channel), now=2)
    assert consumers.subscription("G", "T") is None
    assert consumers.groups_of_topic("U") == ["G"]


def test_a_newer_expression_replaces_the_known_one_without_a_change(
    consumers: ConsumerManager,
) -> None:
    channel = RecordingChannel()
    consumers.register(consumer("T", version=5, expression="a"), client(channel), now=0)
    assert not consumers.register(consumer("T", version=6, expression="b"), client(channel), now=1)
    assert not consumers.register(consumer("T", version=4, expression="c"), client(channel), now=2)
    known = consumers.subscription("G", "T")
    assert known is not None
    assert known.sub_string == "b"


def test_the_last_member_takes_the_group_with_it(consumers: ConsumerManager) -> None:
    first, second = RecordingChannel(), RecordingChannel()
    consumers.register(consumer("T"), client(first, "c1"), now=0)
    consumers.register(consumer("T"), client(second, "c2"), now=0)
    assert consumers.unregister("G", first)
    assert consumers.client_ids("G") == ["c2"]
    assert not consumers.unregister("G", first)
    assert consumers.channel_closed(second, now=0) == ["G"]
    assert consumers.group("G") is None


def test_a_member_is_dropped_after_more_than_120_s_of_silence(consumers: ConsumerManager) -> None:
    silent, alive = RecordingChannel(), RecordingChannel()
    consumers.register(consumer("T"), client(silent, "c1"), now=0)
    consumers.register(consumer("T"), client(alive, "c2"), now=0)
    consumers.register(consumer("T"), client(alive, "c2"), now=60)
    assert consumers.scan_not_active(CHANNEL_EXPIRED_TIMEOUT) == ([], [])
    assert consumers.scan_not_active(CHANNEL_EXPIRED_TIMEOUT + 1) == (["G"], [silent])
    assert consumers.client_ids("G") == ["c2"]


def test_a_connection_that_changes_its_client_id_has_the_new_one(
    consumers: ConsumerManager,
) -> None:
    channel = RecordingChannel()
    consumers.register(consumer("T"), client(channel, "c1"), now=0)
    consumers.register(consumer("T"), client(channel, "c2"), now=1)
    assert consumers.client_ids("G") == ["c2"]
    assert consumers.channel("G", "c1") is None


def test_producer_that_is_silent_is_removed() -> None:
    producers = ProducerManager()
    first, second = RecordingChannel(), RecordingChannel()
    producers.register("P", client(first, "c1"), now=0)
    producers.register("P", client(second, "c2"), now=0)
    producers.register("P", client(second, "c2"), now=100)
    assert [info.client_id for info in producers.clients("P")] == ["c1", "c2"]
    assert producers.scan_not_active(CHANNEL_EXPIRED_TIMEOUT + 1) == [first]
    producers.channel_closed(second)
    assert producers.clients("P") == []
    assert not producers.group_channel_table


def test_a_closed_connection_leaves_none_of_its_producers_behind() -> None:
    producers = ProducerManager()
    first, second = RecordingChannel(), RecordingChannel()
    for number in range(3):
        producers.register("P", client(first, f"c{number}"), now=0)
    producers.register("Q", client(second, "c2"), now=0)
    producers.channel_closed(first)
    assert [producers.channel(f"c{number}") for number in range(3)] == [None, None, second]
    assert list(producers.group_channel_table) == ["Q"]
    producers.unregister("Q", second)
    assert producers.channel("c2") is None
    assert vars(producers) == vars(ProducerManager())


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_collection")
def test_closing_a_connection_of_many_producer_groups_takes_time_in_proportion() -> None:
    def seconds(count: int) -> float:
        producers, channel = ProducerManager(), RecordingChannel()
        for number in range(count):
            producers.register(f"P{number}", client(channel, f"c{number}"), now=0)
        began = time.process_time()
        producers.channel_closed(channel)
        return time.process_time() - began

    few, many = (min(seconds(count) for _ in range(3)) for count in (2_000, 32_000))
    assert many < 64 * max(few, 0.001), (few, many)


def test_only_a_live_connection_of_a_producer_group_is_asked() -> None:
    producers = ProducerManager()
    dead, alive = RecordingChannel(closed=True), RecordingChannel()
    producers.register("P", client(dead), now=0)
    assert producers.available_channel("P", choose=lambda some: some[0]) is None
    producers.register("P", client(alive), now=0)
    assert producers.available_channel("P", choose=lambda some: some[0]) is alive


# ---------------------------------------------------------------------------------- static members


def static(channel: RecordingChannel, client_id: str = "c1") -> ClientChannelInfo:
    return ClientChannelInfo(channel, client_id, LanguageCode.PYTHON, 407, static_grace=30.0)


@pytest.fixture
def other(consumers: ConsumerManager) -> RecordingChannel:
    channel = RecordingChannel()
    consumers.register(consumer("T"), client(channel, "other"), now=0)
    return channel


def test_a_static_member_that_comes_back_in_time_was_never_gone(
    consumers: ConsumerManager, other: RecordingChannel
) -> None:
    first = RecordingChannel()
    assert consumers.register(consumer("T"), static(first), now=0)
    assert consumers.channel_closed(first, now=10) == []
    assert sorted(consumers.client_ids("G")) == ["c1", "other"]
    assert consumers.channels("G") == [other]
    assert not consumers.register(consumer("T", version=2), static(RecordingChannel()), now=39)
    assert consumers.scan_not_active(41) == ([], [])
    assert sorted(consumers.client_ids("G")) == ["c1", "other"]


def test_a_static_member_is_gone_when_its_grace_is_over(
    consumers: ConsumerManager, other: RecordingChannel
) -> None:
    first = RecordingChannel()
    consumers.register(consumer("T"), static(first), now=0)
    consumers.channel_closed(first, now=10)
    assert consumers.scan_not_active(39.9) == ([], [])
    assert consumers.scan_not_active(40) == (["G"], [])
    assert consumers.client_ids("G") == ["other"]
    assert consumers.register(consumer("T"), static(RecordingChannel()), now=50)


def test_static_member_that_unregisters_is_removed_at_once(
    consumers: ConsumerManager, other: RecordingChannel
) -> None:
    first = RecordingChannel()
    consumers.register(consumer("T"), static(first), now=0)
    assert consumers.unregister("G", first)
    assert consumers.client_ids("G") == ["other"]


def test_new_connection_before_the_end_of_the_old_one_changes_nothing(
    consumers: ConsumerManager, other: RecordingChannel
) -> None:
    old, new = RecordingChannel(), RecordingChannel()
    consumers.register(consumer("T"), static(old), now=0)
    assert not consumers.register(consumer("T"), static(new), now=1)
    assert consumers.channel_closed(old, now=2) == []
    assert consumers.scan_not_active(100) == ([], [])
    assert consumers.client_ids("G") == ["other", "c1"]


def test_a_silent_static_member_has_its_grace_too(consumers: ConsumerManager) -> None:
    first = RecordingChannel()
    consumers.register(consumer("T"), static(first), now=0)
    assert consumers.scan_not_active(121) == ([], [first])
    assert consumers.client_ids("G") == ["c1"]
    assert consumers.scan_not_active(151) == (["G"], [])
    assert consumers.client_ids("G") == []


def test_the_only_member_of_a_group_may_be_away(consumers: ConsumerManager) -> None:
    first = RecordingChannel()
    consumers.register(consumer("T"), static(first), now=0)
    assert consumers.channel_closed(first, now=0) == []
    assert consumers.group("G") is None
    assert consumers.client_ids("G") == ["c1"]


def test_members_that_are_away_are_limited(
    consumers: ConsumerManager, other: RecordingChannel
) -> None:
    for number in range(AWAY_LIMIT + 1):
        channel = RecordingChannel()
        consumers.register(consumer("T"), static(channel, f"c{number}"), now=0)
        told = consumers.channel_closed(channel, now=0)
        assert told == ([] if number < AWAY_LIMIT else ["G"])
    assert len(consumers.client_ids("G")) == AWAY_LIMIT + 1


class Membership(RuleBasedStateMachine):
    """Members learn of each change of their list; a static one changes it only when its time is over."""

    def __init__(self) -> None:
        super().__init__()
        self.consumers = ConsumerManager()
        self.now = 0.0
        self.open: dict[RecordingChannel, tuple[str, float]] = {}
        self.away: dict[str, float] = {}
        self.listed: set[str] = set()

    def told(self, is_told: bool) -> None:
        listed = set(self.consumers.client_ids("G"))
        assert is_told or listed == self.listed, "the list changed, and no member was notified"
        self.listed = listed

    @rule(client_id=st.sampled_from("abc"), grace=st.sampled_from([0.0, 30.0]))
    def connects(self, client_id: str, grace: float) -> None:
        channel = RecordingChannel()
        info = ClientChannelInfo(channel, client_id, LanguageCode.PYTHON, 407, static_grace=grace)
        self.told(self.consumers.register(consumer("T"), info, now=self.now))
        self.open[channel] = client_id, grace
        self.away.pop(client_id, None)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_goodbye=st.booleans())
    def leaves(self, data: st.DataObject, is_goodbye: bool) -> None:
        channel = data.draw(st.sampled_from(list(self.open)))
        client_id, grace = self.open.pop(channel)
        if is_goodbye:
            self.told(self.consumers.unregister("G", channel))
            return
        self.told(bool(self.consumers.channel_closed(channel, now=self.now)))
        is_there = any(other == client_id for other, _ in self.open.values())
        if grace and not is_there:
            self.away[client_id] = self.now + grace

    @rule(seconds=st.sampled_from([5.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for channel, (client_id, grace) in self.open.items():
            info = ClientChannelInfo(
                channel, client_id, LanguageCode.PYTHON, 407, static_grace=grace
            )
            assert not self.consumers.register(consumer("T"), info, now=self.now)
        self.told(bool(self.consumers.scan_not_active(self.now)[0]))
        self.away = {name: until for name, until in self.away.items() if until > self.now}

    @invariant()
    def lists_who_is_there_or_away(self) -> None:
        present = {client_id for client_id, _ in self.open.values()}
        assert set(self.consumers.client_ids("G")) == present | set(self.away)


TestMembership = pytest.mark.slow(Membership.TestCase)
TestMembership.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_client_id_belongs_to_its_connection_while_that_lives() -> None:
    producers = ProducerManager()
    first = RecordingChannel("10.0.0.1:5")
    stranger, again = RecordingChannel("10.0.0.2:5"), RecordingChannel("10.0.0.1:6")
    producers.register("P", client(first), now=0)
    producers.register("P", client(stranger), now=20)
    assert producers.channel("c1") is first
    producers.register("P", client(again), now=21)
    assert producers.channel("c1") is again, "the same host has connected again"
    producers.register("P", client(stranger), now=60)
    assert producers.channel("c1") is again
    producers.register("P", client(stranger), now=70)
    assert producers.channel("c1") is stranger, "the other one has been silent"
    stranger.close()
    producers.register("P", client(first), now=71)
    assert producers.channel("c1") is first


def test_members_away_are_limited_over_all_groups(
    consumers: ConsumerManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_members, "ALL_AWAY_LIMIT", 2)
    for number in range(4):
        channel = RecordingChannel()
        one = attrs.evolve(client(channel, f"c{number}"), static_grace=10)
        data = ConsumerData(f"G{number}")
        consumers.register(data, one, now=number)
        consumers.channel_closed(channel, now=number)
    assert [consumers.client_ids(f"G{number}") for number in range(4)] == [["c0"], ["c1"], [], []]
    assert consumers.scan_not_active(10)[0] == ["G0"]
    consumers.register(ConsumerData("G3"), client(RecordingChannel(), "c3"), now=11)
    assert consumers._away._size == 1
