"""Reports this client's groups to the brokers: every 30 s, and at once when a group or an address is new.

Invariant: without a group nothing is sent; with producers alone heartbeats only go to masters.
Invariant: a broker that does not answer delays no other broker.
Invariant: a broker gets heartbeats and goodbyes one after the other, and each is true when it is sent. A heartbeat that
arrived after the goodbye would register a group that has left, and brokers close the connection of a client if one of
its groups stays silent for two minutes.
Answers to: MQClientInstance.sendHeartbeatToAllBroker, unregisterClient.
Unlike Java: goodbyes are only sent over connections that carried heartbeats; no connection is opened for them.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs
import trio

from rocketrio.cluster.api import ClientAPI
from rocketrio.routing import Router
from rocketrio.wakeup import Wakeup
from rocketrio_protocol.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketrio_protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.client import UnregisterClientRequestHeader
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    Error,
    NotReachableError,
    TlsError,
)
from rocketrio_protocol.message import MessageExt, MessageQueue

HEARTBEAT_INTERVAL: Final = 30.0  # heartbeatBrokerInterval; brokers forget a client after 120 s
CONSUME_PASSIVELY: Final = "CONSUME_PASSIVELY"
CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
"""Every member gets every message."""

logger = logging.getLogger("rocketrio.heartbeat")


class MemberAnswers(Protocol):
    """A member's answers to operators' tools; topics and groups in them have the names that brokers know."""

    def consumer_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets on the queues of a topic, or of all topics for the empty name."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """Return the member's state."""
        ...

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Call a handler with a message immediately, out of order. Raises Error if that is not possible."""
        ...


@attrs.define(eq=False)
class ConsumerMembership:
    """A consumer group that this client is a member of."""

    group: str
    consume_from_where: str
    subscriptions: dict[str, SubscriptionData]
    """The subscriptions by topic."""
    message_model: str = CLUSTERING
    rebalance_now: Wakeup = attrs.Factory(Wakeup)
    """Woken when the members or the queues may have changed."""
    follow_reset: Callable[[Mapping[MessageQueue, int]], None] | None = None
    """Called synchronously with the offsets that an operator set for the group; None for members that keep their
    offsets locally."""
    answers: MemberAnswers | None = None
    """None until the consumer is composed."""


@attrs.define
class HeartbeatService:
    """Sends the heartbeats of one client."""

    client_id: str
    api: ClientAPI
    routing: Router
    is_connected: Callable[[str], bool]
    """Returns whether there is a connection to an address: a broker forgets the groups of a connection that ended."""
    interval: float = HEARTBEAT_INTERVAL
    static_grace: int | None = None
    """Seconds that consumers here may be away without a rebalance, if a broker grants them; None requests none."""
    granted: dict[str, int] = attrs.Factory(dict)
    """The granted seconds by broker address; 0 if the broker granted none."""
    consumers: dict[str, ConsumerMembership] = attrs.Factory(dict)
    """The memberships by group."""
    producers: dict[str, int] = attrs.Factory(dict)
    """Producer groups, with the number of this client's producers in each."""
    acknowledged_by: set[str] = attrs.Factory(set)
    """Addresses of brokers that answered a heartbeat."""
    refusals: dict[str, BrokerError | TlsError] = attrs.Factory(dict)
    """Why the last heartbeat was refused, and every later one will be, by the address of the broker: access control,
    TLS, or a group of a name that the broker does not accept."""
    _turns: dict[str, trio.Lock] = attrs.Factory(dict)
    """A lock per address that got heartbeats: heartbeats and goodbyes to it take turns."""
    _wakeup: Wakeup = attrs.Factory(Wakeup)

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            await self._wakeup.wait(self.interval)
            await self.send_all()

    def wake(self) -> None:
        """Send soon, because a connection broke or an address is new."""
        self._wakeup.wake()

    def data(self) -> HeartbeatData:
        """Return the current content of the heartbeat."""
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

    def check_accepted(self) -> None:
        """Raise an error if a master refused the last heartbeat and will refuse later ones.

        It is AccessRefusedError, TlsError, or BrokerError for a group's name. A slave may not have the account yet.
        """
        for addr in self.routing.addresses(masters_only=True):
            if addr in self.refusals:
                refusal = self.refusals[addr]
                # Raise a new error: one object raised in many tasks would collect all their tracebacks.
                raise type(refusal)(
                    refusal.what,
                    broker_addr=addr,
                    topic=refusal.topic,
                    code=refusal.code,
                    remark=refusal.remark,
                    remedy=refusal.advice,
                )

    def targets(self) -> list[str]:
        """Return the addresses that the next heartbeat goes to."""
        # Slaves only need to know readers: a producer never sends to one.
        if self.consumers:
            return self.routing.addresses()
        return self.routing.addresses(masters_only=True) if self.producers else []

    async def send_all(self) -> list[str]:
        """Send a heartbeat to all brokers concurrently; when all are done, return those that did not answer."""
        silent: list[str] = []
        known = self.routing.addresses()
        self.acknowledged_by.intersection_update(known)
        for addr in self._turns.keys() - set(known):
            del self._turns[addr]
            self.refusals.pop(addr, None)
        async with trio.open_nursery() as nursery:
            for addr in self.targets():
                nursery.start_soon(self._send, addr, silent)
        return silent

    async def _send(self, addr: str, silent: list[str]) -> None:
        try:
            async with self._turns.setdefault(addr, trio.Lock()):
                # Read in its turn, as `data()` below: a goodbye that came first has removed the last group.
                if not self.consumers and not self.producers:
                    return
                granted = await self.api.heartbeat(
                    addr, self.data(), static_grace=self.static_grace
                )
        except Error as error:
            if isinstance(error, AccessRefusedError | TlsError) or (
                isinstance(error, BrokerError) and error.code == ResponseCode.INVALID_PARAMETER
            ):
                if addr not in self.refusals:  # Once, not every 30 s.
                    logger.warning("heartbeat refused error=%s", error)
                self.refusals[addr] = error
            else:
                logger.info("heartbeat failed addr=%s error=%s", addr, error.what)
            if isinstance(error, NotReachableError):
                silent.append(addr)
        else:
            self.refusals.pop(addr, None)
            self.acknowledged_by.add(addr)
            self._note_grant(addr, granted)

    def _note_grant(self, addr: str, granted: int) -> None:
        if self.granted.get(addr) == granted or not self.consumers:
            return
        self.granted[addr] = granted
        if self.static_grace is not None and granted < self.static_grace:
            logger.warning(
                "less static membership granted, a longer absence moves queues"
                " addr=%s requested=%d granted=%d remedy=%s",
                addr, self.static_grace, granted,
                "rocketrio brokers grant up to static_member_grace_limit, Apache's grant none",
            )  # fmt: skip

    async def leave(
        self, *, consumer_group: str | None = None, producer_group: str | None = None
    ) -> None:
        """Notify the brokers that may know a group that it has no member here any more.

        A broker that keeps the place of this static member is not notified about a consumer group, nor is one that has
        not said yet whether it does.
        """
        async with trio.open_nursery() as nursery:
            for addr, turn in self._turns.items():
                # An answer may still come: that broker would get the heartbeat and forget the member right after it.
                if consumer_group is not None and self.granted.get(addr, self.static_grace):
                    continue
                nursery.start_soon(self._leave, addr, turn, consumer_group, producer_group)

    async def _leave(
        self, addr: str, turn: trio.Lock, consumer_group: str | None, producer_group: str | None
    ) -> None:
        try:
            async with turn:
                # In its turn, too: a new consumer of the group may have sent its heartbeat first.
                is_back = consumer_group in self.consumers or producer_group in self.producers
                if is_back or not self.is_connected(addr):
                    return
                header = UnregisterClientRequestHeader(
                    self.client_id, producer_group=producer_group, consumer_group=consumer_group
                )
                await self.api.ask(addr, header, "unregistering")
        except Error as error:
            logger.info("unregistering failed addr=%s error=%s", addr, error.what)
