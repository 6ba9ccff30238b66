"""Refuses requests that only the leading broker of a name may answer, while this broker stands aside.

    another master is alive    pulls, offsets, commits and claims, heartbeats and members, locks, resets, transactions,
                               topics and groups: its clients have an old route, and must find that master
    not taken over yet         locks, resets, clones: they decide for members that this broker does not know yet;
                               it is read from like a slave, and moves no reader

The code is SERVICE_NOT_AVAILABLE (14): rocketrio's clients ask for the route and repeat the request at the master.
Java's clients keep their position and their locks, pause for seconds, and refresh the route within 30 s; their commits
in that time are repeated every five seconds. Requests about the broker itself are answered: settings, status, roles,
copies of tables, registered names.

Invariant: a refused request changes nothing.
Answers to: nothing of 4.x; a 5.x broker whose `isIsolated` is set leaves the route, and answers everything.
"""

from collections.abc import Coroutine
from enum import Enum, auto
from typing import Any, Final

from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.role.standing import CurrentStanding
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Answer, Processor


class AnsweredIn(Enum):
    """The standings in which a handler is asked."""

    ANY = auto()
    SERVING = auto()
    """It is refused while another master of the name is alive. Sends are refused by the store, with the same code."""
    TAKEN_OVER = auto()
    """It is also refused until the broker leads, if it is configured as master."""


ANY: Final = AnsweredIn.ANY
SERVING: Final = AnsweredIn.SERVING
TAKEN_OVER: Final = AnsweredIn.TAKEN_OVER


def only_in(needed: AnsweredIn, standing: CurrentStanding, processor: Processor) -> Processor:
    """Return the processor that refuses what a broker that stands aside must not answer."""
    if needed is ANY:
        return processor
    must_lead = needed is TAKEN_OVER

    def process(channel: Channel, request: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        if not standing.now.serves or (must_lead and standing.stands_aside):
            raise _refusal(standing)
        return processor(channel, request)

    return process


def refuse_beside_a_master(standing: CurrentStanding) -> None:
    """Raise RefusedError while the broker stands aside for another live master."""
    if not standing.now.serves:
        raise _refusal(standing)


def _refusal(standing: CurrentStanding) -> RefusedError:
    return RefusedError(
        ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker stands aside: {standing.reason}"
    )
