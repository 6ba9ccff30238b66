"""The names of the options of a read: their meanings and defaults, and the uses to which other options belong.

Names are Kafka's if the meaning is the same; letter case does not matter. Spark would not report an ignored typo, so
every unknown name is refused with a list of the known ones.
"""

from collections.abc import Collection, Mapping
from typing import Final

import attrs

from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import shown, suggestion

DEFAULT_GROUP: Final = "rocketrio-spark"
"""The group named in pulls, because brokers require one; nothing is committed for it."""

BATCH_READ: Final = "a batch read (spark.read)"
STREAMING_READ: Final = "a streaming read (spark.readStream)"
WRITE: Final = "a write (df.write, df.writeStream)"


@attrs.frozen
class OptionHelp:
    """One row of the table in docs/spark.md."""

    default: str
    """The default as a user would write it; empty if the option has none."""
    meaning: str


_TIMES: Final = "JSON: topic, broker, queue, epoch ms, for every queue"
READ_OPTION_TABLE: Final[Mapping[str, OptionHelp]] = {
    "nameServer": OptionHelp(
        "`NAMESRV_ADDR`, else `127.0.0.1:9876`", "host:port, several separated by semicolons"
    ),
    "subscribe": OptionHelp("", "topics, separated by commas"),
    "topic": OptionHelp("", "the same as `subscribe`"),
    "subscribePattern": OptionHelp(
        "",
        "a regular expression of Python (not Java) that whole topic names match; system topics never do",
    ),
    "assign": OptionHelp("", 'queues as JSON: `{"orders":{"broker-a":[0,1]}}`'),
    "subExpression": OptionHelp(
        "`*`",
        r"filtered on the broker: tags as `a \|\| b`, or SQL92; tags are compared exactly once more here,"
        " because brokers compare hashes",
    ),
    "subExpressionType": OptionHelp("`TAG`", "`TAG` or `SQL92`"),
    "startingOffsets": OptionHelp(
        "`earliest`; of a stream `latest`",
        "`earliest`, `latest`, `group` (what `consumerGroup` has committed), or JSON for every queue:"
        ' `{"orders":{"broker-a":{"0":17,"1":-2}}}` (-2 earliest, -1 latest)',
    ),
    "startingOffsetsFallback": OptionHelp(
        "`earliest`", "with `startingOffsets=group`, for queues without a commit: `earliest` or `latest`"
    ),
    "startingTimestamp": OptionHelp(
        "", "a time: epoch ms, ISO 8601 (without a zone, local time of the driver) or a time back as `-1h30m`; "
        "from the first message stored then or later; wins over the next two"
    ),
    "startingOffsetsByTimestamp": OptionHelp("", f"{_TIMES}; wins over `startingOffsets`"),
    "startingOffsetsByTimestampStrategy": OptionHelp(
        "`error`", "for a queue without a message that new: `error`, or `latest` to begin at its end"
    ),
    "endingOffsets": OptionHelp("`latest`", "`latest` or JSON as above, without -2; an end is exclusive"),
    "endingTimestamp": OptionHelp(
        "",
        "a time as above: up to the first message stored then or later, or to the end if there is none;"
        " wins over the next two",
    ),
    "endingOffsetsByTimestamp": OptionHelp("", f"{_TIMES}; wins over `endingOffsets`"),
    "failOnDataLoss": OptionHelp(
        "`true`",
        "`false`: lost messages (retention, a truncated or recreated queue) are logged and skipped",
    ),
    "schemaMode": OptionHelp("`rocketmq`", "`rocketmq`, or `kafka` for the columns of Spark's Kafka source"),
    "includeHeaders": OptionHelp("`false`", "with `schemaMode=kafka`: the properties as column `headers`"),
    "columns": OptionHelp("", "names separated by commas: only these are decoded and sent to Spark"),
    "properties": OptionHelp(
        "`map`", "column `properties` as `map`, as `string` (the stored text), or `none`"
    ),
    "decompress": OptionHelp("`true`", "`false`: bodies as they are stored"),
    "verifyCrc": OptionHelp("`false`", "`true`: every body is compared with its checksum"),
    "onCorruptMessage": OptionHelp(
        "`fail`",
        "a message that cannot be read: `fail` the query, `skip` it, or `null` in the columns that cannot be read",
    ),
    "minPartitions": OptionHelp("", "large ranges are split until there are at least this many partitions"),
    "maxRecordsPerPartition": OptionHelp("", "longer ranges are split"),
    "minRecordsPerPartition": OptionHelp(
        "20000", "shorter ranges share a task, because each task costs about 30 ms"
    ),
    "maxPartitions": OptionHelp("", "the largest number of partitions"),
    "fetchOffset.numRetries": OptionHelp("3", "how often a failed request for offsets is repeated"),
    "fetchOffset.retryIntervalMs": OptionHelp("200", "the pause before each repetition"),
    "pullBatchSize": OptionHelp(
        "1024", "messages per pull; brokers have a limit of their own, see below"
    ),
    "pullPipelineDepth": OptionHelp("8", "pulls of one range that are under way at the same time"),
    "pullTimeoutMs": OptionHelp("10000", "how long a pull may take"),
    "connectTimeoutMs": OptionHelp("3000", "how long a connection may take"),
    "readRetries": OptionHelp("5", "how often a failed pull is repeated"),
    "batchBytes": OptionHelp("2097152", "a record batch goes to Spark when it has this many stored bytes"),
    "batchRows": OptionHelp("8192", "or this many rows"),
    "readFrom": OptionHelp(
        "`auto`",
        "`auto`: the replica that the broker suggests, which is a slave for messages that are no longer in the"
        " master's memory; `slave`: a slave, and the master for what slaves lack; `master`: only the master",
    ),
    "maxStaleness": OptionHelp(
        "",
        "how far behind its master a slave that is read may be: `10000 messages`, or a duration with a unit (`5s`),"
        " which Apache's slaves do not report; other slaves are not read, even while the master is away",
    ),
    "consumerGroup": OptionHelp(
        f"`{DEFAULT_GROUP}`", "the group that pulls name, and whose commits `startingOffsets=group` reads"
    ),
    "accessKey": OptionHelp("`ROCKETRIO_ACCESS_KEY`", "the account that signs requests"),
    "secretKey": OptionHelp(
        "`ROCKETRIO_SECRET_KEY`", "its secret, which travels with the query; `credentialsFile` avoids that"
    ),
    "securityToken": OptionHelp("", "the token that accompanies temporary keys of a cloud"),
    "credentialsFile": OptionHelp(
        "`ROCKETRIO_CREDENTIALS_FILE`",
        "a file with `accessKey` and `secretKey` instead, at the same path on the driver and all executors",
    ),
    "tls": OptionHelp(
        "`ROCKETRIO_TLS`, else `false`",
        "`true`: connections use TLS; the next options mean it too; driver and executors read their files",
    ),
    "tls.caFile": OptionHelp(
        "`ROCKETRIO_TLS_CA_FILE`, else this machine's", "the authority that signs the certificates of servers"
    ),
    "tls.certFile": OptionHelp("", "the client's own certificate, for servers that ask for one"),
    "tls.keyFile": OptionHelp("", "its key, if it is in another file"),
    "tls.keyPasswordFile": OptionHelp("", "a file with the password of the key"),
    "tls.checkHostName": OptionHelp(
        "`true`", "`false`: a certificate may name another host, if the authority has signed it"
    ),
    "filterPushdown": OptionHelp(
        "`false`",
        "`true`: conditions of the query limit what is read; needs `spark.sql.python.filterPushdown.enabled`",
    ),
}  # fmt: skip
"""Every option of a batch read; a stream knows them too, except those in `BATCH_ONLY_OPTIONS`."""

OPTION_HELP: Final[Mapping[str, str]] = {
    name: f"{help_.meaning} (default {help_.default})" if help_.default else help_.meaning
    for name, help_ in READ_OPTION_TABLE.items()
}

BATCH_ONLY_OPTIONS: Final = (
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "filterPushdown",
)

_NOT_YET: Final[Mapping[str, str]] = {
    "delaytimems": "delays other than by level",
    "delivertimestamp": "delays other than by level",
}

_KAFKA_WORDS: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "nameServer",
    "kafka.group.id": "consumerGroup",
    "groupidprefix": "consumerGroup",
    "kafkaconsumer.polltimeoutms": "pullTimeoutMs",
}
"""Options that jobs ported from Kafka may still use, and the options that replace them here."""


def known_texts(
    given: Mapping[str, str],
    *,
    known: Collection[str],
    what: str,
    other_options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the options by their proper names. Raises OptionError for an option that is not in `known`.

    `what` names the use that knows them, for the error text. `other_options` maps options of other uses to those uses;
    the error for such an option says to which use it belongs.
    """
    names = {name.lower(): name for name in known}
    others = {name.lower(): use for name, use in (other_options or {}).items()}
    texts: dict[str, str] = {}
    for key, text in given.items():
        lower = key.lower()
        if lower in others:
            raise OptionError(f"{key} is an option of {others[lower]}, not of {what}")
        if lower in names:
            texts[names[lower]] = text
            continue
        _refuse_not_yet(key)
        _refuse_tables_and_files(lower, text)
        if lower in _KAFKA_WORDS and _KAFKA_WORDS[lower] in known:
            raise OptionError(f"{key} is an option for Kafka; here it is {_KAFKA_WORDS[lower]}")
        if lower.startswith("kafka."):
            raise OptionError(f"{key} is an option for Kafka's client; leave it out here")
        near = suggestion(key, tuple(known))
        listed = ", ".join(known)
        raise OptionError(
            f"unknown option {key!r}{near} {what[0].upper()}{what[1:]} knows: {listed}"
        )
    return texts


def _refuse_tables_and_files(name: str, text: str) -> None:
    """Raise OptionError for options that Spark adds itself if a topic is used like a file or a table."""
    if name == "path":
        raise OptionError(
            f"path={shown(text)}: RocketMQ topics are not paths; call load() or save() without a path,"
            " and name topics by an option, as .option('topic', ...)"
        )
    if name.startswith("option."):
        raise OptionError(
            "CREATE TABLE: Spark would give the table's reader none of these options;"
            " CREATE TEMPORARY VIEW ... USING rocketmq OPTIONS (...) keeps them"
        )


def _refuse_not_yet(key: str) -> None:
    """Raise OptionError for a planned option. Its value is never shown, because it may be a secret."""
    missing = _NOT_YET.get(key.lower())
    if missing is not None:
        raise OptionError(f"{key}: not supported yet: {missing}")
