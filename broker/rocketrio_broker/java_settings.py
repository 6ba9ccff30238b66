"""Converts settings to RocketMQ's names and units for administrators' tools: what request 25 changes and 26 shows.

RocketMQ's milliseconds, `ASYNC_FLUSH` and `brokerClusterName` are seconds, `async` and `cluster_name` here.

Answers to: Configuration, MixAll.properties2Object.
Unlike Java: a key that is unknown, or that cannot change while the broker runs, is refused with the reason; Java
accepts both without effect.
"""

import difflib
import json
import math
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args, get_origin

import attrs

from rocketrio_broker.config import BrokerConfig
from rocketrio_broker.store.config import StoreConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import BrokerError, ConfigError
from rocketrio_protocol.names import TRACE_TOPIC
from rocketrio_protocol.remoting.ports import split_addr

_OWN_NAMES: Final = {
    "cluster_name": "brokerClusterName",
    "role": "brokerRole",
    "namesrv": "namesrvAddr",
    "data": "storePathRootDir",
    "short_polling_time": "shortPollingTimeMills",
    "register_broker_timeout": "registerBrokerTimeoutMills",
    "check_crc_on_recover": "checkCRCOnRecover",
    "transaction_timeout": "transactionTimeOut",
    "metrics_series_limit": "metricsOtelCardinalityLimit",
}
"""Settings whose Java name is not their name here in camelCase."""

_FIXED: Final = {"filterServerNums": "0", "msgTraceTopicName": TRACE_TOPIC}
"""Settings that do not exist here, but without which 4.9's `mqadmin exportConfigs` fails."""

_SHOWN_ELSEWHERE: Final = (
    "listen",
    "ha_listen",
    "address",
    "ha_address",
    "metrics_listen",
    "store",
)

_METRICS: Final = ("metricsExporterType", "metricsPromExporterHost", "metricsPromExporterPort")
"""RocketMQ's names of the parts of `metrics_listen`."""

_LARGEST: Final = 2**63 - 1
"""The largest number: Java's long."""

_MILLISECONDS: Final = frozenset(
    {
        "short_polling_time",
        "register_name_server_period",
        "register_broker_timeout",
        "flush_consumer_offset_interval",
        "flush_delay_offset_interval",
        "transaction_timeout",
        "transaction_check_interval",
        "ha_send_heartbeat_interval",
        "ha_housekeeping_interval",
        "slave_sync_period",
        "slave_timeout",
        "static_member_grace_limit",
        "ha_return_wait",
        "flush_interval_commit_log",
        "flush_interval_consume_queue",
        "flush_consume_queue_thorough_interval",
        "sync_flush_timeout",
        "clean_resource_interval",
    }
)

CHANGEABLE: Final = frozenset(
    {
        "broker_permission",
        "auto_create_topic_enable",
        "auto_create_subscription_group",
        "trace_on",
        "long_polling_enable",
        "short_polling_time",
        "slave_read_enable",
        "notify_consumer_ids_changed_enable",
        "static_member_grace_limit",
        "enable_property_filter",
        "store_reply_message_enable",
        "groups_limit",
        "max_pull_message_size",
        "topics_limit",
        "reject_transaction_message",
        "transaction_timeout",
        "transaction_check_interval",
        "transaction_check_max",
        "ha_divergent_tail",
        "ha_missing_history",
        "ha_return",
        "ha_return_wait",
        "ha_return_role",
        "ha_unconfirmed_reads",
        "ha_hand_over_on_stop",
        "register_name_server_period",
        "register_broker_timeout",
        "compressed_register",
        "log_check_rate",
        "store.access_message_in_memory_max_ratio",
        "store.access_message_in_memory_max_bytes",
        "store.max_transfer_bytes_on_message_in_memory",
        "store.max_transfer_count_on_message_in_memory",
        "store.max_transfer_bytes_on_message_in_disk",
        "store.max_transfer_count_on_message_in_disk",
        "store.max_filter_message_size",
        "store.max_msgs_num_batch",
        "store.offset_check_in_slave",
        "store.file_reserved_time",
        "store.delete_when",
        "store.disk_max_used_space_ratio",
        "store.disk_space_clean_forcibly_ratio",
        "store.disk_space_warning_level_ratio",
        "store.clean_file_forcibly_enable",
    }
)
"""Settings that are read at each use; the others are built into running parts."""

_TO_JAVA: Final = {
    "async": "ASYNC_FLUSH",
    "sync": "SYNC_FLUSH",
    "async-master": "ASYNC_MASTER",
    "sync-master": "SYNC_MASTER",
    "slave": "SLAVE",
}


_FROM_JAVA: Final = {java: own for own, java in _TO_JAVA.items()}


def java_properties(
    config: BrokerConfig, *, broker_addr: str, ha_addr: str, configured: BrokerConfig
) -> dict[str, str]:
    """Return all settings under Java's names; role and id are the current ones, with those `configured` beside them."""
    host, port = split_addr(broker_addr)
    ha_host, ha_port = split_addr(ha_addr)
    shown = {
        "brokerIP1": host,
        "listenPort": str(port),
        "brokerIP2": ha_host,
        "haListenPort": str(ha_port),
        "configuredBrokerRole": _TO_JAVA[configured.role],
        "configuredBrokerId": str(configured.broker_id),
        **_metrics(config),
        "useTLS": "true" if config.uses_peer_tls else "false",
        **_FIXED,
    }
    for path, java_name in _NAMES.items():
        value = _value(config, path)
        if value is not None:
            shown[java_name] = _to_text(path, value)
    shown["aclEnable"] = _to_text("acl_enable", config.is_access_controlled)
    return shown


def _metrics(config: BrokerConfig) -> dict[str, str]:
    if config.metrics_address is None:
        return {_METRICS[0]: "DISABLE"}
    host, port = split_addr(config.metrics_address)
    return dict(zip(_METRICS, ("PROM", host, str(port)), strict=True))


def path_of(java_name: str) -> str | None:
    """Return the name here of the setting that RocketMQ calls `java_name`, or None."""
    return _PATHS.get(java_name)


def toml_of(properties: Mapping[str, str]) -> str | None:
    """Return a settings file of RocketMQ's broker as TOML; None if it names no setting that exists here.

    A comment has each line that cannot be converted.
    """
    broker: list[str] = []
    store: list[str] = []
    left: list[str] = []
    host, port = properties.get("brokerIP1", ""), properties.get("listenPort", "10911")
    if host:
        broker.append(f'listen = "{host}:{port}"')
    for java_name, text in properties.items():
        path = path_of(java_name)
        if host and java_name in ("brokerIP1", "listenPort"):
            continue
        if path is None or java_name in _METRICS:
            left.append(f"# {java_name}={text}")
        else:
            try:
                value = _from_text(java_name, path, _FROM_JAVA.get(text, text))
            except ConfigError as error:
                left.append(f"# {error}")
                continue
            table, _, name = path.rpartition(".")
            (store if table else broker).append(f"{name} = {json.dumps(value)}")
    if not broker and not store:
        return None
    return "\n".join([*broker, *left, *(["[store]", *store] if store else [])])


def changed_config(config: BrokerConfig, properties: Mapping[str, str]) -> BrokerConfig:
    """Return the settings with these changes. Raises BrokerError or ConfigError that names the wrong one."""
    broker: dict[str, Any] = {}
    store: dict[str, Any] = {}
    for java_name, text in properties.items():
        path = _PATHS.get(java_name)
        if path is None:
            raise BrokerError(_unknown(java_name), code=ResponseCode.SYSTEM_ERROR)
        if path not in CHANGEABLE:
            raise BrokerError(
                f"{java_name} cannot change while the broker runs; set {path} and restart it",
                code=ResponseCode.NO_PERMISSION,
            )
        value = _from_text(java_name, path, text)
        if path.startswith("store."):
            store[path.removeprefix("store.")] = value
        else:
            broker[path] = value
    try:
        return attrs.evolve(config, **broker, store=attrs.evolve(config.store, **store))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"These settings cannot be used: {error.args[0]}") from error


def _names() -> dict[str, str]:
    names = {}
    for prefix, kind in (("", BrokerConfig), ("store.", StoreConfig)):
        for field in attrs.fields(kind):
            if field.name not in _SHOWN_ELSEWHERE:
                first, *rest = field.name.split("_")
                camel = first + "".join(word.capitalize() for word in rest)
                names[prefix + field.name] = _OWN_NAMES.get(field.name, camel)
    return names


_NAMES: Final = _names()
_PATHS: Final = {
    **{java_name: path for path, java_name in _NAMES.items()},
    **dict.fromkeys(_METRICS, "metrics_listen"),
}


def _value(config: BrokerConfig, path: str) -> Any:
    if path.startswith("store."):
        return getattr(config.store_settings, path.removeprefix("store."))
    return getattr(config, path)


def _kind(path: str) -> Any:
    """Return the type of a setting: int, float, bool, or a type that is written as text."""
    cls: type = StoreConfig if path.startswith("store.") else BrokerConfig
    return attrs.fields_dict(attrs.resolve_types(cls))[path.removeprefix("store.")].type


def _to_text(path: str, value: Any) -> str:
    if path.rpartition(".")[2] in _MILLISECONDS:
        return str(round(value * 1000))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return _TO_JAVA.get(value, str(value)) if isinstance(value, str) else str(value)


def _from_text(java_name: str, path: str, text: str) -> Any:
    kind = _kind(path)
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{java_name} is {text!r}, neither true nor false")
        return text.lower() == "true"
    if kind not in (int, float) and get_origin(kind) is not Literal:  # A path, a name.
        return text
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ConfigError(f"{java_name} is {text!r}, not one of {', '.join(get_args(kind))}")
        return text
    try:
        is_milliseconds = path.rpartition(".")[2] in _MILLISECONDS
        number = int(text) / 1000 if is_milliseconds else kind(text)
    except (ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= _LARGEST:
        raise ConfigError(f"{java_name} is {text[:80]!r}, which is not a number of 64 bits")
    return number


def _unknown(java_name: str) -> str:
    close = difflib.get_close_matches(java_name, _PATHS, n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"There is no setting {java_name}{hint}"
