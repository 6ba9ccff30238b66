"""The errors of a Spark job. Each has its code in its text, because Spark shows only the text of an exception.

Answers to: the error classes of Spark's own sources.
"""

from typing import ClassVar

from rocketrio_protocol.errors import Error


class SparkSourceError(Error):
    """Base of the connector's errors; its text begins with `[CODE]`."""

    error_code: ClassVar[str] = "ROCKETMQ_ERROR"

    def __str__(self) -> str:
        return f"[{self.error_code}] {super().__str__()}"


class OptionError(SparkSourceError):
    """An option that cannot be used; the text names it and says what can be used."""

    error_code = "ROCKETMQ_OPTION"


class TopicNotFoundError(SparkSourceError):
    """A topic that no name server knows, or a queue that its brokers do not have."""

    error_code = "ROCKETMQ_TOPIC_NOT_FOUND"
    remedy = "Check `subscribe`, `assign` and `nameServer`"


class OffsetOutOfRangeError(SparkSourceError):
    """Messages that the query should read do not exist (any more)."""

    error_code = "ROCKETMQ_OFFSET_OUT_OF_RANGE"
    remedy = "Start from what is there, or set failOnDataLoss=false to read without what is lost"


class BrokerUnreachableError(SparkSourceError):
    """None of the brokers that could serve the queue answers."""

    error_code = "ROCKETMQ_BROKER_UNREACHABLE"
    remedy = "Check that the brokers run and that this host reaches the addresses they registered"

    @classmethod
    def because(cls, error: Error, text: str = "") -> "BrokerUnreachableError":
        """Return an error with the text of `error` after `text`; its own advice, if any, replaces the general one."""
        what = f"{text}: {error}" if text else str(error)
        return cls(what, remedy="" if error.advice else None)


class AccessDeniedError(SparkSourceError):
    """A server refused the account, or what the query does with a topic or group."""

    error_code = "ROCKETMQ_ACCESS_DENIED"

    @classmethod
    def because(cls, error: Error, text: str = "") -> "AccessDeniedError":
        """Return an error with the text of `error` after `text`, which has its own advice."""
        return cls(f"{text}: {error}" if text else str(error))


class DecodeError(SparkSourceError):
    """A stored message cannot be read."""

    error_code = "ROCKETMQ_DECODE"


class RowError(SparkSourceError):
    """A row that cannot become a message; the text names it. No row of its record batch was sent."""

    error_code = "ROCKETMQ_ROW"


class NotStoredError(SparkSourceError):
    """Rows that no broker has stored, or that were stored less safely than the options require."""

    error_code = "ROCKETMQ_NOT_STORED"


class SchemaError(SparkSourceError):
    """A DataFrame whose columns cannot become messages; the text names the column and what it should be."""

    error_code = "ROCKETMQ_SCHEMA"
