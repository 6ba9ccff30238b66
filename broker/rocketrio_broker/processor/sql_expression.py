"""An SQL92 subscription as what judges a message's properties, or as the refusal that Java answers with.

    enable_property_filter off, or another type     1   the broker does not support it
    no such expression in a pull, or in 46          23  where it is wrong
    no such expression in a heartbeat               27  at the pulls that it is for

Answers to: FilterFactory, ConsumerFilterManager, ClientManageProcessor; RocketMQ reference, sections 2.6 and 8.2.
Unlike Java: a pull that names a wrong expression is refused; Java's broker filters nothing then.
"""

from typing import TYPE_CHECKING, Final

from rocketrio_broker.config import BrokerConfig
from rocketrio_broker.processor.refusal import Refused
from rocketrio_protocol.codes import ResponseCode

if TYPE_CHECKING:
    from rocketrio_broker.filter.sql92 import Matcher

SQL92: Final = "SQL92"


def load_parser(broker: BrokerConfig) -> None:
    """Load the parser before the first request that needs it, which would take a tenth of a second."""
    if broker.enable_property_filter:
        import rocketrio_broker.filter.sql92  # noqa: F401


def sql_filter(
    expression_type: str | None,
    expression: str | None,
    broker: BrokerConfig,
    *,
    wrong: ResponseCode = ResponseCode.SUBSCRIPTION_PARSE_FAILED,
) -> "Matcher":
    """What judges messages. Raises Refused, with `wrong` for a text that is no expression."""
    if expression_type != SQL92 or not broker.enable_property_filter:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )
    # The parser's library is 1.5 MiB and a tenth of a second: only where it is wanted (`load_parser`).
    from rocketrio_broker.filter.sql92 import ExpressionError, compile_sql92

    try:
        return compile_sql92(expression or "")
    except ExpressionError as error:
        raise Refused(wrong, f"parse the consumer's subscription failed: {error.what}") from error
