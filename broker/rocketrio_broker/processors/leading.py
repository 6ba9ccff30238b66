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

from collections.abc import Coroutine, Mapping
from typing import Any, Final

from rocketrio_broker.refusal import RefusedError
from rocketrio_broker.role.standing import CurrentStanding
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Answer, Processor

LEADERS_ONLY: Final = frozenset(
    {
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
    }
)
"""The codes that are refused until the broker leads."""

NOT_BESIDE_A_MASTER: Final = LEADERS_ONLY | {
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.HEART_BEAT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
}
"""The codes that are refused while another master of the name is alive. Sends are refused by the store, with the same
code."""


def only_while_leading(
    table: Mapping[int, Processor], standing: CurrentStanding
) -> dict[int, Processor]:
    """Return the same table with processors that refuse what a broker that stands aside must not answer."""
    return {
        code: _guarded(processor, standing, is_leaders_only=code in LEADERS_ONLY)
        if code in NOT_BESIDE_A_MASTER
        else processor
        for code, processor in table.items()
    }


def refuse_beside_a_master(standing: CurrentStanding) -> None:
    """Raise RefusedError while the broker stands aside for another live master."""
    if not standing.now.serves:
        raise _refusal(standing)


def _guarded(
    processor: Processor, standing: CurrentStanding, *, is_leaders_only: bool
) -> Processor:
    def process(channel: Channel, request: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        if not standing.now.serves or (is_leaders_only and standing.stands_aside):
            raise _refusal(standing)
        return processor(channel, request)

    return process


def _refusal(standing: CurrentStanding) -> RefusedError:
    return RefusedError(
        ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker stands aside: {standing.reason}"
    )
