"""Requests of recorded runs, each with its answer."""

import attrs

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.frame import Frame, FrameDecoder
from tests.golden.golden import RecordedFrame, remoting_frames
from tests.support.raw_frames import is_answer


@attrs.frozen
class RecordedExchange:
    """A request of a run, and the answer it got; None for a oneway request."""

    frame: RecordedFrame
    request: RemotingCommand
    answer: RemotingCommand | None


def recorded_exchanges(run: str, server: str) -> list[RecordedExchange]:
    """Requests that were sent to one kind of server, in time order."""
    frames = [frame for frame in remoting_frames(run) if frame.server == server]
    commands = [(frame, RemotingCommand.decode(_only(frame))) for frame in frames]
    answers = {
        (frame.connection, command.opaque): command
        for frame, command in commands
        if is_answer(command) and not frame.from_dialer
    }
    return [
        RecordedExchange(frame, command, answers.get((frame.connection, command.opaque)))
        for frame, command in commands
        if frame.from_dialer and not is_answer(command)
    ]


def exchanges_of(run: str, server: str, *codes: RequestCode) -> list[RecordedExchange]:
    return [each for each in recorded_exchanges(run, server) if each.request.code in codes]


def answer_bodies(run: str, server: str, code: RequestCode) -> list[bytes]:
    """Return what was answered to requests of this code, but for empty bodies."""
    answers = [exchange.answer for exchange in exchanges_of(run, server, code)]
    return [bytes(answer.body) for answer in answers if answer is not None and answer.body]


def _only(frame: RecordedFrame) -> Frame:
    (only,) = FrameDecoder().feed(frame.data)
    return only
