"""Asks a listed master whether it still answers, when another broker registers as master of its name.

The question goes over the connection on which the listed one registered, so it needs no address and no account. Any
answer counts, and so do any other bytes that arrive meanwhile. Brokers do not expect a request there: Apache's and
rocketrio's answer REQUEST_CODE_NOT_SUPPORTED.

    asked again within ANSWER_HOLDS of an answer       the answer counts again
    asked again while a question is on its way         its outcome is shared

Invariant: each master is asked once at a time, and not again within ANSWER_HOLDS of its answer, for all hosts together.
Invariant: a connection is given up only after PROBE_LIMIT without a byte.
Answers to: nothing; Apache's name servers list the master that registered last.
"""

import logging
from typing import Final
from weakref import WeakKeyDictionary

import attrs
import trio

from rocketrio_broker.namesrv.host_share import HostShare
from rocketrio_protocol.commands.admin import GetIdentityRequestHeader
from rocketrio_protocol.errors import Error, RequestTimeoutError
from rocketrio_protocol.remoting.channel import Channel

logger = logging.getLogger("rocketrio_broker.namesrv")

PROBE_LIMIT: Final = 5.0
"""Seconds for a listed master to answer. The default of `register_broker_timeout` is longer."""

ANSWER_HOLDS: Final = 2.0
"""Seconds for which an answer counts. A broker that is made master again registers 3 s later at least."""

WAITING_LIMIT: Final = 32
"""The most registrations that wait for an outcome, half of them of one host; further ones are refused at once."""


@attrs.define(eq=False)
class _Probe:
    """One question, and its outcome for all that wait for it."""

    over: trio.Event = attrs.Factory(trio.Event)
    is_silent: bool = False
    counts_until: float = 0.0


class MasterProbes:
    """The questions of one name server."""

    def __init__(self) -> None:
        self._last: WeakKeyDictionary[Channel, _Probe] = WeakKeyDictionary()
        self._waiting = HostShare(WAITING_LIMIT)

    async def is_silent(self, master: Channel, *, addr: str, asked_by: str) -> bool:
        """Return True if the master at the other end does not answer; its connection is closed then.

        `addr` is its listed address, for the log; `asked_by` is the host of the broker that registers.
        """
        if self._waiting.room(asked_by) <= 0:
            return False
        self._waiting.take(asked_by)
        try:
            probe = self._last.get(master)
            if probe is None or (probe.over.is_set() and probe.counts_until <= trio.current_time()):
                probe = self._last[master] = _Probe()
                try:
                    probe.is_silent = await _is_silent(master, addr)
                finally:
                    # Also if the registration that asked is cancelled: others wait for the
                    # outcome, and then the master counts as alive.
                    probe.counts_until = trio.current_time() + ANSWER_HOLDS
                    probe.over.set()
            await probe.over.wait()
            return probe.is_silent
        finally:
            self._waiting.give_back(asked_by)


async def _is_silent(master: Channel, addr: str) -> bool:
    began = trio.current_time()
    try:
        await master.call(GetIdentityRequestHeader(), timeout=PROBE_LIMIT)
    except RequestTimeoutError:
        if master.last_received > began:
            return False
        logger.warning(
            "listed master does not answer, its connection is closed addr=%s seconds=%g",
            addr, PROBE_LIMIT,
        )  # fmt: skip
        # It registers again as soon as it goes on.
        master.close(f"no answer within {PROBE_LIMIT:g} s")
        return True
    except Error:
        # An answer with an error is an answer.
        return master.closed
    return False
