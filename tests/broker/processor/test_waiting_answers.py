import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rocketrio_broker.processor.answers import SendAnswer, SendAnswers
from rocketrio_broker.processor.waiting_answers import WaitingAnswers
from rocketrio_broker.store.put_message import AppendResult, PutStatus
from rocketrio_broker.watermark import Watermark
from rocketrio_protocol.codes import SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.frame import FrameDecoder


class Peer:
    """Keeps what it is answered, and when."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, int, int]] = []

    def reply(self, frame: bytes) -> None:
        (only,) = FrameDecoder().feed(frame)
        command = RemotingCommand.decode(only)
        self.heard.append((trio.current_time(), command.opaque, command.code))


def answer(opaque: int) -> SendAnswer:
    answers = SendAnswers(bytes(8), region_id="r", trace_on=True)
    stored = AppendResult(PutStatus.PUT_OK)
    return SendAnswer(answers, opaque, SerializeType.JSON, 0, stored)


@pytest.fixture
def flushed() -> Watermark:
    return Watermark(100)


async def test_answers_go_out_when_the_disk_has_their_messages(
    autojump_clock: MockClock, nursery: trio.Nursery, flushed: Watermark
) -> None:
    waiting, peer = WaitingAnswers(flushed, timeout=5.0), Peer()
    await nursery.start(waiting.run)
    start = trio.current_time()
    for opaque, end in ((1, 150), (2, 200), (3, 250)):
        waiting.add(end, peer, answer(opaque))  # type: ignore[arg-type]
    await trio.sleep(1)
    flushed.advance(220)
    await trio.sleep(1)
    assert [(time - start, opaque, code) for time, opaque, code in peer.heard] == [
        (1, 1, 0),
        (1, 2, 0),
    ]
    assert len(waiting) == 1
    flushed.advance(250)
    await trio.sleep(1)
    assert peer.heard[2:] == [(start + 2, 3, 0)]


async def test_what_is_flushed_already_is_answered_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery, flushed: Watermark
) -> None:
    waiting, peer = WaitingAnswers(flushed, timeout=5.0), Peer()
    await nursery.start(waiting.run)
    start = trio.current_time()
    waiting.add(100, peer, answer(1))  # type: ignore[arg-type]
    await trio.testing.wait_all_tasks_blocked()
    assert peer.heard == [(start, 1, 0)]


async def test_late_flush_is_told_as_flush_disk_timeout(
    autojump_clock: MockClock, nursery: trio.Nursery, flushed: Watermark
) -> None:
    waiting, peer = WaitingAnswers(flushed, timeout=5.0), Peer()
    await nursery.start(waiting.run)
    start = trio.current_time()
    waiting.add(150, peer, answer(1))  # type: ignore[arg-type]
    await trio.sleep(3)
    waiting.add(200, peer, answer(2))  # type: ignore[arg-type]
    await trio.sleep(3)
    flushed.advance(200)
    await trio.sleep(10)
    assert [(time - start, *rest) for time, *rest in peer.heard] == [(5, 1, 10), (6, 2, 0)]
    assert waiting.timeout_count == 1


async def test_line_has_a_limit(flushed: Watermark) -> None:
    waiting = WaitingAnswers(flushed, timeout=5.0, limit=2)
    waiting.add(150, Peer(), answer(1))  # type: ignore[arg-type]
    assert not waiting.is_full
    waiting.add(151, Peer(), answer(2))  # type: ignore[arg-type]
    assert waiting.is_full
