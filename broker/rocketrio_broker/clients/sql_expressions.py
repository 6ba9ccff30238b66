"""Compiles an SQL92 subscription into a predicate over message properties, or refuses it as Java does.

    enable_property_filter off, or another type     1   the broker does not support it
    invalid expression in a pull, or in 46          23  answered to that request
    invalid expression in a heartbeat               27  answered to the pulls that use it

Invariant: no host makes the broker compile more than COMPILE_RATE characters per second, after COMPILE_BURST at once.
Answers to: FilterFactory, ConsumerFilterManager, ClientManageProcessor; RocketMQ reference, sections 2.6 and 8.2.
Unlike Java: a pull that names an invalid expression is refused; Java's broker filters nothing then.
"""

from typing import TYPE_CHECKING, Final

import trio

from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.server_limits import host_of

if TYPE_CHECKING:
    from rocketrio_protocol.filter.sql92 import Matcher

SQL92: Final = "SQL92"

COMPILE_RATE: Final = 4 << 10
"""The most characters per second that one host may have compiled, in 18 ms. An expression that is already compiled is
free."""
COMPILE_BURST: Final = 16 << 10
"""The most characters that a host may have compiled at once, in 70 ms: hundreds of expressions of the usual length."""
_HOSTS_KEPT: Final = 1000
"""The number of hosts in the table from which on those are removed that have compiled nothing recently."""


def load_parser(broker: BrokerConfig) -> None:
    """Load the parser before the first request that needs it, which would take a tenth of a second."""
    if broker.enable_property_filter:
        from rocketrio_protocol.filter.sql92 import compile_sql92

        compile_sql92("TRUE")


class SqlExpressions:
    """Compiles subscriptions, within a limit per host."""

    def __init__(self) -> None:
        self._paid_until: dict[str, float] = {}
        """By host: the time at which its expressions would be compiled at COMPILE_RATE."""

    def filter(
        self,
        channel: Channel,
        expression_type: str | None,
        expression: str | None,
        broker: BrokerConfig,
        *,
        wrong: ResponseCode = ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    ) -> "Matcher":
        """Return the predicate over messages. Raises RefusedError, with the code `wrong` for an invalid expression."""
        if expression_type != SQL92 or not broker.enable_property_filter:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
            )
        # The parser's library takes 1.5 MiB and a tenth of a second: load it only if it is used (`load_parser`).
        from rocketrio_protocol.filter.sql92 import (
            EXPRESSION_SIZE_LIMIT,
            ExpressionError,
            compile_sql92,
            is_compiled,
        )

        text = expression or ""
        if len(text) <= EXPRESSION_SIZE_LIMIT and not is_compiled(text):
            # Before it is compiled, and per host: one host's new expressions must not stop all clients of the broker.
            self._pay(host_of(channel.remote_addr), len(text))
        try:
            return compile_sql92(text)
        except ExpressionError as error:
            raise RefusedError(
                wrong, f"parse the consumer's subscription failed: {error.what}"
            ) from error

    def _pay(self, host: str, size: int) -> None:
        now = trio.current_time()
        until = max(now, self._paid_until.get(host, now)) + size / COMPILE_RATE
        if until > now + COMPILE_BURST / COMPILE_RATE:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"clients at {host} have sent more than {COMPILE_BURST} characters of new SQL92 expressions "
                "in a short time; try again in a few seconds",
            )
        if len(self._paid_until) >= _HOSTS_KEPT:
            self._paid_until = {each: at for each, at in self._paid_until.items() if at > now}
        self._paid_until[host] = until
