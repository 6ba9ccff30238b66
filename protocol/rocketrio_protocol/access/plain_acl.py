"""Reads the accounts of 4.x's access control, `conf/plain_acl.yml`, as users and policies.

    globalWhiteRemoteAddresses: [10.10.103.*]
    accounts:
      - accessKey: producer1
        secretKey: "12345678"
        whiteRemoteAddress:
        admin: false                       # true: a Super user, which may do everything
        defaultTopicPerm: DENY             # DENY, PUB, SUB or PUB|SUB; anything else is DENY
        defaultGroupPerm: SUB
        topicPerms: [topicA=DENY, topicB=PUB|SUB]      # the policy Custom; the defaults are the policy Default
        groupPerms: [groupA=SUB]

SUB grants Get too. A file loads as a whole or not at all. `accounts: []` says that there is no account; a file without
that list is not complete, as a full disk leaves it.

Invariant: an error names the file and the line, and shows no secret.
Invariant: time and memory are proportional to the size of the file: no alias, tag or deep nesting is followed.
Answers to: PlainPermissionManager, PlainAccessData; AuthMigrator of 5.x.
Unlike Java: an unknown field, a key given twice, an unquoted secret that YAML changes, and a permission for a name with
`*`, which would match no topic, are errors.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

import attrs
import yaml

from rocketrio_protocol.access.model import (
    ENTRIES_LIMIT,
    USERS_LIMIT,
    AccessTable,
    Action,
    Entry,
    Resource,
    ResourceKind,
    User,
    secret_problem,
    user_name_problem,
)
from rocketrio_protocol.access.white_addresses import AddressPattern
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.names import RETRY_PREFIX

FILE_SIZE_LIMIT: Final = 1 << 20
"""The most bytes of one file."""
KEY_LENGTH_MIN: Final = 7
"""The fewest characters of an access key and a secret key (AclConstants)."""
_DEPTH_LIMIT: Final = 8
"""A file of accounts nests four deep."""

P = ParamSpec("P")
T = TypeVar("T")

_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_resolve: Final[Any] = yaml.resolver.Resolver().resolve

_DECIMAL: Final = re.compile(r"0|[1-9][0-9]*+")
_NUMBER_ELSEWHERE: Final = re.compile(r"0[0-9_]++|[-+]?[0-9][0-9_]*+[eE][-+]?[0-9]++")
"""Numbers for SnakeYAML or a later YAML that are texts for PyYAML."""

_PERMISSIONS: Final = {
    "PUB": Action.PUB,
    "SUB": Action.SUB | Action.GET,
    "PUB|SUB": Action.PUB | Action.SUB | Action.GET,
    "SUB|PUB": Action.PUB | Action.SUB | Action.GET,
}
_TOP_FIELDS: Final = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
_WITHOUT_ACCOUNTS: Final = "Write the accounts back; `accounts: []` says that there are none"
_ACCOUNT_FIELDS: Final = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)


@attrs.define
class _Scalar:
    text: str
    is_plain: bool
    line: int

    @property
    def yaml_type(self) -> str:
        """What YAML takes the text for: `str`, `int`, `bool`, `null` ..."""
        if not self.is_plain:
            return "str"
        return str(_resolve(yaml.ScalarNode, self.text, (True, False))).rpartition(":")[2]


@attrs.define
class _List:
    line: int
    items: list["_Node"] = attrs.field(factory=list)


@attrs.define
class _Map:
    line: int
    members: dict[str, "_Node"] = attrs.field(factory=dict)
    key: _Scalar | None = None


_Node = _Scalar | _List | _Map


def parse_plain_acl(content: bytes, path: Path | str) -> AccessTable:
    """Return the users of a file. Raises ConfigError that names the file and the line."""
    return _Reader(str(path)).table(content)


def account(
    fields: Mapping[str, str | None], topic_perms: Mapping[str, str], group_perms: Mapping[str, str]
) -> User:
    """Return the user that an account of 4.x means; the fields are those of a file, as text. Raises ConfigError."""
    name, secret = fields.get("accessKey") or "", fields.get("secretKey") or ""
    for what, text, problem in (
        ("accessKey", name, user_name_problem(name)),
        ("secretKey", secret, secret_problem(secret)),
    ):
        if problem is None and len(text) < KEY_LENGTH_MIN:
            problem = f"it has {len(text)} characters, and at least {KEY_LENGTH_MIN} are needed"
        if problem is not None:
            raise ConfigError(f"{what} cannot be used: {problem}")
    custom = [
        _entry(_named(kind, each), permission)
        for kind, perms in ((ResourceKind.TOPIC, topic_perms), (ResourceKind.GROUP, group_perms))
        for each, permission in perms.items()
    ]
    default = [
        _entry(Resource(kind, is_prefix=True), permission)
        for kind, permission in (
            (ResourceKind.TOPIC, fields.get("defaultTopicPerm")),
            (ResourceKind.GROUP, fields.get("defaultGroupPerm")),
        )
        if permission
    ]
    if len(custom) > ENTRIES_LIMIT:
        raise ConfigError(f"An account has at most {ENTRIES_LIMIT} permissions")
    white = (fields.get("whiteRemoteAddress") or "").strip()
    return User(
        name,
        (secret.encode(),),
        is_super=fields.get("admin") == "true",
        custom=custom,
        default=default,
        white=AddressPattern.parse_all(white) if white else (),
    )


def permission(text: str) -> tuple[str, str]:
    """Return the two parts of `topicA=PUB|SUB`. Raises ConfigError."""
    parts = [part.strip() for part in text.split("=")]
    if len(parts) != 2 or not parts[0]:
        raise ConfigError(f"{text[:100]!r} is not a permission like topicA=PUB|SUB")
    return parts[0], parts[1]


def _named(kind: ResourceKind, name: str) -> Resource:
    if kind is ResourceKind.TOPIC and name.startswith(RETRY_PREFIX):
        kind, name = ResourceKind.GROUP, name.removeprefix(RETRY_PREFIX)
    resource = Resource.parse(f"{kind}:{name}")
    if resource.is_prefix:
        raise ConfigError(
            f"{name!r} is taken for a name, not a pattern, and no {kind.lower()} has a `*` in its name"
        )
    return resource


def _entry(resource: Resource, permission: str) -> Entry:
    actions = _PERMISSIONS.get(permission.strip())
    if actions is None:
        return Entry(resource, Action.ALL, is_allowed=False)
    return Entry(resource, actions, is_allowed=True)


class _Reader:
    """Reads one file; its name is for errors."""

    def __init__(self, path: str) -> None:
        self._path = path

    def table(self, content: bytes) -> AccessTable:
        if len(content) > FILE_SIZE_LIMIT:
            raise ConfigError(f"{self._path} has more than {FILE_SIZE_LIMIT} bytes")
        top = self._tree(content)
        if top is None:
            raise ConfigError(f"{self._path} is empty", remedy=_WITHOUT_ACCOUNTS)
        if not isinstance(top, _Map):
            self._fail(top.line, "the file is not a map with the field accounts")
        self._check_names(top, _TOP_FIELDS)
        white = tuple(
            pattern
            for item in self._list(top, "globalWhiteRemoteAddresses")
            for pattern in self._at(item.line, AddressPattern.parse_all, self._text(item) or "")
        )
        if not isinstance(top.members.get("accounts"), _List):
            self._fail(top.line, "the field accounts is not a list", remedy=_WITHOUT_ACCOUNTS)
        users: dict[str, User] = {}
        for item in self._list(top, "accounts"):
            user = self._account(item)
            if user.name in users:
                self._fail(item.line, f"the accessKey {user.name} is there a second time")
            users[user.name] = user
            if len(users) > USERS_LIMIT:
                self._fail(item.line, f"there are more than {USERS_LIMIT} accounts")
        return AccessTable(users, white)

    def _account(self, node: _Node) -> User:
        if not isinstance(node, _Map):
            self._fail(node.line, "an account is a map with accessKey and secretKey")
        self._check_names(node, _ACCOUNT_FIELDS)
        fields = {
            name: self._text(each, is_exact=name in ("accessKey", "secretKey"))
            for name, each in node.members.items()
            if name not in ("admin", "topicPerms", "groupPerms")
        }
        fields["admin"] = self._bool(node.members.get("admin"))
        return self._at(
            node.line,
            account,
            fields,
            self._perms(node, "topicPerms"),
            self._perms(node, "groupPerms"),
        )

    def _perms(self, node: _Map, name: str) -> dict[str, str]:
        perms: dict[str, str] = {}
        for item in self._list(node, name):
            resource, text = self._at(item.line, permission, self._text(item) or "")
            if resource in perms:
                self._fail(item.line, f"{resource} has a permission already")
            perms[resource] = text
        return perms

    def _list(self, node: _Map, name: str) -> list[_Node]:
        """Return the items of a list that may be missing or empty."""
        value = node.members.get(name)
        if value is None or (isinstance(value, _Scalar) and value.yaml_type == "null"):
            return []
        if not isinstance(value, _List):
            self._fail(value.line, f"{name} is not a list")
        return value.items

    def _text(self, node: _Node, *, is_exact: bool = False) -> str | None:
        """Return a text as it is written; one that must be exact is quoted if YAML could read it differently."""
        if not isinstance(node, _Scalar):
            self._fail(node.line, "a text is expected here")
        if node.yaml_type == "null":
            return None
        if is_exact and not _is_exact(node):
            self._fail(node.line, "YAML can take this value for something else: put it in quotes")
        return node.text

    def _bool(self, node: _Node | None) -> str | None:
        text = None if node is None else self._text(node)
        if node is None or text is None:
            return None
        known = yaml.constructor.SafeConstructor.bool_values.get(text.lower())
        if known is None:
            self._fail(node.line, "admin is neither true nor false")
        return "true" if known else "false"

    def _check_names(self, node: _Map, known: tuple[str, ...]) -> None:
        for name, value in node.members.items():
            if name not in known:
                self._fail(value.line, f"{name[:40]!r} is not one of {', '.join(known)}")

    def _at(self, line: int, read: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return what `read` returns; its ConfigError gets the place in the file."""
        try:
            return read(*arguments, **named)
        except ConfigError as error:
            self._fail(line, error.what)

    def _fail(self, line: int, problem: str, *, remedy: str = "") -> NoReturn:
        raise ConfigError(f"{self._path} line {line}: {problem}", remedy=remedy)

    def _tree(self, content: bytes) -> _Node | None:
        """Return the file's only document; None if it is empty."""
        try:
            return self._built(yaml.parse(content, Loader=_Loader))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._fail(0 if mark is None else mark.line + 1, f"not YAML: {error.problem}")
        except (yaml.YAMLError, UnicodeDecodeError):
            raise ConfigError(f"{self._path} is not YAML: it is no UTF-8 text") from None

    def _built(self, events: Iterator[Any]) -> _Node | None:
        """Build the tree from events, because composing one would follow aliases and any depth."""
        top: _Node | None = None
        parents: list[_List | _Map] = []
        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent) and top is not None:
                self._fail(line, "a second document begins")
            if isinstance(event, yaml.CollectionEndEvent):
                parents.pop()
            if not isinstance(event, yaml.NodeEvent):
                continue
            if event.anchor is not None or getattr(event, "tag", None) is not None:
                self._fail(line, "anchors, aliases and tags are not read")
            node = _node(event, line)
            if not parents:
                top = node
            else:
                self._add(parents[-1], node)
            if not isinstance(node, _Scalar):
                parents.append(node)
                if len(parents) > _DEPTH_LIMIT:
                    self._fail(line, f"it nests more than {_DEPTH_LIMIT} deep")
        return None if isinstance(top, _Scalar) and top.yaml_type == "null" else top

    def _add(self, parent: _List | _Map, node: _Node) -> None:
        if isinstance(parent, _List):
            parent.items.append(node)
        elif parent.key is None:
            if not isinstance(node, _Scalar):
                self._fail(node.line, "a field's name is no text")
            if node.text in parent.members:
                self._fail(node.line, f"the field {node.text[:40]!r} is there a second time")
            parent.key = node
        else:
            parent.members[parent.key.text] = node
            parent.key = None


def _node(event: Any, line: int) -> _Node:
    if isinstance(event, yaml.SequenceStartEvent):
        return _List(line)
    if isinstance(event, yaml.MappingStartEvent):
        return _Map(line)
    return _Scalar(event.value, is_plain=not event.style, line=line)


def _is_exact(node: _Scalar) -> bool:
    """Return whether every reader of YAML takes this text for the same text, digit by digit."""
    if not node.is_plain:
        return True
    if _NUMBER_ELSEWHERE.fullmatch(node.text):
        return False
    return node.yaml_type == "str" or (
        node.yaml_type == "int" and _DECIMAL.fullmatch(node.text) is not None
    )
