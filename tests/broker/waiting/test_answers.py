"""Answers that wait for the disk, for slaves, or for both, with every watermark in the test's hands."""

from operator import itemgetter

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rocketrio_broker.processors.answers import SendAnswers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.store.put_message import AppendResult, PutStatus
from rocketrio_broker.store.put_times import PutTimes
from rocketrio_broker.waiting.answers import WaitingAnswers
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.codes import ResponseCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.frame import FrameDecoder

OK, DISK, SLAVES, NONE = (
    int(code)
    for code in (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )
)


class Peer:
    """Keeps what it is answered, and when."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, int, int]] = []
        self.remarks: list[str | None] = []

    def reply_all(self, frames: list[bytes]) -> None:
        for frame in frames:
            self.reply(frame)

    def reply(self, frame: bytes) -> None:
        (only,) = FrameDecoder().feed(frame)
        command = RemotingCommand.decode(only)
        self.heard.append((trio.current_time(), command.opaque, command.code))
        self.remarks.append(command.remark)


@attrs.define
class SetSlaves:
    """Slaves that have what the test says."""

    is_required: bool = True
    are_available: bool = True
    replicated: Watermark = attrs.Factory(lambda: Watermark(100))
    last_slave: str | None = "10.0.0.11:1"
    waiting: WaitingAnswers | None = None

    def notify(self, waiting: WaitingAnswers) -> None:
        self.waiting = waiting

    def have(self, offset: int) -> None:
        """Enough of them have everything before this address, which is reported when it rises."""
        is_further = offset > self.replicated.value
        self.replicated.reset(offset)
        if is_further and self.waiting is not None:
            self.waiting.answer_replicated()

    @property
    def available_until(self) -> int:
        return 1 << 40 if self.are_available else 0


def answer(opaque: int, serialize_type: SerializeType = SerializeType.JSON) -> bytes:
    answers = SendAnswers(bytes(8), region_id="r", trace_on=True)
    stored = AppendResult(PutStatus.PUT_OK)
    return answers.frame(opaque, serialize_type, 0, stored)


@attrs.define
class Lines:
    """Waiting answers with what they wait for; time counts from the beginning of the test."""

    flushed: Watermark = attrs.Factory(lambda: Watermark(100))
    slaves: SetSlaves = attrs.Factory(SetSlaves)
    peer: Peer = attrs.Factory(Peer)
    waiting: WaitingAnswers = attrs.field(init=False)
    syncs_flush: bool = True
    limit: int = 1000
    put_times: PutTimes = attrs.Factory(PutTimes)

    def __attrs_post_init__(self) -> None:
        self.waiting = WaitingAnswers(
            self.flushed if self.syncs_flush else None,
            self.slaves,
            flush_timeout=5.0,
            slave_timeout=3.0,
            limit=self.limit,
            put_times=self.put_times,
        )

    def add(self, opaque: int, end_offset: int) -> None:
        self.waiting.add(end_offset, self.peer, answer(opaque))  # type: ignore[arg-type]

    @property
    def heard(self) -> list[tuple[float, int, int]]:
        return self.peer.heard


def without_slaves() -> Lines:
    return Lines(slaves=SetSlaves(is_required=False))


def without_flush() -> Lines:
    return Lines(syncs_flush=False)


# --- one line ----------------------------------------------------------------------------------


async def test_time_that_an_answer_waited_is_counted(autojump_clock: MockClock) -> None:
    lines = without_slaves()
    async with trio.open_nursery() as nursery:
        await nursery.start(lines.waiting.run)
        lines.add(1, 110)
        await trio.sleep(0.3)
        lines.flushed.advance(110)
        lines.add(2, 120)  # Never flushed: answered as late after 5 seconds.
        await trio.sleep(6)
        nursery.cancel_scope.cancel()
    lines.put_times.end_minute()
    told = lines.put_times.runtime_info()
    assert "[200~500ms]:1 " in told["putMessageDistributeTime"]
    assert "[5~10s]:1 " in told["putMessageDistributeTime"]
    assert told["putMessageEntireTimeMax"] == "5000"


async def test_answers_go_out_when_the_disk_has_their_messages(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = without_slaves()
    await nursery.start(lines.waiting.run)
    for opaque, end in ((1, 150), (2, 200), (3, 250)):
        lines.add(opaque, end)
    await trio.sleep(1)
    lines.flushed.advance(220)
    await trio.sleep(1)
    assert lines.heard == [(1, 1, OK), (1, 2, OK)]
    assert len(lines.waiting) == 1
    lines.flushed.advance(250)
    await trio.sleep(1)
    assert lines.heard[2:] == [(2, 3, OK)]


async def test_what_is_flushed_already_is_answered_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = without_slaves()
    await nursery.start(lines.waiting.run)
    lines.add(1, 100)
    await trio.testing.wait_all_tasks_blocked()
    assert lines.heard == [(0, 1, OK)]


async def test_late_flush_is_answered_as_flush_disk_timeout(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = without_slaves()
    await nursery.start(lines.waiting.run)
    lines.add(1, 150)
    await trio.sleep(3)
    lines.add(2, 200)
    await trio.sleep(3)
    lines.flushed.advance(200)
    await trio.sleep(10)
    assert lines.heard == [(5, 1, DISK), (6, 2, OK)]
    answered = lines.waiting.statistics().answered
    assert (answered[ResponseCode.FLUSH_DISK_TIMEOUT], answered[ResponseCode.SUCCESS]) == (1, 1)


async def test_answers_go_out_in_the_order_of_the_log_as_slaves_report(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = without_flush()
    await nursery.start(lines.waiting.run)
    for opaque, end in ((1, 150), (2, 200), (3, 250)):
        lines.add(opaque, end)
    await trio.sleep(1)
    lines.slaves.have(249)
    await trio.testing.wait_all_tasks_blocked()
    assert lines.heard == [(1, 1, OK), (1, 2, OK)]
    await trio.sleep(10)
    assert lines.heard[2:] == [(3, 3, SLAVES)]
    assert lines.peer.remarks == [None, None, "stored, but not on enough slaves in time"]


async def test_slaves_that_come_back_in_time_are_in_time(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = without_flush()
    await nursery.start(lines.waiting.run)
    lines.add(1, 150)
    await trio.sleep(1)
    lines.slaves.have(149)
    lines.slaves.have(0)
    await trio.sleep(1)
    assert lines.heard == []
    lines.slaves.have(160)
    await trio.sleep(1)
    assert lines.heard == [(2, 1, OK)]


async def test_without_slaves_to_wait_for_the_answer_is_there_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = without_flush()
    await nursery.start(lines.waiting.run)
    lines.slaves.are_available = False
    lines.add(1, 150)
    assert lines.heard == [(0, 1, NONE)]
    assert lines.waiting.statistics().answered[ResponseCode.SLAVE_NOT_AVAILABLE] == 1
    assert len(lines.waiting) == 0


# --- both --------------------------------------------------------------------------------------

FOREVER = 99.0


@pytest.mark.parametrize(
    ("flush_at", "slaves_at", "expected"),
    [
        (1.0, 2.0, (2.0, OK)),
        (2.0, 1.0, (2.0, OK)),
        (4.0, 1.0, (4.0, OK)),
        (FOREVER, 1.0, (5.0, DISK)),
        (1.0, FOREVER, (3.0, SLAVES)),
        (4.0, FOREVER, (4.0, SLAVES)),
        (FOREVER, FOREVER, (5.0, SLAVES)),
    ],
)
async def test_both_waits_run_at_the_same_time(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    flush_at: float,
    slaves_at: float,
    expected: tuple[float, int],
) -> None:
    lines = Lines()
    await nursery.start(lines.waiting.run)
    lines.add(1, 150)
    for time, reach in sorted(
        ((flush_at, lines.flushed.advance), (slaves_at, lines.slaves.have)), key=itemgetter(0)
    ):
        if time < FOREVER:
            await trio.sleep_until(time)
            reach(150)
    await trio.sleep_until(FOREVER)
    assert lines.heard == [(expected[0], 1, expected[1])]


async def test_the_remark_names_both_when_both_are_late(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = Lines()
    await nursery.start(lines.waiting.run)
    lines.add(1, 150)
    await trio.sleep(10)
    assert lines.peer.remarks == [
        "stored, but not on enough slaves in time; stored, but not flushed to disk in time"
    ]
    assert lines.waiting.statistics().answered[ResponseCode.FLUSH_SLAVE_TIMEOUT] == 1


@pytest.mark.parametrize(("flush_at", "expected"), [(2.0, (2.0, NONE)), (9.0, (5.0, NONE))])
async def test_without_slaves_the_flush_is_waited_for_all_the_same(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    flush_at: float,
    expected: tuple[float, int],
) -> None:
    lines = Lines(slaves=SetSlaves(are_available=False))
    await nursery.start(lines.waiting.run)
    lines.add(1, 150)
    await trio.sleep_until(flush_at)
    lines.flushed.advance(150)
    await trio.sleep(1)
    assert lines.heard == [(expected[0], 1, expected[1])]


async def test_a_slow_slave_holds_up_no_answer_that_waits_for_the_disk_alone(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = Lines()
    await nursery.start(lines.waiting.run)
    lines.add(1, 150)
    lines.slaves.are_available = False
    lines.add(2, 200)
    await trio.sleep(1)
    lines.flushed.advance(200)
    await trio.sleep(10)
    assert lines.heard == [(1, 2, NONE), (3, 1, SLAVES)]


@pytest.mark.parametrize("serialize_type", list(SerializeType))
async def test_the_remark_is_there_in_every_encoding(
    autojump_clock: MockClock, serialize_type: SerializeType
) -> None:
    lines = Lines(syncs_flush=False, slaves=SetSlaves(are_available=False))
    lines.waiting.add(150, lines.peer, answer(1, serialize_type))  # type: ignore[arg-type]
    assert lines.heard == [(0, 1, NONE)]
    assert lines.peer.remarks == ["stored, but too few slaves are connected and near enough"]


# --- the rest ----------------------------------------------------------------------------------


async def test_change_of_role_answers_every_waiting_send_with_its_state(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = Lines()
    await nursery.start(lines.waiting.run)
    lines.add(1, 150)
    lines.add(2, 200)
    await trio.sleep(1)
    lines.flushed.advance(150)
    lines.slaves.have(199)
    lines.waiting.answer_all()
    assert lines.heard == [(1, 1, OK), (1, 2, SLAVES)]
    assert len(lines.waiting) == 0
    # The log was cut, and goes on at an address that was passed before.
    lines.flushed.reset(120)
    lines.slaves.have(0)
    await trio.testing.wait_all_tasks_blocked()
    lines.add(3, 140)
    await trio.sleep(1)
    lines.flushed.advance(140)
    lines.slaves.have(140)
    await trio.sleep(1)
    assert lines.heard[2:] == [(2, 3, OK)]


async def test_line_has_a_limit() -> None:
    lines = Lines(limit=2)
    lines.add(1, 150)
    lines.waiting.check_room()
    lines.add(2, 151)
    with pytest.raises(RefusedError, match="2 messages wait for disk or slaves already") as refused:
        lines.waiting.check_room()
    assert refused.value.code == ResponseCode.SYSTEM_BUSY


def test_answer_that_need_not_wait_enters_no_line() -> None:
    slaves = SetSlaves(is_required=False)
    nothing = WaitingAnswers(None, slaves, flush_timeout=5.0, slave_timeout=3.0)
    assert not nothing.is_needed
    slaves.is_required = True
    assert nothing.is_needed
    assert WaitingAnswers(Watermark(), slaves, flush_timeout=5.0, slave_timeout=3.0).is_needed


async def test_statistics_have_what_the_last_put_waited_for(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = Lines()
    assert lines.waiting.statistics().last_wait is None
    await nursery.start(lines.waiting.run)
    lines.add(1, 150)
    await trio.sleep(0.5)
    lines.slaves.have(150)
    await trio.sleep(1)
    lines.flushed.advance(150)
    await trio.sleep(1)
    last = lines.waiting.statistics().last_wait
    assert last is not None
    assert (last.code, last.end_offset, last.slave) == (ResponseCode.SUCCESS, 150, "10.0.0.11:1")
    assert (last.flush_seconds, last.slave_seconds) == (1.5, 0.5)
    assert str(last) == "SUCCESS flush_ms=1500.0 slaves_ms=500.0 slave=10.0.0.11:1"
