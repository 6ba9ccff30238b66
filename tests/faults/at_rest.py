"""The pair at the end of a round: one is master and takes writes, the other follows, and their logs are equal."""

from typing import Final

import trio
from tests.faults.lab import Lab
from tests.support.commit_logs import digest, first_address

from rocketrio_broker.ha.client import HAClientState
from rocketrio_protocol.commands.admin import GetBrokerHAStatusRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.status import HARuntimeInfo
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

REST_LIMIT: Final = 60.0
"""Seconds after the last message was delivered."""
LOOK_PERIOD: Final = 0.5


async def unrest(lab: Lab) -> str:
    """Wait until the pair is as it should be; return what is wrong with it, or nothing."""
    problem = ""
    async with open_channel_pool(dial_tcp) as pool:
        with trio.move_on_after(REST_LIMIT):
            while True:
                problem = await _problem(lab, pool)
                if not problem:
                    return ""
                await trio.sleep(LOOK_PERIOD)
    return f"after {REST_LIMIT:g} s of rest {problem}"


async def _problem(lab: Lab, pool: ChannelPool) -> str:
    masters, slaves, ends = [], [], []
    for number, broker in enumerate(lab.brokers):
        try:
            answer = await pool.call(broker.address, GetBrokerHAStatusRequestHeader(), timeout=3.0)
            status = HARuntimeInfo.from_json(answer.body)
        except Error as error:
            return f"b{number} cannot be asked: {error}"
        own, client = status.rocketrio, status.ha_client_runtime_info
        assert own is not None
        ends.append(own.max_offset)
        if own.role == "slave":
            slaves.append(number)
            if client.rocketrio_state_id != HAClientState.FOLLOWING.value:
                why = client.rocketrio_last_problem or "without a problem"
                return f"b{number} does not follow, it is {client.rocketrio_state}: {why}"
        else:
            masters.append(number)
            if own.refusal:
                return f"b{number} takes no writes: {own.refusal}"
    if len(masters) != 1 or len(slaves) != 1:
        return f"masters are {masters}, and slaves {slaves}"
    if ends[0] != ends[1]:
        return f"the logs end at {ends[0]} and {ends[1]}"
    stores = [broker.store for broker in lab.brokers]
    first = max(map(first_address, stores))
    sums = {digest(store, ends[0], first=first) for store in stores}
    return "" if len(sums) == 1 else f"the logs differ between {first} and {ends[0]}"
