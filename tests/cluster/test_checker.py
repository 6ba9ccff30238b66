"""The checker on histories made by hand: a right one passes, and each way to be wrong is reported by its name."""

from typing import Any

import attrs
import pytest
from tests.cluster.histories.checker import (
    answers_wait_for_what_they_say,
    check,
    nothing_acknowledged_is_cut_automatically,
    slaves_wait_for_what_was_acknowledged,
)
from tests.cluster.histories.checker_readers import (
    SLAVE_TIMEOUT,
    acknowledged_messages_are_delivered,
    places_passed_by_an_order,
    readers_see_what_is_confirmed,
)
from tests.cluster.histories.checker_standings import former_masters_lead_nobody
from tests.cluster.histories.contacts import Outcome
from tests.cluster.histories.events import (
    AnsweredEarly,
    Committed,
    Event,
    HandedOver,
    History,
    LogsCompared,
    Lowered,
    MemberEnded,
    MemberStarted,
    OffsetsSeen,
    OffsetStored,
    PassingPulled,
    PassingSent,
    Pulled,
    Received,
    ReignBegan,
    ReignEnded,
    Reported,
    RivalAnswered,
    RivalEnded,
    SendAnswered,
    SendStarted,
    Stood,
    StrangerAnswered,
    TailCut,
    TailWaits,
    TopicCreated,
    TopicRemade,
    TwoMasters,
)
from tests.cluster.histories.schedule import MOVABLE_QUEUE, Fault, Mode, Schedule
from tests.cluster.histories.story import BrokerState, FinalState, Story
from tests.cluster.histories.violation import Violation

from rocketrio_protocol.ha.exchange import Epoch

FIRST, SECOND = b"first", b"second"
MODE = Mode("sync", "sync-master", 1, 0.5, reads_at_slaves=False)
SIZE = 100
"""Of each record of these logs."""


def sent(at: float, body: bytes, offset: int, **changes: Any) -> list[Event]:
    answer = SendAnswered(
        at=at + 0.1,
        producer="producer-0",
        broker=0,
        queue_id=0,
        bodies=(body,),
        waits=True,
        started=at,
        status="SEND_OK",
        queue_offset=offset,
        end_offset=offset * SIZE + 50,
        held_by=((0, 200, 200), (1, 200, 200)),
    )
    start = SendStarted(at=at, producer="producer-0", queue_id=0, bodies=(body,), waits=True)
    return [start, attrs.evolve(answer, **changes)]


def received(at: float, body: bytes, offset: int) -> Event:
    return Received(at=at, consumer="consumer-0", queue_id=0, queue_offset=offset, body=body)


def pulled(at: float, body: bytes, offset: int, **changes: Any) -> Event:
    event = Pulled(
        at=at,
        reader="auditor",
        broker=0,
        queue_id=0,
        messages=((offset, body),),
        end_offset=offset * SIZE + 50,
        held_by=((0, 200, 200), (1, 200, 200)),
    )
    return attrs.evolve(event, **changes)


def seen(at: float, broker: int, offset: int, queue_id: int = 0) -> Event:
    return OffsetsSeen(at=at, broker=broker, offsets=((queue_id, offset),))


def restarted(
    at: float,
    how: str,
    *,
    kept: int = 200,
    flushed: int = 200,
    offset: int = 2,
    slave_end: int | None = None,
    asked: str = "answered",
) -> list[Event]:
    """The master is down for a second; by default a slave has no more than it comes back with, and says so."""
    slave_end, log_end = kept if slave_end is None else slave_end, max(200, kept)
    left = {"power cut": flushed, "wiped": 0, "torn end": kept, "older copy": kept}.get(
        how, log_end
    )
    others = (0, left, left), (1, slave_end, slave_end)
    offsets = ((0, offset),)
    role = "async-master"
    return [
        MemberEnded(
            at=at, broker=0, role=role, how=how, log_end=log_end, flushed=flushed, left=left,
            offsets=((0, 2),),
        ),
        ReignEnded(at=at, broker=0, log_end=log_end),
        MemberStarted(
            at=at + 1, broker=0, role=role, log_end=kept, kept=kept, others=others, offsets=offsets
        ),
        ReignBegan(
            at=at + 1,
            broker=0,
            kept=kept,
            others=others,
            offsets=offsets,
            queue_ends=(kept // SIZE, 0, 0, 0),
            asked=((1, asked),),
        ),
    ]  # fmt: skip


def switched(
    at: float, *, kept: int = 200, own: int = 200, offset: int = 2, asked: str = "answered"
) -> list[Event]:
    """The slave, which has its own part of the log, becomes master with so much of it, and with this offset."""
    began = ReignBegan(
        at=at + 1,
        broker=1,
        kept=kept,
        others=((0, 200, 200), (1, own, own)),
        offsets=((0, offset),),
        queue_ends=(kept // SIZE, 0, 0, 0),
        asked=((0, asked),),
    )
    return [ReignEnded(at=at, broker=0, log_end=200), began]


def reported(at: float, address: int, *, end: int = 200, **changes: Any) -> Event:
    """The slave has so much of the master's log."""
    event = Reported(at=at, broker=0, slave=1, address=address, end=end, flushed=end)
    return attrs.evolve(event, **changes)


def stood(at: float, broker: int, event: str, before: str, standing: str, **changes: bool) -> Event:
    writes, copies = standing == "leading", standing == "following"
    return attrs.evolve(
        Stood(
            at=at, broker=broker, event=event, before=before, standing=standing, writes=writes,
            copies=copies,
        ),
        **changes,
    )  # fmt: skip


def takes_over(at: float, broker: int) -> list[Event]:
    """The broker has looked for others, and leads."""
    return [
        stood(at, broker, "LOOKS", "looking", "looking"),
        stood(at, broker, "IS_ALONE", "looking", "preparing"),
        stood(at, broker, "CLAIMS", "preparing", "claiming"),
        stood(at, broker, "TAKES_OVER", "claiming", "leading"),
    ]


RIGHT: list[Event] = [
    *sent(1.0, FIRST, 0),
    *sent(2.0, SECOND, 1),
    reported(2.05, 200),
    Pulled(at=3.0, reader="auditor", broker=1, queue_id=0, messages=((0, FIRST), (1, SECOND))),
    received(3.0, FIRST, 0),
    received(3.0, SECOND, 1),
    seen(4.0, 0, 2),
    seen(5.0, 1, 2),
    Committed(
        at=6.0,
        consumer="consumer-0",
        offsets=((0, 2),),
        held_by=((0, 0, 2), (1, 0, 2)),
        all_seen=True,
    ),
    *restarted(20.0, "kill"),
]


def state(broker: int, **changes: Any) -> BrokerState:
    right = BrokerState(
        broker=broker,
        log_begin=0,
        log=b"a" * SIZE + b"b" * SIZE,
        queues=(((0, FIRST), (1, SECOND)), (), (), ()),
        offsets=((0, 2),),
        passing=((), ()),
        passing_offsets=(),
        topics=("orders",),
        groups=("billing",),
        replication="following",
    )
    return attrs.evolve(right, **changes)


def broken(
    events: list[Event],
    master: BrokerState | None = None,
    slave: BrokerState | None = None,
    *,
    came_to_rest: bool = True,
    producers: int = 0,
    remakes: tuple[float, ...] = (),
    faults: tuple[Fault, ...] = (),
    **mode: Any,
) -> set[str]:
    """The names of the promises that such a story breaks."""
    schedule = Schedule(
        seed=1,
        mode=attrs.evolve(Mode("sync", "async-master", 1, 0.5, reads_at_slaves=False), **mode),
        faults=faults,
        consumers=(),
        producers=producers,
        sending_ends=25.0,
        resets=(),
        faults_end=25.0,
        remakes=remakes,
    )
    brokers = (master or state(0), slave or state(1))
    story = Story(schedule, History(1, events), FinalState(brokers, came_to_rest))
    return {violation.invariant for violation in check(story)}


def test_checker_accepts_a_right_history() -> None:
    assert broken(RIGHT) == set()
    assert broken(RIGHT, role="sync-master", acknowledge="disk") == set()


@pytest.mark.parametrize(
    ("promise", "changes"),
    [
        ("acknowledged and lost", {"queues": (((0, FIRST),), (), (), ())}),
        ("read and gone", {"queues": (((0, FIRST), (1, b"other")), (), (), ())}),
        ("logs differ", {"log": b"a" * SIZE + b"B" * SIZE}),
        ("a slave is not level", {"log": b"a" * SIZE}),
        ("queues differ", {"queues": ((), (), (), ())}),
        ("topics differ", {"topics": ()}),
        ("groups differ", {"groups": ()}),
        ("offsets differ", {"offsets": ((0, 1),)}),
    ],
)
def test_wrong_final_state_is_reported(promise: str, changes: dict[str, Any]) -> None:
    if promise in ("acknowledged and lost", "read and gone"):
        assert promise in broken(RIGHT, master=state(0, **changes), slave=state(1, **changes))
    else:
        assert broken(RIGHT, slave=state(1, **changes)) == {promise}


@pytest.mark.parametrize(
    ("promise", "more"),
    [
        ("out of order", sent(10.0, b"late", 0)),
        ("read and never sent", [received(10.0, b"nobody's", 2)]),
        ("two messages at one place", [pulled(10.0, SECOND, 0)]),
        ("received and never pulled", [received(10.0, SECOND, 0)]),
        ("created and gone", [TopicCreated(at=10.0, topic="late")]),
        ("a second master took a write", [RivalAnswered(at=10.0, code=0)]),
        ("there were two masters", [RivalEnded(at=10.0, log_end=100, is_listed=False)]),
        ("there were two masters", [RivalEnded(at=10.0, log_end=0, is_listed=True)]),
        ("there were two masters", [TwoMasters(at=10.0, broker=1, other=0)]),
        (
            "handed over with less",
            [*switched(40.0, kept=150), HandedOver(at=41.0, former=0, broker=1)],
        ),
        ("handed over with less", [HandedOver(at=41.0, former=0, broker=1)]),
        ("a stranger was served", [StrangerAnswered(at=10.0, broker=0, size=12)]),
        ("offset went back", [seen(10.0, 0, 1)]),
        ("committed and never received", [seen(10.0, 0, 3)]),
        ("offset forgotten", restarted(40.0, "stop", offset=1)),
        ("offset forgotten", [seen(30.0, 0, 2), *restarted(40.0, "power cut", offset=1)]),
        ("came back with less", restarted(40.0, "kill", kept=150)),
        ("a slave still had the tail", switched(40.0, kept=150)),
        ("slaves were not asked", switched(40.0, offset=1)),
    ],
)
def test_wrong_event_is_reported(promise: str, more: list[Event]) -> None:
    assert promise in broken([*RIGHT, *more])


def test_message_that_the_group_passes_over_is_reported() -> None:
    """Of those that are there in the end: what went with the end of a log was at other places."""
    told = broken([event for event in RIGHT if event != received(3.0, FIRST, 0)])
    assert told == {"skipped", "acknowledged and undelivered"}
    before = [pulled(2.5, b"lost", 1), received(2.5, b"lost", 1)]
    assert "skipped" not in broken([*RIGHT[:4], *before, *RIGHT[4:]])


def test_member_that_seeks_beyond_the_end_of_a_queue_continues_at_the_end() -> None:
    stored = OffsetStored(
        at=10.0, broker=0, queue_id=MOVABLE_QUEUE, offset=6, before=-1, generation=(0, 1),
        is_ordered=True, is_reset=False, queue_end=6,
    )  # fmt: skip
    seek = Lowered(at=9.0, who="one", queue_id=MOVABLE_QUEUE, offset=13, outcome="begins")

    def passed(*events: Event) -> set[int]:
        schedule, ends = (
            Schedule(1, MODE, (), (), 0, 25.0, (), 25.0),
            FinalState((), came_to_rest=True),
        )
        return places_passed_by_an_order(Story(schedule, History(1, list(events)), ends))

    assert passed(seek, stored) == set(range(6))
    assert passed(stored) == set()
    assert passed(seek, attrs.evolve(stored, queue_end=7)) == set()
    assert passed(seek, attrs.evolve(stored, is_ordered=False)) == set()


def test_new_master_that_lost_its_end_meanwhile_was_handed_over_all() -> None:
    ended = MemberEnded(
        at=40.5,
        broker=1,
        role="slave",
        how="torn end",
        log_end=200,
        flushed=150,
        left=150,
        offsets=(),
    )
    reign_ended, reign_began = switched(40.0, kept=150)
    events = [*RIGHT, reign_ended, ended, reign_began, HandedOver(at=42.0, former=0, broker=1)]
    assert "handed over with less" not in broken(events)
    assert "handed over with less" in broken([event for event in events if event is not ended])


LEFT = attrs.evolve(state(0), log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
"""What there is without the second message."""


def is_told_lost(*events: Event, **mode: Any) -> bool:
    told = broken([*RIGHT, *events], LEFT, attrs.evolve(LEFT, broker=1), **mode)
    return "acknowledged and lost" in told


@pytest.mark.parametrize(
    ("asked", "is_excused"),
    [("answered", False), ("unasked", False), ("failed", True), ("unreachable", True)],
)
@pytest.mark.parametrize("role", ["sync-master", "async-master"])
def test_loss_is_excused_only_where_no_other_copy_could_be_asked(
    role: str, asked: str, is_excused: bool
) -> None:
    """Whichever broker lost its end, and begins to reign without the other one; a kill takes nothing."""
    torn = restarted(30.0, "torn end", kept=100, slave_end=200, asked=asked)
    assert is_told_lost(*torn, role=role) is not is_excused
    cut = restarted(30.0, "power cut", kept=100, flushed=100, slave_end=200, asked=asked)
    assert is_told_lost(*cut, role=role, flush="async") is not is_excused
    killed = restarted(30.0, "kill", kept=100, slave_end=200, asked=asked)
    assert is_told_lost(*killed, role=role)


def test_synchronous_master_that_knows_no_slave_waits_until_one_comes() -> None:
    *ended, began = restarted(30.0, "wiped", kept=0, slave_end=200, asked="unlisted")
    assert not is_told_lost(*ended, began, role="async-master")
    assert is_told_lost(*ended, began, role="sync-master")
    waited = attrs.evolve(began, since=began.at - 10.0)
    assert not is_told_lost(*ended, waited, role="sync-master")


@pytest.mark.parametrize(
    ("how", "flushed", "asked", "is_excused"),
    [
        ("power cut", 100, "failed", True),
        ("power cut", 200, "failed", False),
        ("kill", 100, "failed", False),
        ("power cut", 100, "answered", False),
    ],
)
def test_what_a_slave_has_only_in_memory_may_go_with_its_power_while_the_master_is_away(
    how: str, flushed: int, asked: str, is_excused: bool
) -> None:
    cut = MemberEnded(
        at=38.5, broker=1, role="slave", how=how, log_end=200, flushed=flushed, offsets=()
    )
    back = MemberStarted(
        at=39.0, broker=1, role="slave", log_end=100, kept=100, others=(), offsets=()
    )
    lost = [cut, back, *switched(40.0, kept=100, own=100, asked=asked)]
    assert is_told_lost(*lost, flush="async", role="sync-master") is not is_excused


@pytest.mark.parametrize(
    ("asked", "role", "is_excused"),
    [
        ("failed", "async-master", True),
        ("failed", "sync-master", False),
        ("answered", "async-master", False),
    ],
)
def test_loss_by_the_order_of_an_operator_is_excused_where_the_former_master_cannot_be_asked(
    asked: str, role: str, is_excused: bool
) -> None:
    """Unless the slave had acknowledged it, and should have it itself."""
    ordered = switched(40.0, kept=100, own=100, asked=asked)
    assert is_told_lost(*ordered, role=role) is not is_excused


def test_loss_is_excused_where_the_former_master_lost_its_end_before_the_next_one_had_it() -> None:
    """Unless a slave had confirmed it."""
    reign_ended, began = switched(40.0, kept=100, own=100)
    began = attrs.evolve(began, at=45.0, holders=((0, 100), (1, 100)))
    torn, _, back, _ = restarted(40.5, "torn end", kept=100)
    torn, back = attrs.evolve(torn, role="slave"), attrs.evolve(back, role="slave")
    assert is_told_lost(reign_ended, began, role="async-master")
    assert not is_told_lost(reign_ended, torn, back, began, role="async-master")
    assert is_told_lost(reign_ended, torn, back, began, role="sync-master")


def test_message_of_a_second_history_is_gone_when_an_operator_chooses_the_older_one() -> None:
    """A master that lost everything, and knows no other broker, begins a new log."""
    other = attrs.evolve(sent(32.0, b"anew", 0)[1], end_offset=50)
    restart = restarted(30.0, "wiped", kept=0, slave_end=200, asked="unlisted")
    ended = ReignEnded(at=33.0, broker=0, log_end=100)
    began = ReignBegan(
        at=33.5,
        broker=1,
        kept=4,
        others=((0, 100, 100), (1, 200, 200)),
        holders=((0, 100), (1, 4)),
        offsets=(),
    )

    def is_told(*events: Event, **mode: Any) -> bool:
        return "acknowledged and lost" in broken([*RIGHT, *events], **mode)

    for role in ("async-master", "sync-master"):
        assert not is_told(*restart, other, ended, began, role=role)
    # Nothing of the chosen one's own is in the way of what the other one has.
    level = attrs.evolve(began, others=((0, 100, 100), (1, 4, 4)))
    assert is_told(*restart, other, ended, level)
    # It had that itself, and gave it up.
    assert is_told(*restart, other, ended, attrs.evolve(began, holders=((0, 100), (1, 100))))
    # Its topics go with its log.
    created = TopicCreated(at=32.0, topic="late", broker=0)
    began, level = (
        attrs.evolve(one, topics=((0, ("late",)), (1, ())), asked=((0, "answered"),))
        for one in (began, level)
    )
    for one, is_lost in ((began, False), (level, True)):
        found = broken([*RIGHT, *restart, created, ended, one], role="async-master")
        assert ("created and gone" in found) is is_lost


@pytest.mark.parametrize(
    ("is_serving", "asked", "is_reported"),
    [
        (True, "answered", True),
        (True, "failed", False),
        (False, "answered", True),
        (False, "failed", False),
    ],
)
def test_topic_is_missed_of_brokers_that_could_be_asked_also_if_the_master_waits_for_room(
    is_serving: bool, asked: Outcome, is_reported: bool
) -> None:
    created = TopicCreated(at=32.0, topic="late", broker=0)
    ended = ReignEnded(at=33.0, broker=0, log_end=200)
    began = ReignBegan(
        at=33.5, broker=1, kept=200, others=((0, 200, 200), (1, 200, 200)), offsets=(),
        topics=((0, ("late",)), (1, ())), asked=((0, asked),), is_serving=is_serving,
    )  # fmt: skip
    assert ("created and gone" in broken([*RIGHT, created, ended, began])) is is_reported


def test_logs_that_differ_below_their_boundary_are_reported() -> None:
    """No matter which follows which: here both are masters of an epoch of their own behind the first one."""
    first = Epoch(number=1, id="a", start=0)
    master = state(0, epochs=(first, Epoch(number=2, id="b", start=SIZE)))
    slave = state(1, epochs=(first, Epoch(number=3, id="c", start=SIZE + 50)))
    beyond, below = b"a" * SIZE + b"c" * SIZE, b"a" * 50 + b"c" * (2 * SIZE - 50)
    assert broken(RIGHT, master, slave) == set()
    assert broken(RIGHT, master, attrs.evolve(slave, log=beyond)) == {"logs differ"}
    broken_below = broken(RIGHT, master, attrs.evolve(slave, log=below))
    assert broken_below == {"logs differ", "logs differ below their boundary"}
    # A log that begins later is compared from there on.
    later = attrs.evolve(slave, log_begin=50, log=below[50:])
    assert "logs differ below their boundary" in broken(RIGHT, master, later)


def test_logs_that_differ_at_a_restart_are_reported() -> None:
    compared = LogsCompared(at=21.0, broker=0, other=1, boundary=150, same=149)
    told = {"logs differ below their boundary"}
    assert broken([*RIGHT, compared]) == told
    assert broken([*RIGHT, attrs.evolve(compared, same=150)]) == set()
    # What a crash tore, and no more, is mended once the other one has answered.
    torn = [*RIGHT[:-4], *restarted(20.0, "torn end", kept=140)[:-1]]

    def is_told(*events: Event) -> bool:
        return told <= broken([*torn, *events])

    assert not is_told(compared)
    assert is_told(attrs.evolve(compared, same=139))
    assert is_told(attrs.evolve(compared, same=150), compared)
    assert is_told(restarted(20.0, "torn end", kept=140)[-1], compared)
    assert not is_told(restarted(20.0, "torn end", kept=140, asked="failed")[-1], compared)


def test_former_master_that_serves_readers_is_reported() -> None:
    schedule = Schedule(1, MODE, (), (), 0, 60.0, (), 60.0)

    def told(*more: Event) -> list[str]:
        events = [*RIGHT[:-4], *more]
        story = Story(schedule, History(1, events), FinalState((), came_to_rest=True))
        return [violation.invariant for violation in former_masters_lead_nobody(story)]

    back = [*switched(40.0), stood(41.5, 0, "LOOKS", "looking", "looking")]
    served = pulled(42.0, FIRST, 0, role="sync-master")
    assert told(*back, served) == ["a former master was read from"]
    assert told(*back, attrs.evolve(served, role="slave")) == []
    assert told(*back, attrs.evolve(served, broker=1)) == []
    assert told(*back, attrs.evolve(served, asked=41.0)) == []
    # In a hand-over both give it, until the former one has heard that it is over.
    hands_over = stood(39.0, 0, "HANDS_OVER", "leading", "handing over")
    assert told(hands_over, *switched(40.0), served) == []
    assert told(hands_over, *back, served) == ["a former master was read from"]


@pytest.mark.parametrize(
    ("promise", "event"),
    [
        ("a standing changed without an event", stood(30.0, 1, "LOOKS", "looking", "looking")),
        ("a standing that the table does not have", stood(30.0, 1, "LOOKS", "following", "aside")),
        ("a standing that the table does not have", stood(30.0, 1, "LOOKS", "following", "boss")),
        (
            "a store does what its standing forbids",
            stood(30.0, 1, "LOOKS", "following", "looking", writes=True),
        ),
        (
            "a store does what its standing forbids",
            stood(30.0, 1, "LOOKS", "following", "looking", copies=True),
        ),
    ],
)
def test_standing_that_is_not_of_the_table_is_reported(promise: str, event: Event) -> None:
    right = stood(30.0, 1, "LOOKS", "following", "looking")
    assert broken([*RIGHT, right, stood(31.0, 1, "YIELDS", "looking", "aside")]) == set()
    assert broken([*RIGHT, event]) == {promise}


def test_write_that_a_broker_had_no_right_to_take_is_reported() -> None:
    told = {"a write was taken without a right to it"}
    steps_down = stood(9.0, 0, "STEPS_DOWN", "leading", "stepping down")
    before = [*RIGHT[:-4], steps_down]
    late = sent(10.0, b"late", 2)
    assert told <= broken([*before, *late])
    assert not told & broken([*before, late[0], attrs.evolve(late[1], started=8.9)])


def test_commit_that_no_broker_has_is_reported() -> None:
    confirmed = Committed(
        at=30.0, consumer="consumer-0", offsets=((0, 3),), held_by=((0, 0, 2),), all_seen=True
    )
    assert broken([*RIGHT, confirmed]) == {"confirmed and nowhere"}
    # A broker that had it, and cut it a moment later, was not looked at in between.
    stored = OffsetStored(
        at=29.0, broker=1, queue_id=0, offset=3, before=2, generation=(0, 0), is_ordered=False,
        is_reset=False,
    )  # fmt: skip
    assert broken([*RIGHT, stored, confirmed]) == set()
    # Beyond the end of a queue that became shorter there is nothing to be kept.
    assert broken([*RIGHT, attrs.evolve(confirmed, queue_ends=(2, 0, 0, 0))]) == set()


def test_answer_before_the_disk_or_a_slave_is_reported() -> None:
    early = sent(1.0, FIRST, 0, held_by=((0, 200, 0), (1, 200, 0)))
    events = [*early, *RIGHT[2:]]
    assert broken(events, flush="sync") == {"acknowledged before it was flushed"}
    assert broken(events, flush="async") == set()
    synchronous: dict[str, Any] = {"flush": "async", "role": "sync-master"}
    assert broken(events, **synchronous) == set()
    assert broken(events, **synchronous, acknowledge="disk") == {
        "acknowledged before a slave had it"
    }


def test_cluster_that_did_not_come_to_rest_is_reported() -> None:
    assert broken(RIGHT, came_to_rest=False) == {"no rest"}


def passing(at: float, life: int, number: int, offset: int) -> PassingSent:
    return PassingSent(
        at=at, started=at, broker=0, life=life, queue_id=0, queue_offset=offset,
        body=b"%d.%d" % (life, number),
    )  # fmt: skip


def test_message_of_an_earlier_incarnation_of_a_topic_is_reported() -> None:
    events = [
        *RIGHT,
        *takes_over(21.0, 0),
        passing(30.0, 0, 0, 0),
        TopicRemade(at=31.0, life=1, offsets=()),
        passing(32.0, 1, 0, 0),
    ]
    right = state(0, passing=(((0, b"1.0"),), ()), passing_offsets=((0, 1),))

    def told(*more: Event, **changes: Any) -> set[str]:
        ends = [attrs.evolve(right, broker=number, **changes) for number in range(2)]
        return broken([*events, *more], *ends, remakes=(31.0,))

    assert told() == set()
    old = PassingPulled(at=33.0, asked=33.0, broker=0, queue_id=0, bodies=(b"0.0",))
    assert told(old) == {"deleted and read"}
    assert told(attrs.evolve(old, broker=1)) == set()
    anew = TopicRemade(at=34.0, life=1, offsets=((0, 1),))
    assert told(anew) == {"offset of an earlier life"}
    kept = (((0, b"1.0"),), ((0, b"0.1"),))
    assert told(passing=kept) == {"deleted and kept"}
    assert told(passing=((), ()), passing_offsets=()) == {"acknowledged and lost"}
    assert told(passing_offsets=((0, 2),)) == {"offset of an earlier life"}
    slave = attrs.evolve(right, broker=1, passing_offsets=())
    assert broken(events, right, slave, remakes=(31.0,)) == {"offsets differ"}


def test_life_of_a_topic_goes_with_a_log_that_an_operator_gives_up() -> None:
    """In the empty log of a second history it begins at 0, where every log begins with the same bytes."""
    events = [
        *RIGHT,
        passing(29.0, 0, 0, 0),
        *restarted(30.0, "wiped", kept=0, slave_end=200, asked="unlisted"),
        TopicRemade(at=32.0, life=1, offsets=(), log_end=0),
        ReignEnded(at=33.0, broker=0, log_end=100),
    ]
    began = ReignBegan(
        at=33.5, broker=1, kept=3, others=((0, 100, 100), (1, 200, 200)), holders=((0, 100), (1, 3)),
        offsets=(),
    )  # fmt: skip
    pulled = PassingPulled(at=34.0, asked=34.0, broker=1, queue_id=0, bodies=(b"0.0",))
    assert "deleted and read" not in broken([*events, began, pulled], remakes=(32.0,))
    level = attrs.evolve(began, others=((0, 100, 100), (1, 3, 3)))
    assert "deleted and read" in broken([*events, level, pulled], remakes=(32.0,))


def test_producer_that_reaches_no_broker_at_the_end_is_reported() -> None:
    assert broken(RIGHT, producers=1) == {"no send"}


def test_offset_may_fall_where_an_operator_lowered_it() -> None:
    def lowered(offset: int) -> list[Event]:
        order = Lowered(
            at=10.0, who="mqadmin", queue_id=MOVABLE_QUEUE, offset=offset, outcome="begins"
        )
        stored = OffsetStored(
            at=10.0, broker=0, queue_id=MOVABLE_QUEUE, offset=offset, before=2, generation=(0, 1),
            is_ordered=True, is_reset=False,
        )  # fmt: skip
        steps: list[Event] = [order, stored]
        messages = [event for event in RIGHT if isinstance(event, Received | Pulled | SendStarted)]
        again = [event for event in messages if isinstance(event, Received)]
        return [
            *(attrs.evolve(event, queue_id=MOVABLE_QUEUE) for event in messages),
            seen(9.0, 0, 2, MOVABLE_QUEUE),
            *steps,
            seen(11.0, 0, 1, MOVABLE_QUEUE),
            *(attrs.evolve(event, queue_id=MOVABLE_QUEUE, at=12.0) for event in again),
        ]  # fmt: skip

    nothing = state(0, queues=((), (), (), ((0, FIRST), (1, SECOND))))
    ends: dict[str, Any] = {"master": nothing, "slave": attrs.evolve(nothing, broker=1)}
    assert broken(lowered(1), **ends) == set()
    assert broken(lowered(2), **ends) == {"offset went back"}


@pytest.mark.parametrize(("kept", "is_told"), [((0, 0), False), ((0, 1), True)])
def test_offset_may_fall_again_where_an_older_copy_does_not_know_the_order(
    kept: tuple[int, int], is_told: bool
) -> None:
    order = Lowered(at=10.0, who="g", queue_id=MOVABLE_QUEUE, offset=1, outcome="begins")
    stored = OffsetStored(
        at=10.0, broker=0, queue_id=MOVABLE_QUEUE, offset=1, before=2, generation=(0, 1),
        is_ordered=True, is_reset=False,
    )  # fmt: skip
    back = MemberStarted(
        at=13.0, broker=1, role="slave", log_end=200, kept=200, others=(), generation=kept,
        offsets=((MOVABLE_QUEUE, 1),),
    )  # fmt: skip
    events = [
        seen(9.0, 1, 2, MOVABLE_QUEUE), order, stored, seen(11.0, 1, 1, MOVABLE_QUEUE),
        ended_by("older copy", at=12.0), back,
        seen(14.0, 1, 2, MOVABLE_QUEUE), seen(15.0, 1, 1, MOVABLE_QUEUE),
    ]  # fmt: skip
    assert ("offset went back" in broken([*RIGHT, *events])) is is_told


def test_offset_may_fall_to_the_end_of_its_queue_while_its_broker_becomes_master() -> None:
    """What it had read is lost with a torn end; it reigns a little later."""
    ended, reign_ended, started, began = restarted(30.0, "torn end", kept=100)
    events = [*RIGHT, ended, reign_ended, attrs.evolve(started, at=30.3)]
    began = attrs.evolve(began, offsets=((0, 1),))
    assert "offset went back" not in broken([*events, seen(30.7, 0, 1), began])
    assert "offset went back" in broken([*events, seen(30.7, 0, 0), began])
    assert "offset went back" in broken([*events, seen(30.7, 1, 1), began])
    assert "offset went back" in broken([*RIGHT, seen(29.0, 0, 1), *events[len(RIGHT) :], began])


def tail_cut(*, slave_end: int) -> list[Event]:
    """The master loses the second message with the power."""
    return restarted(30.0, "power cut", flushed=100, kept=100, slave_end=slave_end)


RESET = Lowered(at=10.0, who="operator", queue_id=MOVABLE_QUEUE, offset=1, outcome="begins")
DONE = attrs.evolve(RESET, outcome="done")
OBEYED = OffsetStored(
    at=10.0, broker=0, queue_id=MOVABLE_QUEUE, offset=1, before=2, generation=(1, 0),
    is_ordered=True, is_reset=True,
)  # fmt: skip
BEFORE = [
    attrs.evolve(event, queue_id=MOVABLE_QUEUE) if isinstance(event, moved) else event
    for moved in [(SendStarted, SendAnswered, Pulled, Received)]
    for event in RIGHT[:8]
]
"""The messages are in the movable queue, and nothing is committed yet."""


def knows(at: float, broker: int, *generation: int) -> Event:
    """The broker has the offset to which the group was reset, in this generation."""
    return attrs.evolve(seen(at, broker, 1, MOVABLE_QUEUE), generation=generation or (1, 0))


def of_resets(*events: Event) -> set[str]:
    """What is wrong with resets, or with what brokers know of them."""
    queues = (), (), (), ((0, FIRST), (1, SECOND))
    offsets = ((MOVABLE_QUEUE, 1),)
    ends = [state(number, queues=queues, offsets=offsets) for number in range(2)]
    ordered = sorted([*BEFORE, *events], key=lambda event: event.at)
    return broken(ordered, *ends)


def test_reset_that_no_member_follows_is_reported() -> None:
    told, heard = {"reset without effect"}, knows(10.5, 0)
    again = attrs.evolve(received(11.0, SECOND, 1), queue_id=MOVABLE_QUEUE)
    assert of_resets(RESET, OBEYED, DONE, heard) == told
    assert of_resets(RESET, OBEYED, heard) == told
    assert of_resets(RESET, OBEYED, DONE, heard, again) == set()
    assert of_resets(RESET, OBEYED, DONE, heard, attrs.evolve(again, at=9.0)) == told
    # One that was confirmed is carried out somewhere.
    assert of_resets(RESET, DONE) == told
    # Another one waited behind it.
    later = attrs.evolve(OBEYED, offset=2, before=1, generation=(1, 1))
    assert of_resets(RESET, OBEYED, later, DONE, heard) == set()
    commit = attrs.evolve(later, before=OBEYED.offset, generation=(1, 0), is_reset=False)
    by_mqadmin = attrs.evolve(RESET, at=9.0, who="mqadmin", offset=2)
    assert of_resets(RESET, by_mqadmin, OBEYED, commit, DONE, heard) == set()
    assert of_resets(RESET, OBEYED, commit, DONE, heard) == told
    # A member had it lower before.
    assert of_resets(RESET, attrs.evolve(OBEYED, before=0), DONE) == set()
    # Of Apache's tools a running member's next commit makes nothing.
    by_apache = (attrs.evolve(event, who="mqadmin") for event in (RESET, DONE))
    assert of_resets(*by_apache, attrs.evolve(OBEYED, is_reset=False, generation=(0, 1))) == set()


def test_reset_may_meet_another_order() -> None:
    """That was given later, or has a later generation."""
    heard = RESET, OBEYED, DONE, knows(10.5, 0)
    other = attrs.evolve(RESET, at=9.0, who="mqadmin", offset=0)
    late = attrs.evolve(other, at=12.0, outcome="No answer to UPDATE_CONSUMER_OFFSET (15)")
    assert of_resets(other, *heard) == {"reset without effect"}
    assert of_resets(other, *heard, late) == set()
    later = attrs.evolve(OBEYED, at=11.0, offset=0, before=1, generation=(2, 0))
    again = attrs.evolve(received(12.0, FIRST, 0), queue_id=MOVABLE_QUEUE)
    lower = attrs.evolve(RESET, at=11.0, offset=0)
    end = attrs.evolve(knows(12.0, 0, 2, 0), offsets=((MOVABLE_QUEUE, 0),))
    assert of_resets(*heard, lower, later, end) == {"reset without effect"}
    assert of_resets(*heard, lower, later, end, again) == set()


@pytest.mark.parametrize(
    ("how", "at", "is_forgotten"),
    [
        ("kill", 12.0, True),
        ("kill", 20.0, False),
        ("stop", 12.0, False),
        ("power cut", 12.0, True),
        ("wiped", 20.0, True),
        ("older copy", 20.0, True),
    ],
)
def test_reset_may_go_with_the_memory_or_disk_of_all_that_have_heard_of_it(
    how: str, at: float, is_forgotten: bool
) -> None:
    """A master that comes back asks the slave, if that can be asked."""

    def told(*more: Event, asked: str = "answered") -> set[str]:
        again = restarted(at, how, asked=asked)
        ended, back, began = again[0], again[2], again[3]
        assert isinstance(ended, MemberEnded)
        assert isinstance(back, MemberStarted)
        assert isinstance(began, ReignBegan)
        again[0] = attrs.evolve(ended, offsets=((MOVABLE_QUEUE, 1),), generation=(1, 0))
        again[2] = attrs.evolve(back, offsets=((MOVABLE_QUEUE, 2),))
        again[3] = attrs.evolve(began, offsets=((MOVABLE_QUEUE, 2),), named=(1,))
        late = attrs.evolve(seen(at + 2, 0, 2, MOVABLE_QUEUE))
        resets = {"offset forgotten", "slaves were not asked", "reset without effect"}
        return of_resets(RESET, OBEYED, DONE, knows(10.5, 0), *more, *again, late) & resets

    lost = set() if is_forgotten else {"offset forgotten"}
    assert told() == lost
    assert told(knows(10.5, 1)) == lost | {"slaves were not asked"}
    assert told(knows(10.5, 1), asked="failed") == lost


def test_offset_may_go_with_a_disk_that_takes_nothing() -> None:
    """Shortly before its broker ends."""
    ended, *again = restarted(40.0, "kill", offset=1)
    for trouble_at, promises in ((34.0, set()), (33.0, {"offset forgotten"})):
        cut = attrs.evolve(ended, disk_trouble_at=trouble_at)
        told = broken([*RIGHT, seen(30.0, 0, 2), cut, *again])
        assert told & {"offset forgotten"} == promises


def test_offset_of_a_slave_with_another_end_counts_where_both_logs_agree() -> None:
    """Until it has cut that end off, and follows."""
    lost = switched(30.0, kept=100, own=300)
    again = ReignBegan(
        at=51.0, broker=1, kept=500, others=((0, 200, 200), (1, 500, 500)), offsets=((0, 1),),
        queue_ends=(5, 0, 0, 0), asked=((0, "answered"),),
    )  # fmt: skip
    steps = seen(39.0, 1, 1), seen(40.0, 0, 2), ReignEnded(at=50.0, broker=1, log_end=500)
    told = "slaves were not asked"
    assert told not in broken([*RIGHT, *lost, *steps, again])
    assert told in broken([*RIGHT, *lost, *steps, attrs.evolve(again, offsets=((0, 0),))])
    assert told in broken([*RIGHT, *lost, cut(at=35.0, is_proven=False), *steps, again])


def test_offset_of_a_slave_counts_up_to_where_the_epochs_of_a_master_are_known() -> None:
    def told(offset: int, known_to: tuple[int, ...]) -> bool:
        ended, reign_ended, started, began = restarted(40.0, "epochs gone", offset=offset)
        assert isinstance(began, ReignBegan)
        began = attrs.evolve(began, epochs_known_to=known_to)
        events = seen(39.0, 1, 2), ended, reign_ended, started, began
        return "slaves were not asked" in broken([*RIGHT, *events])

    assert told(1, ())
    assert told(1, (2, 0, 0, 0))
    assert not told(1, (1, 0, 0, 0))
    assert told(0, (1, 0, 0, 0))


def test_slave_may_fall_to_what_a_master_without_epochs_began_with() -> None:
    def told(offset: int, known_to: tuple[int, ...]) -> bool:
        ended, reign_ended, started, began = restarted(40.0, "epochs gone", offset=1)
        assert isinstance(began, ReignBegan)
        began = attrs.evolve(began, epochs_known_to=known_to)
        events = seen(39.0, 1, 2), ended, reign_ended, started, began, seen(44.0, 1, offset)
        return "offset went back" in broken([*RIGHT, *events])

    assert told(1, ())
    assert not told(1, (0, 0, 0, 0))
    assert told(0, (0, 0, 0, 0))


def test_reset_may_stay_with_a_master_that_cannot_be_asked_when_the_next_one_begins() -> None:
    def told(asked: str) -> bool:
        ended, began = switched(11.0, asked=asked)
        assert isinstance(began, ReignBegan)
        began = attrs.evolve(began, offsets=((MOVABLE_QUEUE, 2),), named=(0,))
        heard = RESET, OBEYED, DONE, knows(10.5, 0)
        return "slaves were not asked" in of_resets(*heard, ended, began)

    assert told("answered")
    assert not told("failed")


def test_offset_that_is_lowered_without_an_order_is_reported() -> None:
    """Each broker carries out an order once, and each other one follows each time."""
    fall = attrs.evolve(OBEYED, is_reset=False)
    told = {"lowered without an order"}
    assert of_resets(fall) == told
    lower = attrs.evolve(RESET, offset=0)
    assert of_resets(lower, fall) == set()
    assert of_resets(attrs.evolve(lower, queue_id=0), fall) == told
    assert of_resets(attrs.evolve(lower, offset=2), fall) == told
    assert of_resets(lower, fall, attrs.evolve(fall, broker=1)) == set()
    assert of_resets(lower, fall, attrs.evolve(fall, at=11.0)) == told
    forward = attrs.evolve(fall, offset=2, generation=(0, 1))
    assert of_resets(forward) == set()
    # The master's queue ends there: nothing is read again.
    assert of_resets(attrs.evolve(fall, queue_end=1)) == set()
    assert of_resets(attrs.evolve(fall, queue_end=2)) == told
    # It ended there when a member came, that was sent beyond it.
    beyond = attrs.evolve(forward, offset=5, queue_end=1)
    later = attrs.evolve(fall, at=11.0, before=5, queue_end=3)
    assert of_resets(beyond, later) == set()
    assert of_resets(attrs.evolve(beyond, queue_end=2), later) == told


def test_slave_that_left_while_a_message_was_sent_counts_with_what_it_had() -> None:
    """The answer may have waited longer than its slave was there."""
    start, answer = sent(1.0, FIRST, 0, held_by=((0, 200, 200), (1, 0, 0)))
    answer = attrs.evolve(answer, at=1.5)
    wiped = attrs.evolve(restarted(1.2, "wiped", flushed=0)[0], broker=1, role="slave")
    told = {"acknowledged before a slave had it"}

    def acknowledged(slave: Event, acknowledge: str = "memory") -> set[str]:
        mode = attrs.evolve(MODE, acknowledge=acknowledge)
        schedule = Schedule(1, mode, (), (), 0, 25.0, (), 25.0)
        story = Story(
            schedule, History(1, [start, slave, answer]), FinalState((), came_to_rest=True)
        )
        return {violation.invariant for violation in answers_wait_for_what_they_say(story)}

    assert acknowledged(wiped) == set()
    assert acknowledged(wiped, "disk") == told
    assert acknowledged(attrs.evolve(wiped, log_end=50)) == told
    assert acknowledged(attrs.evolve(wiped, at=0.9)) == told
    assert acknowledged(attrs.evolve(wiped, broker=0)) == told


def test_message_not_promised_to_the_disk_may_go_with_the_power() -> None:
    cut = tail_cut(slave_end=100)
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    ends: dict[str, Any] = {"master": left, "slave": attrs.evolve(left, broker=1)}
    assert broken([*RIGHT, *cut], **ends, flush="async") == set()
    on_disk = restarted(30.0, "power cut", flushed=200, kept=100, slave_end=100)
    told = {"acknowledged and lost", "a slave still had the tail", "came back with less"}
    assert broken([*RIGHT, *on_disk], **ends, flush="sync") == told


def test_tail_that_a_slave_still_had_is_missed() -> None:
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    level = attrs.evolve(left, broker=1)
    told = {"a slave still had the tail", "acknowledged and lost"}
    assert broken([*RIGHT, *tail_cut(slave_end=200)], left, level, flush="async") == told


def test_acknowledged_message_that_no_group_gets_is_reported() -> None:
    """Also at a place that was used before, by a message that was lost, and which members have passed."""
    third = b"third"
    left = state(0, queues=(((0, FIRST), (1, third)), (), (), ()))
    again = [*RIGHT, *tail_cut(slave_end=100), *sent(40.0, third, 1)]
    handed = [pulled(41.0, third, 1), received(41.0, third, 1)]
    assert _undelivered(RIGHT, state(0)) == []
    assert _undelivered([event for event in RIGHT if event != received(3.0, SECOND, 1)], state(0))
    assert _undelivered(again, left)
    assert _undelivered([*again, *handed], left) == []


def test_message_of_the_movable_queue_may_be_passed_over_only_by_an_order() -> None:
    """After a loss an operator may reset to what a slave had committed: other messages have the offsets before it."""
    third = b"third"
    queues: list[tuple[tuple[int, bytes], ...]] = [(), (), (), ()]
    queues[MOVABLE_QUEUE] = ((0, FIRST), (1, third))
    left = state(0, queues=tuple(queues))
    before = [*sent(1.0, FIRST, 0, queue_id=MOVABLE_QUEUE)]
    before.append(attrs.evolve(received(3.0, FIRST, 0), queue_id=MOVABLE_QUEUE))
    after = [*tail_cut(slave_end=100), *sent(40.0, third, 1, queue_id=MOVABLE_QUEUE)]
    order = attrs.evolve(RESET, at=41.0, offset=2)
    obeyed = attrs.evolve(OBEYED, at=41.0, offset=2, before=1)

    def told(*events: Event) -> bool:
        return bool(_undelivered([*before, *after, *events], left))

    assert not told(order, obeyed)
    assert told(order)
    assert told(obeyed)
    assert told(attrs.evolve(order, offset=1), attrs.evolve(obeyed, offset=1))
    assert told(order, attrs.evolve(obeyed, before=2))
    # Another commit of that offset is no order, unless the order came as one.
    plain = attrs.evolve(obeyed, is_ordered=False)
    assert told(order, plain)
    assert not told(attrs.evolve(order, who="mqadmin"), plain)


def test_cluster_comes_to_rest_and_agrees_on_offsets_after_a_loss_too() -> None:
    cut = [*RIGHT, *tail_cut(slave_end=100)]
    one = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()), offsets=((0, 1),))
    other = attrs.evolve(one, broker=1)
    assert broken(cut, one, other, flush="async") == set()
    assert broken(cut, one, other, flush="async", came_to_rest=False) == {"no rest"}
    behind = attrs.evolve(other, offsets=((0, 0),))
    assert broken(cut, one, behind, flush="async") == {"offsets differ"}
    more = attrs.evolve(other, offsets=((0, 1), (1, 5)))
    assert broken(cut, one, more, flush="async") == {"offsets differ"}
    used = attrs.evolve(other, used_offsets=(("tasks", "tasks", 0, 5),))
    assert broken(cut, one, used, flush="async") == {"used_offsets differ"}


def test_offsets_that_are_forgotten_long_after_a_loss_are_reported() -> None:
    """Not in the seconds in which brokers find out what the shorter queues hold."""
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()), offsets=((0, 1),))
    ends: dict[str, Any] = {"master": left, "slave": attrs.evolve(left, broker=1), "flush": "async"}
    cut = [*RIGHT, *tail_cut(slave_end=100), seen(31.5, 0, 1), seen(31.5, 1, 1)]

    def again(at: float, how: str, offset: int) -> list[Event]:
        events = restarted(at, how, kept=100, flushed=100, offset=offset)
        ended, reign_ended, started, began = events
        ended = attrs.evolve(ended, log_end=100, left=100, offsets=((0, 1),))
        return [ended, attrs.evolve(reign_ended, log_end=100), started, began]

    assert broken([*cut, *again(40.0, "stop", 1)], **ends) == set()
    forgotten = {"offset forgotten", "slaves were not asked"}
    assert broken([*cut, *again(40.0, "stop", 0)], **ends) == forgotten
    assert broken([*cut, *again(34.0, "stop", 0)], **ends) == forgotten
    assert broken([*cut, *again(34.0, "stop", 1)], **ends) == set()
    lowered = [seen(38.0, 0, 1), Lowered(at=45.0, who="a", queue_id=0, offset=0, outcome="done")]
    lowered.append(seen(45.5, 0, 0))
    assert "offset forgotten" in broken([*cut, *lowered[:1], *again(50.0, "kill", 0)], **ends)
    assert "offset forgotten" not in broken([*cut, *lowered, *again(50.0, "kill", 0)], **ends)


def _undelivered(events: list[Event], master: BrokerState) -> list[Violation]:
    schedule = Schedule(1, MODE, (), (), 0, 25.0, (), 25.0)
    story = Story(schedule, History(1, events), FinalState((master,), came_to_rest=True))
    return list(acknowledged_messages_are_delivered(story))


def test_offset_of_a_slave_that_is_behind_may_fall_to_what_the_master_began_with() -> None:
    """The slave took it from a consumer that had read elsewhere."""
    ended, began = switched(30.0, offset=1)
    behind = attrs.evolve(began, broker=0, others=((0, 200, 200), (1, 100, 100)))
    level = attrs.evolve(began, broker=0)
    told = "offset went back"
    assert told not in broken([*RIGHT, ended, behind, seen(32.0, 1, 1)])
    assert told in broken([*RIGHT, ended, behind, seen(32.0, 1, 0)])
    assert told in broken([*RIGHT, ended, behind, seen(32.0, 0, 1)])
    assert told in broken([*RIGHT, ended, level, seen(32.0, 1, 1)])


def test_offset_that_falls_below_the_end_of_a_shorter_log_is_reported() -> None:
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    ends: dict[str, Any] = {"master": left, "slave": attrs.evolve(left, broker=1), "flush": "async"}
    cut = [*RIGHT, *tail_cut(slave_end=100)]
    assert broken([*cut, seen(32.0, 0, 1)], **ends) == set()
    assert broken([*cut, seen(32.0, 0, 0)], **ends) == {"offset went back"}


def test_offset_of_a_broker_that_was_away_while_its_end_was_lost_may_fall() -> None:
    """Its group still read it there."""
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    ends: dict[str, Any] = {"master": left, "slave": attrs.evolve(left, broker=1), "flush": "async"}
    ended, reign_ended, started, began = restarted(30.0, "power cut", flushed=100, kept=100)
    away = attrs.evolve(began, others=((0, 100, 100),), holders=((0, 100), (1, 200)))
    fall = seen(31.5, 1, 2), seen(32.0, 1, 1)
    told = "offset went back"
    cut = [*RIGHT, ended, reign_ended, started]
    assert told not in broken([*cut, away, *fall], **ends)
    assert told in broken([*cut, away, fall[0], seen(32.0, 1, 0)], **ends)
    assert told in broken([*cut, attrs.evolve(away, holders=((0, 100),)), *fall], **ends)


def test_what_the_disk_has_confirmed_is_shown_again_after_a_restart() -> None:
    """No slave had moved for long; whether a group read it before the restart makes no difference."""
    ended, _, started, began = restarted(20.0, "kill", flushed=300, kept=300, slave_end=100)
    shown = pulled(21.5, b"late", 2, held_by=((0, 300, 300), (1, 100, 100)))
    assert _shown(ended, started, began, shown) == set()
    unsynced = attrs.evolve(ended, flushed=200)
    assert _shown(unsynced, started, began, shown) == {"shown before it was confirmed"}


def test_what_a_broker_has_shown_it_shows_again_after_the_reign_of_one_with_less() -> None:
    ends = ((0, 100, 100), (1, 300, 300))
    reigns = [
        ReignBegan(at=5.1, broker=1, kept=300, others=ends, offsets=()),
        ReignBegan(at=5.2, broker=0, kept=100, others=ends, offsets=()),
        ReignBegan(at=5.3, broker=1, kept=100, others=ends, offsets=()),
    ]
    shown = attrs.evolve(pulled(5.4, b"late", 2, held_by=ends), broker=1, end_offset=250)
    confirmed = reported(5.0, 300, end=300)
    assert _shown(confirmed, *reigns, shown) == set()
    told = {"shown before it was confirmed"}
    assert _shown(confirmed, *reigns, attrs.evolve(shown, end_offset=300)) == told
    assert _shown(*reigns, shown) == told


def test_slave_confirms_what_it_reports_and_nothing_else() -> None:
    """What it has, on its disk or not, is for it to say."""
    shown = pulled(5.5, b"late", 2, held_by=((0, 300, 200), (1, 300, 300)))
    told = {"shown before it was confirmed"}
    assert _shown(shown) == told
    assert _shown(reported(5.4, 300, end=300), shown) == set()
    assert _shown(reported(5.4, 250, end=300), shown) == told
    assert _shown(reported(5.6, 300, end=300), shown) == told
    assert _shown(reported(5.4, 300, end=300, broker=1, slave=0), shown) == told


def test_unconfirmed_message_that_is_shown_is_reported() -> None:
    """A slave is behind: what it lacks is not shown until the own disk stands in for it."""
    behind = (0, 300, 300), (1, 200, 200)
    early = pulled(5.9, b"late", 2, held_by=behind)
    late = attrs.evolve(early, at=3.2 + SLAVE_TIMEOUT)
    assert _shown(early) == {"shown before it was confirmed"}
    assert _shown(late) == set()
    unsafe = attrs.evolve(late, held_by=((0, 300, 200), (1, 200, 200)))
    assert _shown(unsafe) == {"shown before it was confirmed"}
    assert _shown(early, role="async-master") == set()


def test_readers_follow_the_masters_disk_until_a_slave_has_everything() -> None:
    """One that gets further and is behind may not be level, and then moves nothing."""
    moved = reported(6.3, 300, end=450)
    shown = pulled(6.9, FIRST, 0, held_by=((0, 600, 600), (1, 300, 300)), end_offset=550)
    told = {"shown before it was confirmed"}
    assert _shown(moved, shown) == set()
    level = attrs.evolve(moved, address=450)
    assert _shown(level, shown) == told
    assert _shown(level, attrs.evolve(shown, at=6.3 + SLAVE_TIMEOUT)) == set()
    # What the disk had shown before stays visible.
    before = attrs.evolve(shown, end_offset=440)
    assert _shown(attrs.evolve(level, address=450, flushed=600), shown) == set()
    assert _shown(attrs.evolve(level, at=6.5), before) == set()


def test_slave_that_only_gets_to_where_the_gate_began_does_not_move_it() -> None:
    restart = restarted(10.0, "kill", kept=300, flushed=300, slave_end=100)
    shown = pulled(14.1, FIRST, 0, held_by=((0, 400, 400), (1, 300, 300)), end_offset=350)
    assert _shown(*restart, reported(13.6, 300, end=300), shown) == set()
    beyond = reported(13.6, 301, end=301)
    assert _shown(*restart, beyond, shown) == {"shown before it was confirmed"}


def _shown(*events: Event, **mode: Any) -> set[str]:
    schedule = Schedule(1, attrs.evolve(MODE, **mode), (), (), 0, 25.0, (), 25.0)
    slow, level = reported(3.1, 100), reported(3.2, 200)
    ordered = sorted([slow, level, *events], key=lambda event: event.at)
    story = Story(schedule, History(1, ordered), FinalState((), came_to_rest=True))
    return {violation.invariant for violation in readers_see_what_is_confirmed(story)}


def cut(**changes: Any) -> TailCut:
    """The former master gives the second message up, which it acknowledged."""
    event = TailCut(at=31.0, broker=0, start=100, end=200, is_proven=True, bodies=((0, SECOND),))
    return attrs.evolve(event, **changes)


def ended_by(how: str, *, broker: int = 1, at: float = 8.0) -> Event:
    return attrs.evolve(restarted(at, how)[0], broker=broker)


def _tails(*events: Event, **mode: Any) -> set[str]:
    changed = attrs.evolve(MODE, **mode)
    schedule = Schedule(1, changed, (), (), 0, 25.0, (), 25.0)
    history = History(1, [*sent(6.0, SECOND, 1), *events])
    story = Story(schedule, history, FinalState((), came_to_rest=True))
    found = (
        *nothing_acknowledged_is_cut_automatically(story),
        *slaves_wait_for_what_was_acknowledged(story),
    )
    return {violation.invariant for violation in found}


@pytest.mark.parametrize(
    ("event", "is_told"),
    [
        (cut(), True),
        (cut(is_proven=False), False),
        (cut(broker=1), False),
        (cut(at=5.0), False),
        (cut(start=160), False),
        (cut(bodies=((0, b"another"),)), False),
        (cut(bodies=((1, SECOND),)), False),
    ],
)
def test_cut_of_what_the_broker_itself_acknowledged_is_reported(
    event: TailCut, is_told: bool
) -> None:
    assert _tails(event) == ({"was cut though acknowledged"} if is_told else set())
    assert _tails(event, slaves=2) == _tails(event)


@pytest.mark.parametrize(
    ("power_cut", "noted", "left", "is_excused"),
    [(7.0, 100, 100, True), (8.5, 100, 100, False), (7.0, 200, 100, False), (7.0, 100, 200, False)],
)
def test_cut_is_excused_where_the_report_was_not_on_the_disk_yet(
    power_cut: float, noted: int, left: int, is_excused: bool
) -> None:
    """Both lost it: the master its note of the report, by a power cut, and the slave what it had reported."""
    lost = attrs.evolve(ended_by("power cut", broker=0, at=power_cut), noted=noted)
    set_back = attrs.evolve(ended_by("older copy", at=20.0), left=left)
    assert (_tails(lost, set_back, cut()) == set()) is is_excused


def waits(why: str) -> TailWaits:
    return TailWaits(at=31.0, broker=0, start=100, end=200, why=why, bodies=((0, SECOND),))


def test_wait_of_a_slave_without_a_reason_is_reported() -> None:
    had = waits("slave 10.0.0.11:10911 had acknowledged this log up to 200")
    unknown = waits("slaves that counted in epoch 1 may have had it: 9f")
    told = {"waits though nothing was acknowledged"}
    for wait in (had, unknown):
        assert _tails(wait) == told
        assert _tails(reported(7.0, 150), wait) == set()
        assert _tails(reported(7.0, 100), wait) == told
        assert _tails(reported(7.0, 150, broker=1), wait) == told
        # By the rule `cut` it does not wait.
        assert _tails(cut(is_proven=False, why=wait.why)) == told
        assert _tails(reported(7.0, 150), cut(is_proven=False, why=wait.why)) == set()
    lost = attrs.evolve(ended_by("power cut"), left=100)
    for event in (lost, cut(broker=1, is_proven=False)):
        assert _tails(event, had) == told
        assert _tails(event, unknown) == set()
    kept = attrs.evolve(lost, left=200)
    assert _tails(kept, unknown, acknowledge="memory") == set()
    assert _tails(kept, unknown, acknowledge="disk") == told
    assert _tails(attrs.evolve(kept, how="kill"), unknown, acknowledge="memory") == told
    assert _tails(attrs.evolve(lost, broker=0), unknown) == told
    assert _tails(unknown, slaves=2) == set()
    assert _tails(had, slaves=2) == told
    early = waits("epoch 1 answered before any slave had a message")
    assert _tails(early) == told
    assert _tails(early, role="async-master") == set()
    few = waits("in epoch 1 something was answered before slaves had it: a topic's deletion")
    assert _tails(few) == told
    assert _tails(AnsweredEarly(at=7.0, broker=0), few) == set()
    assert _tails(AnsweredEarly(at=7.0, broker=1), few) == told
    assert _tails(AnsweredEarly(at=32.0, broker=0), few) == told
    assert _tails(waits("readers had been shown this log up to 200")) == set()
