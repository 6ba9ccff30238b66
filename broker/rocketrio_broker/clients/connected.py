"""The connected clients: consumers and producers by group, as their heartbeats report them.

The tables take the time as an argument, return what changed, and send nothing.

Invariant: a channel is in a group at most once; a group without channels is not in the table.
Invariant: a static member whose connection ended stays among the client ids for its grace time (static_members.py).
Answers to: ConsumerManager, ConsumerGroupInfo, ProducerManager, ClientChannelInfo; RocketMQ reference, section 2.6.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Final, Protocol

import attrs

from rocketrio_broker.clients.static_members import AwayMembers
from rocketrio_protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from rocketrio_protocol.codes import LanguageCode
from rocketrio_protocol.command import RemotingCommand

logger = logging.getLogger("rocketrio_broker.clients")

CHANNEL_EXPIRED_TIMEOUT: Final = 120.0  # channelExpiredTimeout of ConsumerManager
SCAN_INTERVAL: Final = 10.0  # ClientHousekeepingService
_GROUPS_SHOWN: Final = 10  # In the log line about a connection that ended.
HOLDER_TIMEOUT: Final = 45.0
"""Seconds without a heartbeat after which another connection may use a client id; heartbeats come every 30."""
BROADCASTING: Final = "BROADCASTING"
"""The message model of a group in which every member reads all messages."""


class ClientChannel(Protocol):
    """The methods of a connection that the tables need."""

    @property
    def remote_addr(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def send_oneway(self, command: RemotingCommand) -> None: ...
    async def call(self, request: RemotingCommand, *, timeout: float) -> RemotingCommand: ...
    def close(self) -> None: ...


@attrs.define(eq=False)
class ClientChannelInfo:
    """One client of one connection."""

    channel: ClientChannel
    client_id: str
    language: LanguageCode
    version: int
    last_update: float = 0.0
    """Time of the last heartbeat, on the clock of deadlines."""
    static_grace: float = 0.0
    """Seconds that the client stays a member after its connection ended; 0 unless it is a static member."""
    user: str | None = None
    """The user of its last heartbeat, as far as access control has verified it."""


@attrs.define(eq=False)
class ConsumerGroupInfo:
    """One consumer group: its connections and what they subscribe to."""

    group: str
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    subscription_table: dict[str, SubscriptionData] = attrs.Factory(dict)
    channels: dict[ClientChannel, ClientChannelInfo] = attrs.Factory(dict)
    wishes: dict[ClientChannel, frozenset[tuple[str, str]]] = attrs.Factory(dict)
    """What each member subscribes to: topics and expressions. All of a group should be equal."""

    @property
    def subscriptions_differ(self) -> bool:
        """Whether members subscribe to different things, so that each gets messages that it does not want."""
        return len(set(self.wishes.values())) > 1

    def client_ids(self) -> list[str]:
        """Return the members' client ids, each once."""
        return list(dict.fromkeys(info.client_id for info in self.channels.values()))

    def is_shared(self, client: ClientChannelInfo) -> bool:
        """Return True if another connection has the same client id."""
        return any(
            other.client_id == client.client_id and other.channel is not client.channel
            for other in self.channels.values()
        )

    def update_subscription(self, subscriptions: list[SubscriptionData]) -> bool:
        """Take over a member's subscriptions; return True if a topic was added or removed.

        Members with different subscriptions overwrite each other, as in Java: a group has one subscription.
        """
        changed = False
        for subscription in subscriptions:
            known = self.subscription_table.get(subscription.topic)
            if known is None:
                changed = True
            elif subscription.sub_version <= known.sub_version:
                continue
            self.subscription_table[subscription.topic] = subscription
        wanted = {subscription.topic for subscription in subscriptions}
        for topic in self.subscription_table.keys() - wanted:
            logger.info("subscription removed group=%s topic=%s", self.group, topic)
            del self.subscription_table[topic]
            changed = True
        return changed


class ConsumerManager:
    """All consumer groups of a broker."""

    def __init__(self) -> None:
        self.consumer_table: dict[str, ConsumerGroupInfo] = {}
        self._sizes_of: dict[ClientChannel, dict[str, int]] = {}
        self._away = AwayMembers()

    def sizes_of(self, channel: ClientChannel) -> Mapping[str, int]:
        """Return the groups of one connection, each with the size in bytes of the heartbeat that registered it."""
        return self._sizes_of.get(channel, {})

    def group(self, group: str) -> ConsumerGroupInfo | None:
        """Return the group, or None if no member is connected."""
        return self.consumer_table.get(group)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the group's subscription of the topic."""
        info = self.consumer_table.get(group)
        return None if info is None else info.subscription_table.get(topic)

    def client_ids(self, group: str) -> list[str]:
        """Return the client ids of the group's members, including absent static members."""
        info = self.consumer_table.get(group)
        present = [] if info is None else info.client_ids()
        return present + self._away.client_ids(group)

    def channels(self, group: str) -> list[ClientChannel]:
        """Return the connections of the group's members."""
        info = self.consumer_table.get(group)
        return [] if info is None else list(info.channels)

    def channel(self, group: str, client_id: str) -> ClientChannelInfo | None:
        """Return the connection of one member, or None."""
        info = self.consumer_table.get(group)
        clients = () if info is None else info.channels.values()
        return next((client for client in clients if client.client_id == client_id), None)

    def is_held_by_another(
        self, group: str, client_id: str, channel: ClientChannel, *, now: float
    ) -> bool:
        """Return True if another live connection has this client id, and is not an older one of the same client."""
        holder = self.channel(group, client_id)
        return holder is not None and not _may_use_client_id(
            holder.channel, channel, idle_time=now - holder.last_update
        )

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups with a connected member that subscribes to the topic."""
        return [
            group for group, info in self.consumer_table.items() if topic in info.subscription_table
        ]

    def register(
        self, data: ConsumerData, client: ClientChannelInfo, *, now: float, size: int = 0
    ) -> bool:
        """Record a heartbeat of one group, with this many bytes; return True if the members must be notified."""
        self._sizes_of.setdefault(client.channel, {})[data.group_name] = size
        info = self.consumer_table.get(data.group_name)
        if info is None:
            info = self.consumer_table[data.group_name] = ConsumerGroupInfo(data.group_name)
        info.consume_type = str(data.consume_type)
        info.message_model = str(data.message_model)
        info.consume_from_where = str(data.consume_from_where)
        known = info.channels.get(client.channel)
        is_new = known is None
        if known is None or known.client_id != client.client_id:
            was_away = self._away.come_back(data.group_name, client.client_id)
            if client.static_grace:
                # The list of members stays the same, so no member has to read it again.
                is_new = not was_away and not info.is_shared(client)
            logger.info(
                "consumer connected group=%s client_id=%s addr=%s",
                data.group_name, client.client_id, client.channel.remote_addr,
            )  # fmt: skip
            info.channels[client.channel] = attrs.evolve(client, last_update=now)
        else:
            known.last_update = now
            known.static_grace = client.static_grace
        info.wishes[client.channel] = frozenset(
            (each.topic, each.sub_string) for each in data.subscription_data_set
        )
        changed = info.update_subscription(data.subscription_data_set)
        return is_new or changed

    def unregister(self, group: str, channel: ClientChannel) -> bool:
        """Remove a member that leaves for good, also a static one; return True if the others must be notified."""
        return self._remove(group, channel) is not None

    def _remove(self, group: str, channel: ClientChannel) -> ClientChannelInfo | None:
        info = self.consumer_table.get(group)
        client = None if info is None else info.channels.pop(channel, None)
        if info is None or client is None:
            return None
        del info.wishes[channel]
        logger.info("consumer gone group=%s addr=%s", group, channel.remote_addr)
        sizes = self._sizes_of[channel]
        del sizes[group]
        if not sizes:
            del self._sizes_of[channel]
        # Groups are named by clients: what no connection needs must not stay.
        if not info.channels:
            del self.consumer_table[group]
        return client

    def _lose(self, group: str, channel: ClientChannel, now: float) -> bool:
        """Remove a member whose connection ended; return True if the others must be notified."""
        client = self._remove(group, channel)
        if client is None:
            return False
        if not client.static_grace:
            return True
        info = self.consumer_table.get(group)
        if info is not None and info.is_shared(client):
            return False  # It has already come back on another connection.
        return not self._away.leave(group, client.client_id, until=now + client.static_grace)

    def channel_closed(self, channel: ClientChannel, *, now: float) -> list[str]:
        """Remove a closed connection; return the groups whose members must be notified."""
        return [group for group in list(self.sizes_of(channel)) if self._lose(group, channel, now)]

    def scan_not_active(self, now: float) -> tuple[list[str], list[ClientChannel]]:
        """Remove clients that were silent or away for too long; return groups to notify and connections to close."""
        silent = [
            (group, client.channel)
            for group, info in self.consumer_table.items()
            for client in info.channels.values()
            if now - client.last_update > CHANNEL_EXPIRED_TIMEOUT
        ]
        groups = [group for group, channel in silent if self._lose(group, channel, now)]
        groups += self._away.expire(now)
        return list(dict.fromkeys(groups)), [channel for _, channel in silent]


@attrs.define
class _Producers:
    """The producer groups and client ids that one connection has registered."""

    groups: dict[str, None] = attrs.Factory(dict)
    client_ids: set[str] = attrs.Factory(set)
    last_update: float = 0.0


class ProducerManager:
    """All producer groups of a broker.

    Invariant: while a connection that named a client id lives, no connection from another host gets its replies.
    Invariant: a closed connection leaves nothing behind, and its removal costs no more than what it had registered.
    """

    def __init__(self) -> None:
        self.group_channel_table: dict[str, dict[ClientChannel, ClientChannelInfo]] = {}
        self._producers_of: dict[ClientChannel, _Producers] = {}
        self._channel_by_client_id: dict[str, ClientChannel] = {}

    def groups_of(self, channel: ClientChannel) -> Collection[str]:
        """Return the groups of one connection."""
        producers = self._producers_of.get(channel)
        return () if producers is None else producers.groups

    def client_ids_of(self, channel: ClientChannel) -> Collection[str]:
        """Return the client ids that one connection has named."""
        producers = self._producers_of.get(channel)
        return () if producers is None else producers.client_ids

    def channel(self, client_id: str) -> ClientChannel | None:
        """Return the live connection of a client, in any of its groups: replies for the client go there."""
        channel = self._channel_by_client_id.get(client_id)
        return None if channel is None or channel.closed else channel

    def clients(self, group: str) -> list[ClientChannelInfo]:
        """Return the clients that are connected for the group."""
        return list(self.group_channel_table.get(group, {}).values())

    def available_channel(
        self,
        group: str,
        *,
        choose: Callable[[list[ClientChannel]], ClientChannel],
        is_permitted: Callable[[ClientChannelInfo], bool] = lambda client: True,
    ) -> ClientChannel | None:
        """Return a live connection of the group, of a permitted client, to ask it about a transaction."""
        alive = [
            channel
            for channel, client in self.group_channel_table.get(group, {}).items()
            if not channel.closed and is_permitted(client)
        ]
        return choose(alive) if alive else None

    def register(self, group: str, client: ClientChannelInfo, *, now: float) -> None:
        """Record a heartbeat of one group."""
        producers = self._producers_of.setdefault(client.channel, _Producers())
        producers.last_update = now
        # Any client may name any id: replies stay with the connection that named it first, while that lives.
        if self._may_have(client, now):
            self._channel_by_client_id[client.client_id] = client.channel
        producers.groups[group] = None
        producers.client_ids.add(client.client_id)
        channels = self.group_channel_table.setdefault(group, {})
        known = channels.get(client.channel)
        if known is None:
            logger.info(
                "producer connected group=%s client_id=%s addr=%s",
                group, client.client_id, client.channel.remote_addr,
            )  # fmt: skip
            channels[client.channel] = attrs.evolve(client, last_update=now)
        else:
            known.last_update, known.user = now, client.user

    def _may_have(self, client: ClientChannelInfo, now: float) -> bool:
        """Return True if the client's replies go to this connection, because others may name its id too."""
        holder = self._channel_by_client_id.get(client.client_id)
        if holder is None or holder.closed:
            return True
        idle_time = now - self._producers_of[holder].last_update
        if _may_use_client_id(holder, client.channel, idle_time=idle_time):
            return True
        logger.warning(
            "client id belongs to another connection client_id=%s addr=%s holder=%s",
            client.client_id, client.channel.remote_addr, holder.remote_addr,
        )  # fmt: skip
        return False

    def unregister(self, group: str, channel: ClientChannel) -> None:
        """Remove a member that leaves."""
        producers = self._producers_of.get(channel)
        if producers is None or group not in producers.groups:
            return
        logger.info("producer gone group=%s addr=%s", group, channel.remote_addr)
        self._remove(group, channel)
        del producers.groups[group]
        if not producers.groups:
            self._forget(channel)

    def channel_closed(self, channel: ClientChannel) -> None:
        """Remove a closed connection."""
        producers = self._producers_of.get(channel)
        if producers is None:
            return
        logger.info(
            "producers gone count=%d groups=%s addr=%s",
            len(producers.groups), ",".join(islice(producers.groups, _GROUPS_SHOWN)), channel.remote_addr,
        )  # fmt: skip
        for group in producers.groups:
            self._remove(group, channel)
        self._forget(channel)

    def _remove(self, group: str, channel: ClientChannel) -> None:
        channels = self.group_channel_table[group]
        del channels[channel]
        if not channels:
            del self.group_channel_table[group]

    def _forget(self, channel: ClientChannel) -> None:
        for client_id in self._producers_of.pop(channel).client_ids:
            # The client may be back on another connection, which has the id now.
            if self._channel_by_client_id.get(client_id) is channel:
                del self._channel_by_client_id[client_id]

    def scan_not_active(self, now: float) -> list[ClientChannel]:
        """Remove clients that were silent for too long; return the connections to close."""
        silent = [
            (group, client.channel)
            for group, channels in self.group_channel_table.items()
            for client in channels.values()
            if now - client.last_update > CHANNEL_EXPIRED_TIMEOUT
        ]
        for group, channel in silent:
            self.unregister(group, channel)
        return [channel for _, channel in silent]


def _may_use_client_id(holder: ClientChannel, channel: ClientChannel, *, idle_time: float) -> bool:
    """Return True if a connection may act for the client id that another connection, idle for that time, has named.

    A client of the same host may have connected again before the end of its old connection is known here.
    """
    if holder is channel or holder.closed or idle_time > HOLDER_TIMEOUT:
        return True
    return _host(holder) == _host(channel)


def _host(channel: ClientChannel) -> str:
    return channel.remote_addr.rpartition(":")[0]
