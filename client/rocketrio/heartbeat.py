"""Telling brokers which groups live here: every 30 s, and at once when a group or an address is new.

Invariant: without a group nothing is sent; with producers alone only masters hear it.
Invariant: a broker that does not answer delays no other.
Invariant: a broker hears heartbeats and goodbyes one after the other, each of them true when it leaves. A heartbeat
that came after the goodbye would register a group that is gone, and brokers close the connection of a client when a
group of it stays silent for two minutes.
Answers to: MQClientInstance.sendHeartbeatToAllBroker, unregisterClient.
Unlike Java: leaving is told only over the connections that heartbeats went over; nobody is dialled for it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs
import trio

from rocketrio.api import ClientAPI
from rocketrio.routing import Router
from rocketrio.wakeup import Wakeup
from rocketrio_protocol.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketrio_protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketrio_protocol.errors import Error, NotReachable
from rocketrio_protocol.message import MessageExt, MessageQueue

HEARTBEAT_INTERVAL: Final = 30.0  # heartbeatBrokerInterval; brokers forget a client after 120 s
CONSUME_PASSIVELY: Final = "CONSUME_PASSIVELY"
CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
"""Every member gets every message."""

logger = logging.getLogger("rocketrio.heartbeat")


class MemberAnswers(Protocol):
    """What a member answers to operators' tools; topics and groups in it are named as brokers name them."""

    def consumer_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Where it is on the queues of a topic, or of all for the empty name."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """How it is doing."""
        ...

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Have a handler run on a message, out of turn. Raises Error where none can."""
        ...


@attrs.define(eq=False)
class ConsumerMembership:
    """A consumer group that this client is a member of."""

    group: str
    consume_from_where: str
    subscriptions: dict[str, SubscriptionData]
    """By topic."""
    message_model: str = CLUSTERING
    rebalance_now: Wakeup = attrs.Factory(Wakeup)
    """Caused when the members or the queues may have changed."""
    follow_reset: Callable[[Mapping[MessageQueue, int]], None] | None = None
    """Told, synchronously, where an operator has put the group; None for members that keep their offsets themselves."""
    answers: MemberAnswers | None = None
    """None until its consumer is put together."""


@attrs.define
class HeartbeatService:
    """Sends the heartbeats of one client."""

    client_id: str
    api: ClientAPI
    routing: Router
    is_connected: Callable[[str], bool]
    """Whether there is a connection to an address: a broker forgets the groups of one that ended."""
    interval: float = HEARTBEAT_INTERVAL
    static_grace: int | None = None
    """Seconds that consumers here may be away without a rebalance, where a broker grants them; None asks for none."""
    granted: dict[str, int] = attrs.Factory(dict)
    """What each broker has granted of it, by address; 0 where none was."""
    consumers: dict[str, ConsumerMembership] = attrs.Factory(dict)
    """By group."""
    producers: dict[str, int] = attrs.Factory(dict)
    """Producer groups, with how many producers of this client use each."""
    heard_by: set[str] = attrs.Factory(set)
    """Addresses that answered a heartbeat."""
    _turns: dict[str, trio.Lock] = attrs.Factory(dict)
    """By address that a heartbeat was meant for: who may tell it something now."""
    _wakeup: Wakeup = attrs.Factory(Wakeup)

    async def run(self) -> None:
        """Send for as long as the client lives."""
        while True:
            await self._wakeup.wait(self.interval)
            await self.send_all()

    def wake(self) -> None:
        """Send soon: a connection broke, or an address is new."""
        self._wakeup.wake()

    def data(self) -> HeartbeatData:
        """What the heartbeat says now."""
        return HeartbeatData(
            client_id=self.client_id,
            consumer_data_set=[
                ConsumerData(
                    group_name=member.group,
                    consume_type=CONSUME_PASSIVELY,
                    message_model=member.message_model,
                    consume_from_where=member.consume_from_where,
                    subscription_data_set=list(member.subscriptions.values()),
                )
                for member in self.consumers.values()
            ],
            producer_data_set=[ProducerData(group_name=group) for group in self.producers],
        )

    def targets(self) -> list[str]:
        """Addresses the next heartbeat goes to."""
        if self.consumers:
            return self.routing.addresses()
        return self.routing.addresses(masters_only=True) if self.producers else []

    async def send_all(self) -> list[str]:
        """One heartbeat to every broker, at the same time; once each answered or failed, those that did not answer."""
        silent: list[str] = []
        known = self.routing.addresses()
        self.heard_by.intersection_update(known)
        for addr in self._turns.keys() - set(known):
            del self._turns[addr]
        async with trio.open_nursery() as nursery:
            for addr in self.targets():
                nursery.start_soon(self._send, addr, silent)
        return silent

    async def _send(self, addr: str, silent: list[str]) -> None:
        try:
            async with self._turns.setdefault(addr, trio.Lock()):
                if not self.consumers and not self.producers:
                    return
                granted = await self.api.heartbeat(
                    addr, self.data(), static_grace=self.static_grace
                )
        except Error as error:
            logger.info("heartbeat failed addr=%s error=%s", addr, error.what)
            if isinstance(error, NotReachable):
                silent.append(addr)
        else:
            self.heard_by.add(addr)
            self._note_grant(addr, granted)

    def _note_grant(self, addr: str, granted: int) -> None:
        if self.granted.get(addr) == granted or not self.consumers:
            return
        self.granted[addr] = granted
        if self.static_grace is not None and granted < self.static_grace:
            logger.warning(
                "less static membership granted addr=%s asked=%d granted=%d: a longer absence moves queues"
                " (Apache's brokers grant none; ours up to static_member_grace_limit)",
                addr, self.static_grace, granted,
            )  # fmt: skip

    async def leave(
        self, *, consumer_group: str | None = None, producer_group: str | None = None
    ) -> None:
        """Tell every broker that may have heard of it that a group has no member here any more.

        A broker that keeps the place of this static member is not told of a consumer group.
        """
        async with trio.open_nursery() as nursery:
            for addr, turn in self._turns.items():
                if consumer_group is not None and self.granted.get(addr):
                    continue
                nursery.start_soon(self._leave, addr, turn, consumer_group, producer_group)

    async def _leave(
        self, addr: str, turn: trio.Lock, consumer_group: str | None, producer_group: str | None
    ) -> None:
        try:
            async with turn:
                is_back = consumer_group in self.consumers or producer_group in self.producers
                if is_back or not self.is_connected(addr):
                    return
                await self.api.unregister_client(
                    addr,
                    self.client_id,
                    consumer_group=consumer_group,
                    producer_group=producer_group,
                )
        except Error as error:
            logger.info("unregistering failed addr=%s error=%s", addr, error.what)
