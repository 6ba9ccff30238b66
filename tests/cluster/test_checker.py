"""The checker on histories made by hand: a right one passes, and each way to be wrong is told by its name."""

from typing import Any

import attrs
import pytest
from tests.cluster.histories.checker import (
    answers_wait_for_what_they_say,
    check,
    former_masters_lead_nobody,
    nothing_acknowledged_is_cut_automatically,
    slaves_wait_for_what_was_acknowledged,
)
from tests.cluster.histories.checker_readers import (
    SLAVE_TIMEOUT,
    acknowledged_messages_are_delivered,
    readers_see_what_is_confirmed,
)
from tests.cluster.histories.events import (
    Committed,
    Event,
    FaultBegan,
    FaultEnded,
    HandedOver,
    History,
    LogsCompared,
    Lowered,
    MemberEnded,
    MemberStarted,
    OffsetsSeen,
    PassingPulled,
    PassingSent,
    Pulled,
    Received,
    ReignBegan,
    ReignEnded,
    RivalAnswered,
    RivalEnded,
    SendAnswered,
    SendStarted,
    StrangerAnswered,
    TailCut,
    TailWaits,
    TopicCreated,
    TopicRemade,
    TwoMasters,
)
from tests.cluster.histories.schedule import MOVABLE_QUEUE, Failover, Fault, Mode, Schedule
from tests.cluster.histories.story import BrokerState, FinalState, Story
from tests.cluster.histories.violation import Violation

from rocketrio_broker.ha.client import HAClientState
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
) -> list[Event]:
    """The master is down for a second; by default a slave has no more than it comes back with."""
    slave_end = kept if slave_end is None else slave_end
    others = (0, kept, kept), (1, slave_end, slave_end)
    offsets = ((0, offset),)
    role = "async-master"
    return [
        MemberEnded(
            at=at, broker=0, role=role, how=how, log_end=200, flushed=flushed, offsets=((0, 2),)
        ),
        ReignEnded(at=at, broker=0, log_end=200),
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
        ),
    ]


def switched(at: float, *, kept: int = 200, offset: int = 2) -> list[Event]:
    """The slave becomes master, with so much of the log, and with this offset."""
    others = (0, 200, 200), (1, 200, 200)
    return [
        ReignEnded(at=at, broker=0, log_end=200),
        ReignBegan(at=at + 1, broker=1, kept=kept, others=others, offsets=((0, offset),)),
    ]


RIGHT: list[Event] = [
    *sent(1.0, FIRST, 0),
    *sent(2.0, SECOND, 1),
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
        ("skipped", [received(10.0, SECOND, 3)]),
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


def test_new_master_that_lost_its_end_meanwhile_was_handed_over_all() -> None:
    ended = MemberEnded(
        at=40.5, broker=1, role="slave", how="torn end", log_end=200, flushed=150, offsets=()
    )
    reign_ended, reign_began = switched(40.0, kept=150)
    events = [*RIGHT, reign_ended, ended, reign_began, HandedOver(at=42.0, former=0, broker=1)]
    assert "handed over with less" not in broken(events)
    assert "handed over with less" in broken([event for event in events if event is not ended])


def test_loss_of_a_torn_end_is_excused_only_while_the_other_copy_is_out_of_reach() -> None:
    """Whichever of the two lost its end, and begins to reign without the other one."""
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    ends: dict[str, Any] = {"master": left, "slave": attrs.evolve(left, broker=1)}
    stopped = MemberEnded(
        at=30.5, broker=1, role="slave", how="stop", log_end=200, flushed=200, offsets=()
    )
    ended, reign_ended, started, began = restarted(30.0, "torn end", kept=100, slave_end=200)
    back = MemberStarted(
        at=30.9, broker=1, role="slave", log_end=200, kept=200, others=(), offsets=()
    )
    torn = [*RIGHT, ended, reign_ended]
    sync = {"role": "sync-master", **ends}
    assert "acknowledged and lost" in broken([*torn, started, began], **sync)
    assert "acknowledged and lost" not in broken([*torn, stopped, started, began], **sync)
    assert "acknowledged and lost" in broken([*torn, stopped, back, started, began], **sync)
    assert "acknowledged and lost" in broken(
        [*RIGHT, attrs.evolve(ended, how="kill"), reign_ended, stopped, started, began], **sync
    )


@pytest.mark.parametrize(
    ("how", "flushed", "is_master_down", "is_excused"),
    [
        ("power cut", 100, True, True),
        ("power cut", 200, True, False),
        ("kill", 100, True, False),
        ("power cut", 100, False, False),
    ],
)
def test_what_a_slave_has_only_in_memory_may_go_with_its_power_while_the_master_is_down(
    how: Any, flushed: int, is_master_down: bool, is_excused: bool
) -> None:
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    cut = MemberEnded(
        at=38.5, broker=1, role="slave", how=how, log_end=200, flushed=flushed, offsets=()
    )
    back = MemberStarted(
        at=39.0, broker=1, role="slave", log_end=100, kept=100, others=(), offsets=()
    )
    killed = attrs.evolve(cut, at=38.0, broker=0, role="sync-master", how="kill")
    events = [*RIGHT, *([killed] if is_master_down else []), cut, back, *switched(40.0, kept=100)]
    told = broken(
        events, left, attrs.evolve(left, broker=1), flush="async", role="sync-master",
        faults=(Fault(39.5, 9.0, "pause", "master"),),
    )  # fmt: skip
    assert ("acknowledged and lost" not in told) is is_excused


@pytest.mark.parametrize(
    ("fault", "is_excused"),
    [
        (Fault(35.0, 9.0, "partition", "name server", "master"), True),
        (Fault(35.0, 2.0, "partition", "name server", "master"), True),
        (Fault(20.0, 2.0, "partition", "name server", "master"), False),
        (Fault(35.0, 9.0, "partition", "name server", "slave-1"), False),
        (Fault(35.0, 9.0, "name server down", "name server"), True),
    ],
)
def test_master_without_a_name_server_gives_up_long_before_it_takes_writes(
    fault: Fault, is_excused: bool
) -> None:
    """The other copy came back a moment later, and was not asked."""
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    ended, reign_ended, started, began = restarted(30.0, "torn end", kept=100, slave_end=200)
    stopped = MemberEnded(
        at=30.5, broker=1, role="slave", how="stop", log_end=200, flushed=200, offsets=()
    )
    back = MemberStarted(
        at=36.0, broker=1, role="slave", log_end=200, kept=200, others=(), offsets=()
    )
    late = (attrs.evolve(started, at=40.0), attrs.evolve(began, at=40.0))
    told = broken(
        [*RIGHT, ended, reign_ended, stopped, back, *late],
        left,
        attrs.evolve(left, broker=1),
        faults=(fault,),
        role="sync-master",
    )
    assert ("acknowledged and lost" not in told) is is_excused


@pytest.mark.parametrize(
    ("fault", "is_excused"),
    [
        (Fault(29.0, 9.0, "one way", "slave-1", "master"), True),
        (Fault(29.0, 9.0, "partition", "master", "slave-1"), True),
        (Fault(30.5, 9.0, "partition", "master", "slave-1"), False),
        (Fault(28.0, 1.9, "partition", "master", "slave-1"), False),
        (Fault(29.0, 9.0, "pause", "slave-1"), True),
        (Fault(29.0, 9.0, "silence", "master"), True),
        (Fault(29.0, 9.0, "pause", "slave-2"), False),
        (Fault(29.0, 9.0, "delay", "master", "slave-1", 0.2), False),
        (Fault(29.0, 9.0, "partition", "master", "name server"), False),
    ],
)
def test_loss_of_a_torn_end_is_excused_where_the_other_copy_was_cut_off_all_the_time(
    fault: Fault, is_excused: bool
) -> None:
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    told = broken(
        [*RIGHT, *restarted(30.0, "torn end", kept=100, slave_end=200)],
        left,
        attrs.evolve(left, broker=1),
        faults=(fault,),
        role="sync-master",
    )
    assert ("acknowledged and lost" not in told) is is_excused


@pytest.mark.parametrize(
    ("faults", "role", "is_excused"),
    [
        ((Fault(29.0, 20.0, "one way", "master", "slave-1"),), "async-master", True),
        ((Fault(29.0, 20.0, "one way", "master", "slave-1"),), "sync-master", False),
        ((Fault(40.5, 20.0, "partition", "master", "slave-1"),), "async-master", False),
        ((Fault(29.0, 10.5, "partition", "master", "slave-1"),), "async-master", False),
        ((), "async-master", False),
    ],
)
def test_loss_by_the_order_of_an_operator_is_excused_where_the_former_master_was_cut_off(
    faults: tuple[Fault, ...], role: str, is_excused: bool
) -> None:
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    told = broken(
        [*RIGHT, *switched(40.0, kept=100)],
        left,
        attrs.evolve(left, broker=1),
        faults=faults,
        role=role,
    )
    assert ("acknowledged and lost" not in told) is is_excused


def test_loss_is_excused_where_the_former_master_lost_its_end_before_the_next_one_had_it() -> None:
    """Unless a slave had confirmed it."""
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    reign_ended, began = switched(40.0, kept=100)
    torn, _, back, _ = restarted(40.5, "torn end")
    torn, back = attrs.evolve(torn, role="slave"), attrs.evolve(back, role="slave")

    def is_told(damage: list[Event], role: str) -> bool:
        events = [*RIGHT, reign_ended, *damage, attrs.evolve(began, at=45.0)]
        ends = {"master": left, "slave": attrs.evolve(left, broker=1)}
        return "acknowledged and lost" in broken(events, role=role, flush="sync", **ends)

    assert is_told([], "async-master")
    assert not is_told([torn, back], "async-master")
    assert is_told([torn, back], "sync-master")


def test_message_of_a_second_history_is_gone_when_an_operator_chooses_the_older_one() -> None:
    """An asynchronous master that lost everything, and knows nobody, begins anew."""
    other = attrs.evolve(sent(32.0, b"anew", 0)[1], end_offset=50)
    restart = restarted(30.0, "wiped", kept=0, slave_end=200)
    decided = [
        ReignEnded(at=33.0, broker=0, log_end=100),
        ReignBegan(at=33.5, broker=1, kept=4, others=((0, 100, 100), (1, 200, 200)), offsets=()),
    ]

    def is_told(*events: Event, **mode: Any) -> bool:
        return "acknowledged and lost" in broken([*RIGHT, *events], **mode)

    assert not is_told(*restart, other, *decided)
    assert is_told(*restart, other, *decided, role="sync-master")
    # It began with a part of what the chosen one has.
    cut_off = switched(30.0, kept=100)[1]
    other_way = [
        ReignEnded(at=33.0, broker=1, log_end=300),
        ReignBegan(at=33.5, broker=0, kept=104, others=((0, 200, 200),), offsets=()),
    ]
    later = attrs.evolve(other, end_offset=150)
    assert not is_told(switched(30.0)[0], cut_off, later, *other_way)
    followed = attrs.evolve(other_way[1], kept=140, others=((0, 140, 140),))
    assert is_told(switched(30.0)[0], cut_off, later, other_way[0], followed)
    # The chosen one had nothing either, or the first one did not begin anew.
    assert is_told(*restarted(30.0, "wiped", kept=0, slave_end=0), other, *decided)
    assert is_told(*restarted(30.0, "kill"), other, *decided)


def test_logs_that_differ_below_their_boundary_are_reported() -> None:
    """Whoever follows whom: here both are masters of an epoch of their own behind the first one."""
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
    assert broken([*RIGHT, compared]) == {"logs differ below their boundary"}
    assert broken([*RIGHT, attrs.evolve(compared, same=150)]) == set()
    # What a crash tore is mended once the other one has answered.
    torn = restarted(20.0, "torn end")
    assert broken([*RIGHT[:-4], *torn, compared]) == set()


def test_former_master_that_serves_readers_is_reported() -> None:
    failover = Failover(40.0, "slave-1", 0.0, 1.0, 1.0, 8.0)
    schedule = Schedule(1, MODE, (), (), 0, 60.0, (), 60.0, switches=(failover,))

    def told(*more: Event) -> list[str]:
        events = [*RIGHT, *switched(40.0), *more]
        story = Story(schedule, History(1, events), FinalState((), came_to_rest=True))
        return [violation.invariant for violation in former_masters_lead_nobody(story)]

    served = pulled(42.0, FIRST, 0, role="sync-master")
    assert told(served) == ["a former master was read from"]
    assert told(attrs.evolve(served, role="slave")) == []
    assert told(attrs.evolve(served, broker=1)) == []


def test_commit_that_no_broker_has_is_reported() -> None:
    confirmed = Committed(
        at=30.0, consumer="consumer-0", offsets=((0, 3),), held_by=((0, 0, 2),), all_seen=True
    )
    assert broken([*RIGHT, confirmed]) == {"confirmed and nowhere"}


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


def test_producer_that_reaches_no_broker_at_the_end_is_reported() -> None:
    assert broken(RIGHT, producers=1) == {"no send"}


def test_offset_may_fall_where_an_operator_lowered_it() -> None:
    def lowered(offset: int) -> list[Event]:
        steps: list[Event] = [
            Lowered(at=10.0, who="operator", queue_id=MOVABLE_QUEUE, offset=offset, outcome="done")
        ]
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


def test_reset_that_no_member_follows_is_reported() -> None:
    reset = Lowered(at=10.0, who="operator", queue_id=0, offset=1, outcome="begins")
    done = [reset, attrs.evolve(reset, outcome="done")]
    assert broken([*RIGHT, *done]) == {"reset without effect"}
    # Somebody else had lowered it further a moment before.
    other = [attrs.evolve(one, at=9.9, who="mqadmin", offset=0) for one in done]
    assert broken([*RIGHT, *other, *done]) == set()
    assert broken([*RIGHT, *done, received(11.0, SECOND, 1)]) == set()
    # No slave had copied it yet.
    for how, after, is_excused in (
        ("wiped", 0.2, True),
        ("wiped", 2.0, False),
        ("kill", 0.2, False),
    ):
        again = restarted(10.0 + after, how)
        assert (broken([*RIGHT, *done, *again]) == set()) is is_excused
    # Of Apache's tools a running member's next commit makes nothing.
    assert broken([*RIGHT, *(attrs.evolve(event, who="mqadmin") for event in done)]) == set()


def test_reset_may_raise_what_a_paused_broker_knew_before() -> None:
    """It carries out what waits when it goes on: the other order, and then the reset, which is higher."""
    reset = Lowered(at=10.0, who="operator", queue_id=0, offset=1, outcome="begins")
    done = [reset, attrs.evolve(reset, at=12.0, outcome="done")]
    pause = FaultBegan(at=6.0, fault="pause master for 6 s")
    over = FaultEnded(at=12.0, fault=pause.fault)
    other = attrs.evolve(
        reset, at=7.0, who="mqadmin", offset=0, outcome="No answer to UPDATE_CONSUMER_OFFSET (15)"
    )
    looked = seen(8.0, 1, 2)
    told = {"reset without effect"}
    assert broken([*RIGHT, pause, other, looked, done[0], over, done[1]]) == set()
    assert broken([*RIGHT, pause, looked, done[0], over, done[1]]) == told
    for outcome in "done", "No connection to 10.0.0.10:10911 (refused)":
        answered = attrs.evolve(other, outcome=outcome)
        assert broken([*RIGHT, pause, answered, looked, done[0], over, done[1]]) == told
    late = attrs.evolve(pause, at=7.5)
    assert broken([*RIGHT, other, late, looked, done[0], over, done[1]]) == told
    soon = attrs.evolve(over, at=9.0)
    assert broken([*RIGHT, pause, other, looked, soon, *done]) == told


def test_reset_may_be_undone_by_a_later_order_that_waited_at_a_starting_broker() -> None:
    """Plain commits count as they come, and mqadmin sends such."""
    right = RIGHT[: -len(restarted(20.0, "kill"))]
    ended, reign_ended, started, began = restarted(20.0, "kill")
    other = Lowered(
        at=21.0,
        who="mqadmin",
        queue_id=0,
        offset=1,
        outcome="No answer to UPDATE_CONSUMER_OFFSET (15)",
    )
    reset = Lowered(at=22.0, who="operator", queue_id=0, offset=0, outcome="begins")
    done = [reset, attrs.evolve(reset, outcome="done")]
    told = "reset without effect"

    def story(order: Lowered, *, starts: float) -> set[str]:
        later = [attrs.evolve(event, at=starts) for event in (started, began)]
        events = [*right, ended, reign_ended, order, *done, *later]
        return broken(sorted(events, key=lambda event: event.at))

    assert told not in story(other, starts=23.0)
    assert told in story(other, starts=21.5)
    assert told in story(attrs.evolve(other, outcome="No connection"), starts=23.0)
    assert told in story(attrs.evolve(other, at=19.0), starts=23.0)


def test_reset_may_go_with_a_disk_that_takes_nothing() -> None:
    """From before the reset until shortly before its broker ends."""
    full = FaultBegan(at=9.0, fault="full disk master for 3 s")
    mended = FaultEnded(at=17.0, fault=full.fault)
    right = RIGHT[: -len(restarted(20.0, "kill"))]
    reset = Lowered(at=10.0, who="operator", queue_id=0, offset=1, outcome="begins")
    done = [reset, attrs.evolve(reset, outcome="done")]
    told = {"reset without effect"}
    assert broken([*right, full, *done, mended, *restarted(20.0, "kill")]) == set()
    assert broken([*right, full, *done, mended, *restarted(25.0, "kill")]) == told
    late = attrs.evolve(full, at=11.0)
    assert broken([*right, *done, late, mended, *restarted(20.0, "kill")]) == told
    other = [attrs.evolve(one, fault="full disk slave-1 for 3 s") for one in (full, mended)]
    assert broken([*right, other[0], *done, other[1], *restarted(20.0, "kill")]) == told


def test_reset_may_stay_with_a_master_that_goes_down_before_slaves_copy_it() -> None:
    """And only while it is down when the next one begins without it."""
    right = RIGHT[: -len(restarted(20.0, "kill"))]
    reset = Lowered(at=10.0, who="operator", queue_id=0, offset=1, outcome="begins")
    done = [reset, attrs.evolve(reset, outcome="done")]

    def failed_over(at: float, offset: int = 2) -> list[Event]:
        ended, reign_ended, started, _ = restarted(at, "kill")
        began = switched(at, offset=offset)[1]
        return [ended, reign_ended, began, attrs.evolve(started, at=at + 4)]

    told = "reset without effect"
    assert broken([*right, *done, *failed_over(11.0)]) == set()
    assert told in broken([*right, *done, *failed_over(12.0)])
    assert told in broken([*right, *done, *failed_over(11.0, offset=1)])
    assert told in broken([*right, *done, *switched(11.0)])


def test_reset_where_the_one_before_was_not_heard_of_may_lose() -> None:
    """And so may one at the next master, but not at a master that has heard of both."""
    at_master = Lowered(at=18.0, who="operator", queue_id=0, offset=1, outcome="done")
    begins = Lowered(at=20.5, who="operator", queue_id=0, offset=0, outcome="begins")
    told = "reset without effect"

    def story(*earlier: Event, at: float = 20.5) -> set[str]:
        both = [
            attrs.evolve(begins, at=at),
            attrs.evolve(begins, at=at, outcome="done"),
            seen(at + 0.1, 1, 0),
        ]
        return broken(sorted([*RIGHT, *earlier, *both], key=lambda event: event.at))

    heard = seen(18.5, 0, 1)
    assert told not in story(at_master, heard)
    assert told in story(heard)
    assert told in story(at_master, heard, seen(19.0, 1, 1))
    assert told in story(attrs.evolve(at_master, outcome="No connection"), heard)
    assert told in story(at_master, heard, at=22.0)
    # Two slaves, each without a master.
    other = attrs.evolve(at_master, at=20.1)
    assert told not in story(other, seen(20.2, 2, 1))
    assert told in story(other)
    assert told in story(other, seen(20.2, 1, 1))
    # The slave has become master in between.
    new_reign = attrs.evolve(switched(21.0)[1], at=21.5)
    assert told not in story(at_master, heard, new_reign, at=22.0)
    assert told in story(at_master, heard, seen(19.0, 1, 1), new_reign, at=22.0)


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
    assert "acknowledged and lost" in broken([*RIGHT, *cut], **ends, flush="sync")


def test_tail_that_a_slave_still_had_is_missed() -> None:
    """And a slave that is left ahead is right only while it says so."""
    cut = tail_cut(slave_end=200)
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()))
    level = attrs.evolve(left, broker=1)
    assert broken([*RIGHT, *cut], left, level, flush="async") == {"a slave still had the tail"}
    ahead = state(1, log=b"a" * 2 * SIZE, replication=HAClientState.AHEAD.value)
    assert broken([*RIGHT, *cut], left, ahead, flush="async") == {"a slave still had the tail"}
    silent = attrs.evolve(ahead, replication="following")
    assert "a slave is not level" in broken([*RIGHT, *cut], left, silent, flush="async")


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


def test_message_of_the_movable_queue_may_be_passed_over_only_by_a_reset_after_a_loss() -> None:
    """To what a slave had committed: before that place other messages have the offsets now."""
    third = b"third"
    queues: list[tuple[tuple[int, bytes], ...]] = [(), (), (), ()]
    queues[MOVABLE_QUEUE] = ((0, FIRST), (1, third))
    left = state(0, queues=tuple(queues))
    before = [*sent(1.0, FIRST, 0, queue_id=MOVABLE_QUEUE)]
    before.append(attrs.evolve(received(3.0, FIRST, 0), queue_id=MOVABLE_QUEUE))
    after = [*tail_cut(slave_end=100), *sent(40.0, third, 1, queue_id=MOVABLE_QUEUE)]

    def reset(at: float, offset: int) -> list[Event]:
        done = Lowered(at=at, who="operator", queue_id=MOVABLE_QUEUE, offset=offset, outcome="done")
        return sorted([*before, *after, done], key=lambda event: event.at)

    assert _undelivered(reset(39.0, 2), left) == []
    assert _undelivered(reset(39.0, 1), left)
    assert _undelivered(reset(10.0, 2), left)


def test_cluster_comes_to_rest_and_agrees_on_offsets_after_a_loss_too() -> None:
    """But for an offset of a queue that holds nothing, which a master does not take from its slave."""
    cut = [*RIGHT, *tail_cut(slave_end=100)]
    one = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()), offsets=((0, 1),))
    other = attrs.evolve(one, broker=1)
    assert broken(cut, one, other, flush="async") == set()
    assert broken(cut, one, other, flush="async", came_to_rest=False) == {"no rest"}
    behind = attrs.evolve(other, offsets=((0, 0),))
    assert broken(cut, one, behind, flush="async") == {"offsets differ"}
    more = attrs.evolve(other, offsets=((0, 1), (1, 5)))
    assert broken(cut, one, more, flush="async") == set()
    assert broken(RIGHT, slave=state(1, offsets=((0, 2), (1, 5)))) == {"offsets differ"}
    used = attrs.evolve(other, used_offsets=(("tasks", "tasks", 0, 5),))
    assert broken(cut, one, used, flush="async") == set()


def test_offsets_that_are_forgotten_long_after_a_loss_are_reported() -> None:
    """Not in the seconds in which brokers find out what the shorter queues hold."""
    left = state(0, log=b"a" * SIZE, queues=(((0, FIRST),), (), (), ()), offsets=((0, 1),))
    ends: dict[str, Any] = {"master": left, "slave": attrs.evolve(left, broker=1), "flush": "async"}
    cut = [*RIGHT, *tail_cut(slave_end=100), seen(31.5, 0, 1), seen(31.5, 1, 1)]

    def again(at: float, how: str, offset: int) -> list[Event]:
        events = restarted(at, how, kept=100, flushed=100, offset=offset)
        ended, reign_ended, started, began = events
        ended = attrs.evolve(ended, log_end=100, offsets=((0, 1),))
        return [ended, attrs.evolve(reign_ended, log_end=100), started, began]

    assert broken([*cut, *again(40.0, "stop", 1)], **ends) == set()
    forgotten = {"offset forgotten", "slaves were not asked"}
    assert broken([*cut, *again(40.0, "stop", 0)], **ends) == forgotten
    assert broken([*cut, *again(34.0, "stop", 0)], **ends) == set()
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


def test_what_the_disk_has_confirmed_is_shown_again_after_a_restart() -> None:
    """No slave had moved for long; whether somebody read it before the restart makes no difference."""
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
    confirmed = pulled(5.0, FIRST, 0, held_by=((0, 300, 300), (1, 300, 300)))
    assert _shown(confirmed, *reigns, shown) == set()
    told = {"shown before it was confirmed"}
    assert _shown(confirmed, *reigns, attrs.evolve(shown, end_offset=300)) == told
    assert _shown(*reigns, shown) == told


@pytest.mark.parametrize("role", ["slave", "sync-master"])
def test_slave_that_was_killed_while_it_took_over_has_confirmed_what_it_had(role: str) -> None:
    """The former master stood still, and reads its reports afterwards."""
    ended = MemberEnded(
        at=5.0, broker=1, role=role, how="kill", log_end=300, flushed=300, offsets=()
    )
    shown = pulled(5.5, b"late", 2, held_by=((0, 300, 200), (1, 300, 300)))
    assert _shown(ended, shown) == set()
    told = {"shown before it was confirmed"}
    assert _shown(attrs.evolve(ended, log_end=200), shown) == told
    assert _shown(attrs.evolve(ended, broker=0, role="sync-master"), shown) == told


def test_slave_that_acknowledges_its_disk_confirms_what_is_on_it() -> None:
    """What it has in memory confirms nothing, and is no progress for which the master would wait."""
    in_memory = pulled(3.6, b"late", 2, held_by=((0, 300, 200), (1, 300, 200)))
    assert _shown(in_memory, acknowledge="memory") == set()
    assert _shown(in_memory, acknowledge="disk") == {"shown before it was confirmed"}
    moved = pulled(5.5, FIRST, 0, held_by=((0, 400, 400), (1, 300, 200)))
    on_disk = attrs.evolve(moved, at=3.2 + SLAVE_TIMEOUT, end_offset=350)
    assert _shown(moved, on_disk, acknowledge="memory") == {"shown before it was confirmed"}
    assert _shown(moved, on_disk, acknowledge="disk") == set()


def test_unconfirmed_message_that_is_shown_is_reported() -> None:
    """A slave is behind: what it lacks is not shown until the own disk stands in for it."""
    behind = (0, 300, 300), (1, 200, 200)
    early = pulled(5.9, b"late", 2, held_by=behind)
    late = attrs.evolve(early, at=3.0 + SLAVE_TIMEOUT)
    assert _shown(early) == {"shown before it was confirmed"}
    assert _shown(late) == set()
    unsafe = attrs.evolve(late, held_by=((0, 300, 200), (1, 200, 200)))
    assert _shown(unsafe) == {"shown before it was confirmed"}
    assert _shown(early, role="async-master") == set()


def test_checker_lets_readers_follow_the_masters_disk_while_acknowledgements_are_late() -> None:
    """Only for a delay between the two, and only until it holds them up no longer."""
    moved = pulled(6.3, FIRST, 0, held_by=((0, 400, 400), (1, 300, 300)))
    shown = attrs.evolve(moved, at=6.4, end_offset=350)
    delay = Fault(4.0, 2.0, "delay", "slave-1", "master", amount=2.0)
    told = {"shown before it was confirmed"}
    assert _shown(moved, shown) == told
    assert _shown(moved, shown, faults=(delay,)) == set()
    assert _shown(moved, shown, faults=(attrs.evolve(delay, amount=0.2),)) == told
    assert _shown(moved, shown, faults=(attrs.evolve(delay, other="producer-0"),)) == told


def test_checker_lets_readers_follow_the_masters_disk_while_acknowledgements_are_held_back() -> (
    None
):
    """The slave gets further, and its master hears nothing of that; only in this direction, and only so long."""
    moved = pulled(6.3, FIRST, 0, held_by=((0, 400, 400), (1, 300, 300)))
    shown = attrs.evolve(moved, at=6.4, end_offset=350)
    one_way = Fault(4.0, 4.0, "one way", "slave-1", "master")
    told = {"shown before it was confirmed"}
    assert _shown(moved, shown) == told
    assert _shown(moved, shown, faults=(one_way,)) == set()
    for kind, who, other in (("partition", "master", "slave-1"), ("silence", "slave-1", "")):
        fault = attrs.evolve(one_way, kind=kind, who=who, other=other)
        assert _shown(moved, shown, faults=(fault,)) == set()
    for who, other in (("master", "slave-1"), ("slave-1", "producer-0"), ("slave-2", "master")):
        fault = attrs.evolve(one_way, who=who, other=other)
        assert _shown(moved, shown, faults=(fault,)) == told
    for at, lasts in ((4.0, 2.2), (6.35, 1.0)):
        fault = attrs.evolve(one_way, at=at, lasts=lasts)
        assert _shown(moved, shown, faults=(fault,)) == told
    # A delay has it arrive after the link was cut.
    cut = Fault(6.35, 1.0, "partition", "master", "slave-1")
    assert _shown(moved, shown, faults=(cut,)) == told
    slow = Fault(6.0, 1.0, "delay", "master", "slave-1", amount=0.06)
    assert _shown(moved, shown, faults=(slow,)) == told
    assert _shown(moved, shown, faults=(slow, cut)) == set()
    # Once the connection is cut it does not come at all.
    later = attrs.evolve(shown, at=6.39)
    at_once = Fault(6.32, 0.01, "cut", "master", "slave-1")
    assert _shown(moved, later, faults=(slow,)) == told
    assert _shown(moved, later, faults=(slow, at_once)) == set()
    assert _shown(moved, later, faults=(slow, attrs.evolve(at_once, at=6.37))) == told
    assert _shown(moved, later, faults=(slow, attrs.evolve(at_once, other="slave-2"))) == told
    assert _shown(moved, later, faults=(at_once,)) == told
    # The last report that came is not old enough yet.
    early = attrs.evolve(moved, at=5.8), attrs.evolve(shown, at=5.9)
    assert _shown(*early, faults=(one_way,)) == told


def test_checker_lets_readers_follow_the_masters_disk_until_a_slave_has_everything() -> None:
    """One that stood still gets what is in its buffers, of a connection that its master has given up."""
    stands_in = pulled(6.6, FIRST, 0, held_by=((0, 300, 300), (1, 200, 200)))
    moved = attrs.evolve(stands_in, at=6.7, held_by=((0, 450, 450), (1, 300, 300)))
    shown = attrs.evolve(moved, at=7.0, held_by=((0, 600, 600), (1, 300, 300)), end_offset=550)
    delay = Fault(4.0, 4.0, "delay", "slave-1", "master", amount=0.2)
    told = {"shown before it was confirmed"}
    assert _shown(stands_in, moved, shown) == set()
    assert _shown(stands_in, moved, shown, faults=(delay,)) == set()
    level = attrs.evolve(moved, held_by=((0, 450, 450), (1, 450, 450)))
    assert _shown(stands_in, level, shown) == told
    assert _shown(stands_in, level, shown, faults=(delay,)) == told
    assert _shown(attrs.evolve(stands_in, at=5.9), moved, shown) == told


def test_checker_lets_readers_follow_the_masters_disk_if_a_slave_moved_without_a_connection() -> (
    None
):
    """A slave whose disk is full leaves, and syncs what it had; one that was killed does not report any more."""
    moved = pulled(5.9, FIRST, 0, held_by=((0, 400, 400), (1, 300, 300)))
    shown = attrs.evolve(moved, at=6.4, end_offset=350)
    told = {"shown before it was confirmed"}
    full = Fault(4.0, 2.6, "full disk", "slave-1")
    assert _shown(moved, shown) == told
    assert _shown(moved, shown, faults=(full,)) == set()
    assert _shown(moved, shown, faults=(attrs.evolve(full, who="master"),)) == told
    slow = Fault(4.0, 2.6, "slow disk", "slave-1", amount=1.0)
    assert _shown(moved, shown, faults=(slow,), acknowledge="disk") == set()
    assert _shown(moved, shown, faults=(slow,), acknowledge="memory") == told
    quick = attrs.evolve(slow, amount=0.9)
    assert _shown(moved, shown, faults=(quick,), acknowledge="disk") == told
    one_way = Fault(4.0, 2.3, "one way", "slave-1", "master")
    pause = Fault(5.0, 1.35, "pause", "master")
    killed = attrs.evolve(restarted(6.2, "kill")[0], broker=1, role="slave", log_end=300)
    assert _shown(moved, shown, faults=(one_way,)) == told
    assert _shown(moved, killed, shown, faults=(one_way,)) == set()
    assert _shown(moved, killed, shown, faults=(pause,)) == set()
    assert _shown(moved, shown, faults=(pause,)) == told
    assert _shown(moved, killed, shown, faults=(attrs.evolve(pause, who="slave-1"),)) == told


def test_checker_lets_readers_follow_the_masters_disk_if_a_slave_moves_before_the_gate() -> None:
    """The gate of a reign begins where its log did, and a slave that gets that far does not move it."""
    restart = restarted(10.0, "kill", kept=300, flushed=300, slave_end=100)
    behind = pulled(13.5, FIRST, 0, held_by=((0, 400, 400), (1, 100, 100)))
    there = attrs.evolve(behind, at=13.6, held_by=((0, 400, 400), (1, 300, 300)))
    beyond = attrs.evolve(there, held_by=((0, 400, 400), (1, 301, 301)))
    shown = attrs.evolve(there, at=14.1, end_offset=350)
    assert _shown(*restart, behind, there, shown) == set()
    assert _shown(*restart, behind, beyond, shown) == {"shown before it was confirmed"}


def _shown(*events: Event, faults: tuple[Fault, ...] = (), **mode: Any) -> set[str]:
    schedule = Schedule(1, attrs.evolve(MODE, **mode), faults, (), 0, 25.0, (), 25.0)
    first = pulled(3.0, FIRST, 0, held_by=((0, 200, 200), (1, 100, 100)))
    second = pulled(3.5, FIRST, 0)
    story = Story(schedule, History(1, [first, second, *events]), FinalState((), came_to_rest=True))
    return {violation.invariant for violation in readers_see_what_is_confirmed(story)}


def cut(**changes: Any) -> TailCut:
    """The former master gives the second message up, which it acknowledged."""
    event = TailCut(at=31.0, broker=0, start=100, end=200, is_proven=True, bodies=((0, SECOND),))
    return attrs.evolve(event, **changes)


def ended_by(how: str, *, broker: int = 1, at: float = 8.0) -> Event:
    return attrs.evolve(restarted(at, how)[0], broker=broker)


def _tails(*events: Event, slaves: int = 1) -> set[str]:
    schedule = Schedule(1, attrs.evolve(MODE, slaves=slaves), (), (), 0, 25.0, (), 25.0)
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
    ("power_cut", "set_back", "is_excused"),
    [(7.0, "older copy", True), (8.5, "older copy", False), (7.0, "kill", False)],
)
def test_cut_is_excused_where_the_report_was_not_on_the_disk_yet(
    power_cut: float, set_back: str, is_excused: bool
) -> None:
    """Both lost it: the master its note of the report, by a power cut, and the slave what it had reported."""
    lost = ended_by("power cut", broker=0, at=power_cut), ended_by(set_back, at=20.0)
    assert (_tails(*lost, cut()) == set()) is is_excused


def waits(why: str) -> TailWaits:
    return TailWaits(at=31.0, broker=0, start=100, end=200, why=why, bodies=((0, SECOND),))


def test_wait_of_a_slave_without_a_reason_is_reported() -> None:
    had = waits("slave 10.0.0.11:10911 had acknowledged this log up to 200")
    unknown = waits("slaves that counted in epoch 1 may have had it: 9f")
    told = {"waits though nothing was acknowledged"}
    for wait in (had, unknown):
        assert _tails(wait) == told
        for how in ("older copy", "wiped", "torn end", "power cut"):
            assert _tails(ended_by(how), wait) == set()
        assert _tails(ended_by("kill"), wait) == told
        assert _tails(ended_by("older copy", broker=0), wait) == told
        assert _tails(cut(broker=1, is_proven=False), wait) == set()
    assert _tails(unknown, slaves=2) == set()
    assert _tails(had, slaves=2) == told
    assert _tails(waits("epoch 1 answered before any slave had a message")) == set()
    assert _tails(waits("readers had been shown this log up to 200")) == set()
