"""Which messages of a topic a consumer receives: all, those with certain tags, or those that match an SQL92 expression.

Only brokers parse and evaluate SQL92 expressions; here they are plain text, and `check_expression` asks a broker.

Answers to: FilterAPI, SubscriptionData's tag expression (`*`, `a`, `a || b`), MessageSelector.
"""

import re
from collections.abc import Iterable
from typing import Final

import attrs

from rocketrio.arguments import list_of, text
from rocketrio.client import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.bodies.heartbeat import SubscriptionData
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.record.java_hash import tags_code

ALL_EXPRESSION: Final = "*"
TAG_EXPRESSION_TYPE: Final = "TAG"
SQL92_EXPRESSION_TYPE: Final = "SQL92"


@attrs.frozen
class Subscription:
    """An expression; `tags` is None if it has no tags: every message is wanted, or it is SQL92."""

    expression: str = ALL_EXPRESSION
    tags: frozenset[str] | None = None
    expression_type: str = TAG_EXPRESSION_TYPE

    @property
    def is_sql92(self) -> bool:
        """Whether only brokers can evaluate the expression, or reject it."""
        return self.expression_type == SQL92_EXPRESSION_TYPE

    def data(self, topic: str, *, sub_version: int) -> SubscriptionData:
        """Return the subscription as a heartbeat announces it."""
        tags = sorted(self.tags or ())
        return SubscriptionData(
            topic=topic,
            sub_string=self.expression,
            tags_set=tags,
            code_set=[tags_code(tag) for tag in tags],
            sub_version=sub_version,
            expression_type=self.expression_type,
        )


ALL: Final = Subscription()

_NOT_IN_TAGS: Final = re.compile(r"[\s,|'\"]")
"""Characters that separate tags elsewhere or belong to SQL; brokers do not forbid them in a tag, but few tags have
them."""


def odd_tag(subscription: Subscription) -> str | None:
    """Return a tag that is probably a mistake: no message would have it, and the consumer would wait forever."""
    return min(filter(_NOT_IN_TAGS.search, subscription.tags or ()), default=None)


def parse_subscription(tags: str | Iterable[str] | None) -> Subscription:
    """Return a subscription from `"a || b"`, `["a", "b"]`, `"*"` or None. Raises ConfigError for blank tags."""
    if tags is None:
        return ALL
    given = tags.split("||") if isinstance(tags, str) else list_of(str, "tags", tags)
    names = [tag.strip() for tag in given]
    if names in ([ALL_EXPRESSION], [""]) and isinstance(tags, str):
        return ALL
    if (
        not names
        or not all(names)
        or ALL_EXPRESSION in names
        or any("||" in name for name in names)
    ):
        raise ConfigError(
            f"tags {tags!r} cannot be read; give `a || b`, ['a', 'b'], or `*` for all"
        )
    return Subscription(" || ".join(names), frozenset(names))


def parse_where(where: str) -> Subscription:
    """Return a subscription from an SQL92 expression: `amount > 100 AND region = 'EU'`.

    Raises ConfigError for a blank one.
    """
    text("where", where)
    if not where.strip():
        raise ConfigError("where= is blank; omit it to receive everything")
    return Subscription(where, None, SQL92_EXPRESSION_TYPE)


async def check_expression(
    client: ClientInstance, group: str, subscription: Subscription, queue: MessageQueue
) -> None:
    """Raise BrokerError if the queue's broker does not accept the SQL92 expression."""
    data = subscription.data(queue.topic, sub_version=client.wall_clock.now_ms())

    async def ask(found: FindBrokerResult) -> None:
        await client.api.check_subscription(found.addr, client.client_id, group, data)

    await client.ask_broker(queue, ask)
