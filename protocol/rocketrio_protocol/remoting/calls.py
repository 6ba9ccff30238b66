"""A call that waits for its answer, and the ways it ends.

Invariant: a call ends once: by an answer, a fault, its deadline, or the cancel of its task.
Answers to: ResponseFuture.
"""

from math import inf
from typing import Final

import attrs
import outcome
import trio

from rocketrio_protocol.codes import RequestCode, code_name
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import Error, NotReachable, RequestTimeout

REQUESTS_TOGETHER: Final = 16
"""Calls of tasks woken together that are sent at once: a peer that answers many at a time, as a master does whose slave
acknowledges them all, works on the first of them while the others are made."""


@attrs.define(eq=False)
class Call:
    """One awaiting task. Whoever ends it has taken it out of the response table."""

    task: trio.lowlevel.Task
    code: int
    timeout: float
    deadline: float

    def finish(self, answer: RemotingCommand) -> None:
        """Wake the task with its answer."""
        trio.lowlevel.reschedule(self.task, outcome.Value(answer))

    def fail(self, error: Error) -> None:
        """Wake the task with an error of its own."""
        trio.lowlevel.reschedule(self.task, outcome.Error(error))


@attrs.define
class WokenCalls:
    """The tasks that one chunk of answers has woken: what they call next is sent together, some at a time."""

    left: int = 0
    """Those that have not called again; negative once others call too."""
    unsent: int = 0

    def answered(self, count: int) -> None:
        """A chunk has woken so many."""
        self.left, self.unsent = count, 0

    def called(self) -> bool:
        """Note a call; whether those that are not sent yet shall be."""
        self.left -= 1
        self.unsent += 1
        return self.left == 0 or self.unsent >= REQUESTS_TOGETHER <= self.left


def expire_calls(response_table: dict[int, Call], now: float, remote_addr: str) -> float:
    """Fail the calls whose deadline has come; the next deadline."""
    for opaque in [opaque for opaque, call in response_table.items() if call.deadline <= now]:
        call = response_table.pop(opaque)
        call.fail(
            RequestTimeout(
                f"No answer to {code_name(call.code, RequestCode)} within {call.timeout:g} s",
                broker_addr=remote_addr,
            )
        )
    return min((call.deadline for call in response_table.values()), default=inf)


def unanswered(code: int, reason: str, remote_addr: str) -> NotReachable:
    """What a call fails with whose connection ended."""
    return NotReachable(
        f"No answer to {code_name(code, RequestCode)}, the connection is gone ({reason})",
        broker_addr=remote_addr,
    )
