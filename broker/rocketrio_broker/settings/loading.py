"""Builds a BrokerConfig from the command line, the environment, a TOML file and the defaults, in this order.

    broker_name = "broker-a"           ROCKETRIO_BROKER_NAME=broker-a          --set broker_name=broker-a
    [store]
    flush_disk_type = "sync"           ROCKETRIO_STORE_FLUSH_DISK_TYPE=sync    --set store.flush_disk_type=sync

`NAMESRV_ADDR`, which RocketMQ's users know, names the name servers if nothing else does. A relative `data` in a file is
relative to the file. An unknown setting is an error that suggests similar ones.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typed_settings as ts
from typed_settings.exceptions import InvalidSettingsError, TsError
from typed_settings.types import LoadedSettings, LoaderMeta, OptionList, SettingsClass, SettingsDict

from rocketrio_broker.settings.config import SETTINGS, BrokerConfig
from rocketrio_broker.settings.java import path_of, toml_of
from rocketrio_broker.settings.setting import without_none, words
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.errors import ConfigError, RemoteProtocolError

ENVIRONMENT_PREFIX: Final = "ROCKETRIO_"
NAMESRV_ADDR: Final = "NAMESRV_ADDR"
_SURE: Final = 0.8  # How similar a variable's name must be to count as misspelt.

_CLIENT_VARIABLES: Final = (
    "ROCKETRIO_ACCESS_KEY",
    "ROCKETRIO_SECRET_KEY",
    "ROCKETRIO_SECURITY_TOKEN",
    "ROCKETRIO_CREDENTIALS_FILE",
    "ROCKETRIO_TLS",
    "ROCKETRIO_TLS_CA_FILE",
)
"""The variables of clients and of the command `rocketrio`, of which some look like misspelt settings."""

_PATH_OF_FLAG: Final = {
    field.metadata["flag"].name.removeprefix("--"): path
    for path, field in SETTINGS.items()
    if field.metadata["flag"] is not None
}
"""The setting of each option of the command, for users that write the option's name in a file."""

_KINDS: Final[Mapping[Any, str]] = {
    int: "it is a whole number",
    float: "it is a number",
    bool: "it is true or false",
}
"""The values of a type, in words."""

# typed-settings has the parts of its message nowhere else.
_WRONG_VALUE: Final = re.compile(
    r"Could not convert value (?P<value>.*) for option '(?P<path>[^']+)' "
    r"from loader (?:FileLoader\[)?(?P<where>.*?)\]?: (?P<error>\w+\(.*\))",
    re.DOTALL,
)
_ERROR: Final = re.compile(r"(?:.*: )?\w+\((['\"])(?P<text>.*)\1\)", re.DOTALL)


def load_config(
    *,
    file: Path | None,
    given: Mapping[str, Any],
    environment: Mapping[str, str],
) -> BrokerConfig:
    """Load the settings; `given` comes from the command line, by path (`store.flush_disk_type`).

    Raises ConfigError that names the setting, the place where it was read, and the values that it can have.
    """
    _check_names(given, "the command line")
    _check_environment(environment)
    loaders: list[Any] = []
    if NAMESRV_ADDR in environment:
        loaders.append(_Given({"namesrv": environment[NAMESRV_ADDR]}, NAMESRV_ADDR))
    if file is not None:
        loaders.append(ts.FileLoader({"*": _CheckedToml(None)}, [f"!{file}"]))
    loaders.append(_Given(_from_environment(environment), "the environment"))
    loaders.append(_Given(given, "the command line"))
    try:
        return ts.load_settings(BrokerConfig, loaders)
    except FileNotFoundError:
        raise ConfigError(f"There is no configuration file {file}") from None
    except InvalidSettingsError as group:
        raise ConfigError("; ".join(_readable(str(error)) for error in group.exceptions)) from None
    except (TsError, OSError, UnicodeDecodeError) as error:
        assert file is not None
        raise ConfigError(
            f"The configuration file {file} cannot be read: {error}", remedy=_as_toml(file)
        ) from None


def _as_toml(file: Path) -> str:
    """Return advice for a settings file of Apache's broker (`brokerName=broker-a`): the same as TOML. Else nothing."""
    try:
        text = toml_of(parse_properties(file.read_bytes()))
    except (OSError, RemoteProtocolError):
        return ""
    if text is None:
        return ""
    return f"It must be TOML, and seems to be Apache's; as TOML it is:\n\n{text}"


def setting_paths() -> dict[str, str]:
    """Return every setting as it is written in `--set`, with its meaning."""
    return {path: field.metadata["help"] for path, field in SETTINGS.items()}


class _Given:
    """Values by path, from a place that is not a file."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self._where = where

    def __call__(self, settings_cls: SettingsClass, options: OptionList) -> LoadedSettings:
        nested: SettingsDict = {}
        for path, value in self._values.items():
            table, _, name = path.rpartition(".")
            target = nested.setdefault(table, {}) if table else nested
            target[name] = value
        return LoadedSettings(nested, LoaderMeta(self._where))


class _CheckedToml(ts.TomlFormat):
    """A TOML file in which every name must be a setting."""

    def __call__(
        self, path: Path, settings_cls: SettingsClass, options: OptionList
    ) -> SettingsDict:
        settings = super().__call__(path, settings_cls, options)
        _check_names(_flat(settings), str(path))
        return settings


def _flat(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if name == "store" and isinstance(value, Mapping):
            yield from (f"store.{inner}" for inner in value)
        else:
            yield name


def _check_names(names: Iterable[str], where: str) -> None:
    for name in names:
        if name.replace("-", "_") not in SETTINGS:
            raise ConfigError(f"{where} sets {name}, which is not a setting: {_suggestion(name)}")


def _suggestion(name: str) -> str:
    called = _PATH_OF_FLAG.get(name) or path_of(name.rpartition(".")[2])
    if called is not None:
        return f"use {called} instead"
    last = {path.rpartition(".")[2]: path for path in SETTINGS}
    close = difflib.get_close_matches(name.rpartition(".")[2], last, n=3)
    if close:
        return f"did you mean {' or '.join(last[each] for each in close)}?"
    return "`rocketrio-broker settings` lists all settings"


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        path: environment[name] for path in SETTINGS if (name := _variable(path)) in environment
    }


def _variable(path: str) -> str:
    return ENVIRONMENT_PREFIX + path.replace(".", "_").upper()


def _check_environment(environment: Mapping[str, str]) -> None:
    """Refuse variables that look like misspelt settings; variables of other programs may share the prefix."""
    known = [_variable(path) for path in SETTINGS]
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in (*known, *_CLIENT_VARIABLES):
            close = difflib.get_close_matches(name, known, n=3, cutoff=_SURE)
            if close:
                raise ConfigError(
                    f"The environment sets {name}, which is not a setting: "
                    f"did you mean {' or '.join(close)}?"
                )


def _readable(message: str) -> str:
    wrong = _WRONG_VALUE.fullmatch(message)
    if wrong is None:
        return _plain(message)
    words = _accepted_values(wrong["path"]) or _plain(wrong["error"])
    return f"{wrong['path']} is {wrong['value']} in {wrong['where']}: {words}"


def _accepted_values(path: str) -> str | None:
    """Return which values a setting accepts, or None if only the error says it."""
    kind = SETTINGS[path].type
    if accepted := words(kind):
        return f"use one of {', '.join(accepted)}"
    return _KINDS.get(without_none(kind))


def _plain(error: str) -> str:
    """Return the text in `Could not ...: ValueError('text')`."""
    match = _ERROR.fullmatch(error)
    return error if match is None else match["text"]
