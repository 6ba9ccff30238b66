"""Drops silent clients, and notifies the members of a group (40) when their number changes.

Invariant: members are notified before the heartbeat that made the change is answered, including the new member, unless
there are very many. Groups that broadcast are not notified, as in 5.x.
Answers to: ClientHousekeepingService, DefaultConsumerIdsChangeListener; RocketMQ reference, section 2.6.
"""

import logging
from collections.abc import Iterable
from typing import Final

import trio

from rocketrio_broker.clients.connected import (
    BROADCASTING,
    SCAN_INTERVAL,
    ClientChannel,
    ConsumerManager,
    ProducerManager,
)
from rocketrio_broker.settings.config import LiveConfig
from rocketrio_broker.tables.groups import SubscriptionGroupManager
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.client import NotifyConsumerIdsChangedRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.tasks import every

logger = logging.getLogger("rocketrio_broker.clients")

NOTICES_TOGETHER: Final = 2000
"""The most members that are notified of a change (40) without a pause: some 8 ms."""


class ClientHousekeepingService:
    """Keeps the tables of consumers and producers free of clients that are gone, and notifies the others."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        consumers: ConsumerManager,
        producers: ProducerManager,
        groups: SubscriptionGroupManager,
    ) -> None:
        self._config = config
        self._consumers = consumers
        self._producers = producers
        self._groups = groups
        self._changed_groups: dict[str, None] = {}
        """Groups whose members must still be notified of a change."""
        self._members: list[ClientChannel] = []
        """The members still to be notified of the group that is being processed, in reverse order."""
        self._notice = NotifyConsumerIdsChangedRequestHeader("")
        """The notification for these members."""
        self._rounds = Watermark()
        """Counts the changes after which `run` must notify the members that were left."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Drop clients that have been silent for too long, and send the remaining notifications."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notify_the_rest)
            task_status.started()
            async for _ in every(SCAN_INTERVAL, first_after=SCAN_INTERVAL):
                self.scan(trio.current_time())

    def scan(self, now: float) -> None:
        """Drop the clients that are silent at this time."""
        groups, silent = self._consumers.scan_not_active(now)
        silent += self._producers.scan_not_active(now)
        for channel in silent:
            logger.warning("client silent addr=%s", channel.remote_addr)
            channel.close()
        self.notify(groups)

    def channel_closed(self, channel: Channel) -> None:
        """Remove the members of a connection that ended from their groups."""
        self._producers.channel_closed(channel)
        self.notify(self._consumers.channel_closed(channel, now=trio.current_time()))

    def notify(self, groups: Iterable[str]) -> None:
        """Notify the members of these groups that their number changed, if the group is configured so.

        At most NOTICES_TOGETHER members are notified here; `run` notifies the others.
        """
        if not self._config.broker.notify_consumer_ids_changed_enable:
            return
        # At once, and so before the heartbeat is answered: all members begin to divide the queues together.
        self._changed_groups.update(dict.fromkeys(groups))
        if self._notify_some():
            self._rounds.advance(self._rounds.value + 1)

    async def _notify_the_rest(self) -> None:
        seen = 0
        while True:
            seen = await self._rounds.wait_past(seen)
            while self._notify_some():
                await trio.lowlevel.checkpoint()

    def _notify_some(self) -> bool:
        """Notify some members; return whether there are more."""
        for _ in range(NOTICES_TOGETHER):
            while not self._members and self._changed_groups:
                group = next(iter(self._changed_groups))
                del self._changed_groups[group]
                self._members = self._members_to_notify(group)
                self._notice = NotifyConsumerIdsChangedRequestHeader(group)
            if not self._members:
                return False
            notice = RemotingCommand.request(self._notice, oneway=True)
            channel, group = self._members.pop(), self._notice.consumer_group
            send_oneway(channel, notice, what="notification", group=group)
        return True

    def _members_to_notify(self, group: str) -> list[ClientChannel]:
        """Return the members to notify, in reverse order."""
        known = self._groups.subscription_group_table.get(group)
        if known is not None and not known.notify_consumer_ids_changed_enable:
            return []
        members = self._consumers.group(group)
        if members is None or members.message_model == BROADCASTING:
            return []  # Members that broadcast do not share queues, so no queue changes its owner.
        return list(reversed(members.channels))


def send_oneway(channel: ClientChannel, order: RemotingCommand, *, what: str, group: str) -> None:
    """Send a one-way request; a failure is logged."""
    try:
        channel.send_oneway(order)
    except Error as error:
        # The client polls periodically and finds out; the other clients must still be notified.
        logger.info(
            "order to a client failed what=%s group=%s addr=%s error=%s",
            what,
            group,
            channel.remote_addr,
            error,
        )
