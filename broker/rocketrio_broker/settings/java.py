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

from rocketrio_broker.settings.config import SETTINGS, BrokerConfig
from rocketrio_broker.settings.setting import MS
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import BrokerError, ConfigError
from rocketrio_protocol.names import TRACE_TOPIC
from rocketrio_protocol.remoting.ports import split_addr

_FIXED: Final = {"filterServerNums": "0", "msgTraceTopicName": TRACE_TOPIC}
"""Settings that do not exist here, but without which 4.9's `mqadmin exportConfigs` fails."""

_METRICS: Final = ("metricsExporterType", "metricsPromExporterHost", "metricsPromExporterPort")
"""RocketMQ's names of the parts of `metrics_listen`."""

_LARGEST: Final = 2**63 - 1
"""The largest number: Java's long."""

CHANGEABLE: Final = frozenset(path for path, field in SETTINGS.items() if field.metadata["live"])
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


def _java_name(path: str) -> str:
    """Return RocketMQ's name of a setting, empty if it has none: the one declared, else ours in camelCase."""
    declared: str | None = SETTINGS[path].metadata["java"]
    if declared is not None:
        return declared
    first, *rest = path.rpartition(".")[2].split("_")
    return first + "".join(map(str.capitalize, rest))


_NAMES: Final = {path: name for path in SETTINGS if (name := _java_name(path))}
_PATHS: Final = {
    **{java_name: path for path, java_name in _NAMES.items()},
    **dict.fromkeys(_METRICS, "metrics_listen"),
}


def _value(config: BrokerConfig, path: str) -> Any:
    if path.startswith("store."):
        return getattr(config.store_settings, path.removeprefix("store."))
    return getattr(config, path)


def _is_in_milliseconds(path: str) -> bool:
    return bool(SETTINGS[path].metadata["unit"] == MS)


def _to_text(path: str, value: Any) -> str:
    if _is_in_milliseconds(path):
        return str(round(value * 1000))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return _TO_JAVA.get(value, str(value)) if isinstance(value, str) else str(value)


def _from_text(java_name: str, path: str, text: str) -> Any:
    kind: Any = SETTINGS[path].type
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{java_name} is {text!r}, neither true nor false")
        return text.lower() == "true"
    if kind is not int and kind is not float:  # A path, a name, or one of some words.
        if get_origin(kind) is Literal and text not in get_args(kind):
            raise ConfigError(f"{java_name} is {text!r}, not one of {', '.join(get_args(kind))}")
        return text
    try:
        number = int(text) / 1000 if _is_in_milliseconds(path) else kind(text)
    except (ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= _LARGEST:
        raise ConfigError(f"{java_name} is {text[:80]!r}, which is not a number of 64 bits")
    return number


def _unknown(java_name: str) -> str:
    close = difflib.get_close_matches(java_name, _PATHS, n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"There is no setting {java_name}{hint}"
