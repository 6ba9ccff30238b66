"""A redelivered message: from the retry topic of its group, or passed to the same handler again.

Answers to: DefaultMQPushConsumerImpl.resetRetryAndNamespace.
"""

import attrs

from rocketrio.cluster.namespace import NO_NAMESPACE, Namespace
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.properties import PROPERTY_RETRY_TOPIC


@attrs.define(eq=False, repr=False)
class RedeliveredMessage(MessageExt):
    """The same record with the topic that it was sent to; queue and offset are its current ones."""

    attempts_here: int = 0
    """How often handling failed since the message was received, without handing it back."""
    namespace: Namespace = NO_NAMESPACE
    """The namespace whose short names it has."""

    @property
    def topic(self) -> str:
        return self.namespace.unwrapped(self.property_value(PROPERTY_RETRY_TOPIC) or super().topic)

    @property
    def reconsume_times(self) -> int:
        return super().reconsume_times + self.attempts_here

    def copy(self) -> "RedeliveredMessage":
        """Return the same message without the rest of its chunk."""
        return RedeliveredMessage(
            self.record,
            0,
            self.size,
            self.broker_name,
            attempts_here=self.attempts_here,
            namespace=self.namespace,
        )

    def __getstate__(self) -> tuple[bytes, str, int, str]:  # type: ignore[override]
        return self.record, self.broker_name, self.attempts_here, self.namespace.name

    def __setstate__(self, state: tuple[bytes, str, int, str]) -> None:  # type: ignore[override]
        super().__setstate__(state[:2])
        self.attempts_here, self.namespace = state[2], Namespace(state[3])


def redelivered(message: MessageExt, attempts_here: int = 0) -> RedeliveredMessage:
    """Return `message` as a redelivered one."""
    return RedeliveredMessage(
        message.buffer,
        message.start,
        message.size,
        message.broker_name,
        attempts_here=attempts_here,
        namespace=getattr(message, "namespace", NO_NAMESPACE),
    )
