"""Which answers a master gave before slaves had the message, at the moment when it decides that."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.histories.events import AnsweredEarly, now
from tests.cluster.histories.world import World

from rocketrio_broker.waiting.answers import WaitingAnswers
from rocketrio_protocol.remoting.channel import Channel


@contextmanager
def note_early_answers(world: World) -> Iterator[None]:
    """In this block note each success that waits for no slave, where slaves are required."""
    answer_early = WaitingAnswers.answer_early

    def noted(answers: WaitingAnswers, channel: Channel, frame: bytes) -> None:
        if answers._slaves.is_required:
            for number, member in enumerate(world.cluster.members):
                if member.is_running and member.broker.state.waiting_answers is answers:
                    world.history.add(AnsweredEarly(at=now(), broker=number))
        answer_early(answers, channel, frame)

    WaitingAnswers.answer_early = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        WaitingAnswers.answer_early = answer_early  # type: ignore[method-assign]
