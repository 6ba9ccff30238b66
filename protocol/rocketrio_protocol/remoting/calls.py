"""A call that waits for its answer, and the ways it ends.

Invariant: a call ends once: by an answer, a fault, its deadline, or the cancel of its task.
Answers to: ResponseFuture.
"""

from math import inf

import attrs
import outcome
import trio

from rocketrio_protocol.codes import RequestCode, code_name
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import Error, NotReachable, RequestTimeout


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
