"""Topics, groups, settings and texts of a cluster as files say them, and what differs from what there is.

    [[topics]]
    name = "orders"
    brokers = ["broker-a", "broker-b"]      # without it: every master
    readQueueNums = 8
    perm = "rw"

Fields have RocketMQ's names. A field that a file omits stays as it is.

    kind        name                 place of a field            a table in the file has
    topics      the topic            broker name                 name, brokers, readQueueNums, writeQueueNums, perm …
    groups      the group            broker name                 name, brokers, retryMaxTimes, consumeEnable …
    settings    `broker`             broker name/id              brokers, fileReservedTime …
    kv          namespace/key        (all name servers)          namespace, key, value

Invariant: nothing of RocketMQ itself is exported, changed or removed: no system topic and no system group.
Invariant: `differences` is empty for what was exported a moment ago.
Answers to: ExportMetadataCommand, ExportConfigsCommand, UpdateTopicListSubCommand, UpdateSubGroupListSubCommand.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from rocketrio.admin.secret_settings import CUT, without_secrets
from rocketrio.admin.topics import permission_text
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.log_lines import visible_json
from rocketrio_protocol.names import (
    group_name_problem,
    is_system_group,
    is_system_topic,
    topic_name_problem,
)

Kind: TypeAlias = Literal["topics", "groups", "settings", "kv"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Field: TypeAlias = str | int | bool
Fields: TypeAlias = Mapping[str, Field]

BROKER: Final = "broker"
"""The name of all settings: a broker has one set of them."""
EVERYWHERE: Final = ""
"""The place of texts, which all name servers have, and in a file that of a thing on every master."""
EXISTS: Final = ""
"""The field of a change that removes a thing, or creates one without fields."""
ATTRIBUTE: Final = "attributes."
"""In front of the name of a topic's attribute."""

_TOPIC_FIELDS: Final = {"readQueueNums": int, "writeQueueNums": int, "perm": str, "order": bool}
_SINCE_5: Final[Fields] = {
    "consumeMessageOrderly": False,
    "groupSysFlag": 0,
    "consumeTimeoutMinute": 15,
}
"""Fields of a group that brokers of 4.x do not know, and what each group of theirs has in effect."""
_GROUP_FIELDS: Final = {
    "consumeEnable": bool,
    "consumeFromMinEnable": bool,
    "consumeBroadcastEnable": bool,
    "consumeMessageOrderly": bool,
    "retryQueueNums": int,
    "retryMaxTimes": int,
    "brokerId": int,
    "whichBrokerWhenConsumeSlowly": int,
    "notifyConsumerIdsChangedEnable": bool,
    "groupSysFlag": int,
    "consumeTimeoutMinute": int,
}
_OF_ONE_BROKER: Final = frozenset(
    {
        "brokerName", "brokerId", "brokerClusterName", "brokerRole", "brokerIP1", "brokerIP2",
        "configuredBrokerId", "configuredBrokerRole", "listenPort", "haListenPort",
        "haMasterAddress", "namesrvAddr", "rocketmqHome", "brokerConfigPath",
        "rocketrioReplication", "filterServerNums", "startAcceptSendRequestTimeStamp",
    }
)  # fmt: skip
"""Settings that make a broker this one; they cannot be the same elsewhere, or change while it runs."""
_PATH: Final = re.compile(r"^storePath|(Path|Dir|File)$")
_PERMS: Final = {"rw": 6, "r": 4, "w": 2, "none": 0}


@attrs.frozen(order=True)
class DeclaredPlace:
    """A topic, a group, the settings or a text at one place."""

    kind: Kind
    name: str
    at: str


State: TypeAlias = Mapping[DeclaredPlace, Fields]


@attrs.frozen
class Change:
    """One field that differs."""

    place: DeclaredPlace
    field: str
    """`EXISTS` if the thing itself is removed, or created without any field."""
    before: Field | None
    """None if there is no such thing, or no such field."""
    after: Field | None
    """None for what is removed."""
    is_new: bool = False
    """Whether the thing is created."""


@attrs.frozen
class ApplyPlan:
    """What would change."""

    changes: Sequence[Change]
    unknown_brokers: Sequence[str] = ()
    """Brokers that files name and no name server knows; nothing is changed there."""

    @property
    def digest(self) -> str:
        """A short text that is equal for equal plans only."""
        text = json.dumps([attrs.astuple(one) for one in self.changes])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


# ------------------------------------------------------------------------------------- differences


def differences(now: State, wanted: State, *, prune: bool = False) -> list[Change]:
    """Return what has to change so that everything wanted is so; with `prune` what is not wanted is removed.

    Only topics, groups and texts are removed, and only of kinds of which something is wanted.
    """
    found: list[Change] = []
    for place, fields in sorted(wanted.items()):
        known = now.get(place)
        if known is None and not fields:
            found.append(Change(place, EXISTS, None, "exists", is_new=True))
        found += [
            Change(place, name, None if known is None else known.get(name), value, known is None)
            for name, value in sorted(fields.items())
            if known is None or value_there(place, known, name) != value
        ]
        if known is not None and place.kind == "topics" and any(map(_is_attribute, fields)):
            gone = [name for name in known if _is_attribute(name) and name not in fields]
            found += [Change(place, name, known[name], None) for name in sorted(gone)]
    if prune:
        kinds = {place.kind for place in wanted} - {"settings"}
        found += [
            Change(place, EXISTS, "exists", None)
            for place in sorted(now)
            if place.kind in kinds and place not in wanted
        ]
    return found


def value_there(place: DeclaredPlace, known: Fields, name: str) -> Field | None:
    """Return the value of a field, also of a group at a broker of 4.x, which does not name all; None if unknown."""
    return known.get(name, _SINCE_5.get(name) if place.kind == "groups" else None)


def applied(now: State, changes: Iterable[Change]) -> dict[DeclaredPlace, dict[str, Field]]:
    """Return what there is after changes."""
    found = {place: dict(fields) for place, fields in now.items()}
    for one in changes:
        if one.field == EXISTS and one.after is None:
            found.pop(one.place, None)
        elif one.field == EXISTS:
            found[one.place] = {}
        elif one.after is None:
            found[one.place].pop(one.field, None)
        else:
            found.setdefault(one.place, {})[one.field] = one.after
    return found


def still_holds(changes: Iterable[Change], now: State) -> Change | None:
    """Return the first change whose `before` is not what there is now; None if there is none."""
    for one in changes:
        known = now.get(one.place)
        if one.is_new:
            is_so = known is None
        elif one.field == EXISTS:
            is_so = known is not None
        else:
            is_so = known is not None and known.get(one.field) == one.before
        if not is_so:
            return one
    return None


def _is_attribute(name: str) -> bool:
    return name.startswith(ATTRIBUTE)


# ------------------------------------------------------------------------------- from brokers' answers


def topic_fields(config: Any) -> dict[str, Field]:
    """Return the fields of a topic (TopicConfig)."""
    attributes = {f"{ATTRIBUTE}{name}": value for name, value in (config.attributes or {}).items()}
    return {
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": permission_text(config.perm),
        "order": config.order,
        **attributes,
    }


def group_fields(settings: Mapping[str, Any]) -> dict[str, Field]:
    """Return the fields of a group, as far as its broker reports them."""
    return {name: settings[name] for name in _GROUP_FIELDS if name in settings}


def settings_fields(settings: Mapping[str, str]) -> dict[str, Field]:
    """Return the settings of a broker without secrets, and without those that belong to this broker alone."""
    return {
        name: value
        for name, value in without_secrets(settings).items()
        if value != CUT and name not in _OF_ONE_BROKER and not _PATH.search(name)
    }


def perm_number(text: str) -> int:
    """Return the number of a permission."""
    return _PERMS[text]


# ------------------------------------------------------------------------------------------- files


def to_toml(state: State, kind: Kind) -> str:
    """Return everything of one kind as TOML; places with equal fields share a table."""
    groups: dict[tuple[str, tuple[tuple[str, Field], ...]], list[str]] = defaultdict(list)
    for place, fields in sorted(state.items()):
        if place.kind == kind:
            groups[place.name, tuple(sorted(fields.items()))].append(place.at)
    return "\n".join(
        "\n".join([f"[[{kind}]]", *_lines(kind, name, brokers, dict(fields)), ""])
        for (name, fields), brokers in groups.items()
    )


def _lines(kind: Kind, name: str, brokers: list[str], fields: dict[str, Field]) -> Iterator[str]:
    if kind == "kv":
        namespace, _, key = name.partition("/")
        yield f"namespace = {_toml(namespace)}"
        yield f"key = {_toml(key)}"
    else:
        if kind != "settings":
            yield f"name = {_toml(name)}"
        yield f"brokers = [{', '.join(map(_toml, brokers))}]"
    attributes = {name: value for name, value in fields.items() if _is_attribute(name)}
    for each in sorted(fields.keys() - attributes.keys()):
        yield f"{_key(each)} = {_toml(fields[each])}"
    if attributes:
        inner = ", ".join(
            f"{_toml(name.removeprefix(ATTRIBUTE))} = {_toml(value)}"
            for name, value in sorted(attributes.items())
        )
        yield f"attributes = {{ {inner} }}"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Field) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    # A JSON text is a TOML text too, but for one character, 7f, which steers terminals as well.
    return visible_json(json.dumps(value, ensure_ascii=False))


def from_toml(text: str, where: str) -> dict[DeclaredPlace, dict[str, Field]]:
    """Return what a file says; the place of a thing without `brokers` is EVERYWHERE.

    Raises ConfigError, which begins with `where`, for anything that cannot be meant.
    """
    # Only `rocketrio apply` reads TOML, and every program that administers imports this file.
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: {error}") from None
    found: dict[DeclaredPlace, dict[str, Field]] = {}
    for kind, tables in document.items():
        if kind not in KINDS:
            raise ConfigError(f"{where}: there is no kind {kind!r}: {', '.join(KINDS)}")
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            raise ConfigError(f"{where}: write [[{kind}]], not [{kind}]")
        for table in tables:
            places, fields = _of_table(kind, dict(table), where)
            for place in places:
                if place in found and found[place] != fields:
                    raise ConfigError(f"{where}: {place.name} is there twice with other fields")
                found[place] = fields
    return found


def _of_table(
    kind: Kind, table: dict[str, Any], where: str
) -> tuple[list[DeclaredPlace], dict[str, Field]]:
    if kind == "kv":
        texts = {key: table.pop(key, None) for key in ("namespace", "key", "value")}
        if table or not all(isinstance(one, str) and one for one in texts.values()):
            raise ConfigError(f"{where}: [[kv]] has namespace, key and value, all texts")
        if "/" in str(texts["namespace"]):
            raise ConfigError(f"{where}: a namespace has no / in it: {texts['namespace']!r}")
        place = DeclaredPlace(kind, f"{texts['namespace']}/{texts['key']}", EVERYWHERE)
        return [place], {"value": str(texts["value"])}
    brokers = table.pop("brokers", [EVERYWHERE])
    if not isinstance(brokers, list) or not brokers or not all(isinstance(b, str) for b in brokers):
        raise ConfigError(f"{where}: brokers is a list of names: {brokers!r}")
    if kind == "settings":
        return [DeclaredPlace(kind, BROKER, one) for one in brokers], _settings(table, where)
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"{where}: [[{kind}]] needs a name")
    problem = topic_name_problem(name) if kind == "topics" else group_name_problem(name)
    if problem is not None:
        raise ConfigError(f"{where}: {problem}")
    attributes = table.pop("attributes", {}) if kind == "topics" else {}
    known = _TOPIC_FIELDS if kind == "topics" else _GROUP_FIELDS
    for field, value in table.items():
        if field not in known:
            raise ConfigError(f"{where}: {name} has no field {field!r}: {', '.join(known)}")
        if type(value) is not known[field] or (field == "perm" and value not in _PERMS):
            kinds = {"perm": f"one of {', '.join(_PERMS)}"}
            wanted = kinds.get(field, {int: "a number", bool: "true or false"}.get(known[field]))
            raise ConfigError(f"{where}: {field} of {name} is {wanted}, not {value!r}")
    if not isinstance(attributes, dict):
        raise ConfigError(f"{where}: attributes of {name} is a table of texts")
    fields = {**table, **{f"{ATTRIBUTE}{key}": str(value) for key, value in attributes.items()}}
    return [DeclaredPlace(kind, name, one) for one in brokers], fields


def _settings(table: dict[str, Any], where: str) -> dict[str, Field]:
    for name, value in table.items():
        if name in _OF_ONE_BROKER:
            raise ConfigError(f"{where}: {name} cannot be changed while a broker runs")
        if not isinstance(value, str | int | float | bool):
            raise ConfigError(f"{where}: {name} is a text, a number, true or false")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in table.items()
    }


def spread(
    wanted: Mapping[DeclaredPlace, dict[str, Field]],
    masters: Collection[str],
    brokers: Collection[str],
) -> tuple[dict[DeclaredPlace, dict[str, Field]], list[str]]:
    """Give what files want everywhere the place of each master or broker; return the unknown brokers too."""
    found: dict[DeclaredPlace, dict[str, Field]] = {}
    unknown: set[str] = set()
    for place, fields in sorted(wanted.items(), key=lambda one: one[0].at != EVERYWHERE):
        known = brokers if place.kind == "settings" else masters
        if place.kind == "kv" or place.at in known:
            found[place] = {**found.get(place, {}), **fields}
        elif place.at == EVERYWHERE:
            found |= {attrs.evolve(place, at=one): dict(fields) for one in known}
        else:
            unknown.add(place.at)
    return found, sorted(unknown)


def refuse_system_things(wanted: Iterable[DeclaredPlace], owners: Collection[str]) -> None:
    """Raise ConfigError for a topic or group of RocketMQ itself; `owners` are the names of clusters and brokers."""
    for place in wanted:
        is_topic = place.kind == "topics" and is_system_topic(place.name, owners)
        if is_topic or (place.kind == "groups" and is_system_group(place.name)):
            raise ConfigError(f"{place.name} belongs to RocketMQ itself, and is never changed")
