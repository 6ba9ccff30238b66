"""Namespaces: separate sets of topics and groups on one cluster, distinguished by a prefix of their names.

    orders            ns%orders
    %RETRY%billing    %RETRY%ns%billing
    TBW102            TBW102                 system names belong to all namespaces
    lab_REPLY_TOPIC   lab_REPLY_TOPIC        and so do reply topics

Inside a client every name is the short one; outgoing requests and incoming answers are rewritten
(`NamespacedConnections`). Without a namespace nothing is rewritten.

Invariant: wrapping or unwrapping a second time changes nothing.
Answers to: NamespaceUtil, ClientConfig.withNamespace and withoutNamespace.
Unlike Java: names are changed in one place, at the wire; reply topics stay as they are, so that replies find them.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import attrs
import msgspec

from rocketrio.cluster.connections import Connections
from rocketrio.producing.send_request import SendRequest
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import HeartbeatData
from rocketrio_protocol.bodies.queues import LockBatch, LockedBatch, QueueName
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2
from rocketrio_protocol.connection import PreparedRequest
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import (
    DEAD_LETTER_PREFIX,
    REPLY_TOPIC_POSTFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    is_system_group,
    topic_name_problem,
)
from rocketrio_protocol.record.properties import PROPERTY_INSTANCE_ID

SEPARATOR: Final = "%"
_NAMES: Final = (
    "topic", "origin_topic", "group", "group_name", "consumer_group", "producer_group"
)  # fmt: skip
"""The request fields that contain a topic's or a group's name."""

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R", bound=RequestHeader | PreparedRequest)


@attrs.frozen
class Namespace:
    """One namespace; the empty name means no namespace."""

    name: str = ""

    def __attrs_post_init__(self) -> None:
        if self.name and (SEPARATOR in self.name or topic_name_problem(self.name) is not None):
            raise ConfigError(
                f"namespace={self.name!r}: letters, digits, _ - and | make a namespace's name"
            )

    def __bool__(self) -> bool:
        return bool(self.name)

    def wrapped(self, name: str) -> str:
        """Return a topic's or group's name as brokers know it."""
        if not self.name or not name or _is_of_all(name):
            return name
        prefix, rest = _parts(name)
        # Wrapped already: names come from users, who know the short one, and from brokers' answers.
        if rest.startswith(self.name + SEPARATOR):
            return name
        return f"{prefix}{self.name}{SEPARATOR}{rest}"

    def unwrapped(self, name: str) -> str:
        """Return the name as users know it; names of other namespaces stay as they are."""
        if not self.name:
            return name
        prefix, rest = _parts(name)
        return prefix + rest.removeprefix(self.name + SEPARATOR)

    def known(self, names: Iterable[str]) -> list[str]:
        """Return the names that are visible in the namespace, as users know them: its own, and the common ones."""
        if not self.name:
            return list(names)
        short = {name: self.unwrapped(name) for name in names}
        return [known for name, known in short.items() if self.wrapped(known) == name]

    def message(self, message: MessageExt) -> MessageExt:
        """Return the message with the topic's name as users know it."""
        if not self.name:
            return message
        return NamespacedMessage(
            message.buffer, message.start, message.size, message.broker_name, namespace=self
        )


@attrs.define(eq=False, repr=False)
class NamespacedMessage(MessageExt):
    """A message of a namespace, with short names."""

    namespace: Namespace = attrs.field(kw_only=True)

    @property
    def topic(self) -> str:
        return self.namespace.unwrapped(super().topic)

    def copy(self) -> "NamespacedMessage":
        """Return the same message without the rest of its chunk."""
        return NamespacedMessage(
            self.record, 0, self.size, self.broker_name, namespace=self.namespace
        )

    def __getstate__(self) -> tuple[bytes, str, str]:  # type: ignore[override]
        return self.record, self.broker_name, self.namespace.name

    def __setstate__(self, state: tuple[bytes, str, str]) -> None:  # type: ignore[override]
        super().__setstate__(state[:2])
        self.namespace = Namespace(state[2])


NO_NAMESPACE: Final = Namespace()


def _parts(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def _is_of_all(name: str) -> bool:
    return (
        name in SYSTEM_TOPICS
        or name.startswith(SYSTEM_TOPIC_PREFIX)
        or is_system_group(name)
        or name.endswith(f"_{REPLY_TOPIC_POSTFIX}")
    )


@attrs.define
class NamespacedConnections(Connections):
    """Connections on which all names belong to a namespace."""

    namespace: Namespace = attrs.field(kw_only=True)

    async def call(
        self,
        addr: str,
        request: RequestHeader | PreparedRequest,
        body: Body = b"",
        *,
        timeout: float,
        now: float | None = None,
    ) -> RemotingCommand:
        """Call as `Connections.call`."""
        rewrite = _BODIES.get(int(request.code))
        if rewrite is not None:
            body = rewrite(self.namespace, body)
        answer = await super().call(addr, self._renamed(request), body, timeout=timeout, now=now)
        if request.code == RequestCode.LOCK_BATCH_MQ and answer.body:
            answer.body = _locked(self.namespace, answer.body)
        return answer

    async def send_oneway(
        self, addr: str, request: RequestHeader, body: Body = b"", *, timeout: float
    ) -> None:
        """Send as `Connections.send_oneway`."""
        rewrite = _BODIES.get(int(request.code))
        if rewrite is not None:
            body = rewrite(self.namespace, body)
        await super().send_oneway(addr, self._renamed(request), body, timeout=timeout)

    def _renamed(self, request: R) -> R:
        wrapped = self.namespace.wrapped
        if isinstance(request, SendRequest):
            outgoing = request.outgoing
            outgoing = attrs.evolve(
                outgoing,
                topic=wrapped(outgoing.topic),
                properties=self._marked(outgoing.properties),
            )
            return attrs.evolve(request, outgoing=outgoing, group=wrapped(request.group))
        changes = {
            field: wrapped(name)
            for field in _NAMES
            if isinstance(name := getattr(request, field, None), str)
        }
        if isinstance(request, SendMessageRequestHeaderV2):
            changes["properties"] = self._marked(request.properties or "")
        if not changes:
            return request
        assert isinstance(request, RequestHeader)  # Others that are prepared are sends.
        return msgspec.structs.replace(request, **changes)

    def _marked(self, properties: str) -> str:
        return f"{PROPERTY_INSTANCE_ID}\x01{self.namespace.name}\x02{properties}"


def _heartbeat(namespace: Namespace, body: Body) -> bytes:
    data = _read(body, HeartbeatData)
    for consumer in data.consumer_data_set:
        consumer.group_name = namespace.wrapped(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            subscription.topic = namespace.wrapped(subscription.topic)
    for producer in data.producer_data_set:
        producer.group_name = namespace.wrapped(producer.group_name)
    return fastjson.dumps(data)


def _lock(namespace: Namespace, body: Body) -> bytes:
    data = _read(body, LockBatch)
    data.consumer_group = namespace.wrapped(data.consumer_group)
    data.mq_set = [_queue(queue, namespace.wrapped) for queue in data.mq_set]
    return fastjson.dumps(data)


def _locked(namespace: Namespace, body: Body) -> bytes:
    data = _read(body, LockedBatch)
    data.lock_ok_mq_set = [_queue(queue, namespace.unwrapped) for queue in data.lock_ok_mq_set]
    return fastjson.dumps(data)


def _group(namespace: Namespace, body: Body) -> bytes:
    # Settings of newer brokers that this client does not know are kept.
    settings = fastjson.loads(body, dict[str, Any], what="group settings")
    return fastjson.dumps({**settings, "groupName": namespace.wrapped(settings["groupName"])})


def _queue(queue: QueueName, rename: Callable[[str], str]) -> QueueName:
    return msgspec.structs.replace(queue, topic=rename(queue.topic))


def _read(body: Body, kind: type[T]) -> T:
    return fastjson.loads(body, kind, what=kind.__name__)


_BODIES: Final[dict[int, Callable[[Namespace, Body], bytes]]] = {
    int(RequestCode.HEART_BEAT): _heartbeat,
    int(RequestCode.LOCK_BATCH_MQ): _lock,
    int(RequestCode.UNLOCK_BATCH_MQ): _lock,
    int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP): _group,
}
