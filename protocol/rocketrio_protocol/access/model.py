"""Users and their rights, and the decision whether a user may do something.

    Topic:orders   Topic:pay*   Topic:*   Group:...   Cluster:...   Namespace:...   *

Of the entries that match a request the first in this order decides: of the policy Custom before Default; a name, a
longer prefix, a shorter prefix, `Topic:*`, `*`; among equals Deny before Allow. Without an entry it is refused.

A table is never changed: `replace` parts of it, and use the new table from the next request on.

Invariant: a secret appears in no text that Python makes of these objects.
Answers to: User, Acl, Policy, PolicyEntry, Resource; AclAuthorizationHandler.
Unlike Java (5.3.3): the order above, which its later releases have too.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntFlag, StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, Self

import attrs

from rocketrio_protocol.access.white_addresses import AddressPattern, numeric_address
from rocketrio_protocol.errors import ConfigError

SECRETS_LIMIT: Final = 2
"""The most secrets of a user: the new one and the previous one, while clients change over."""
USERS_LIMIT: Final = 10_000
"""The most users of a server."""
ENTRIES_LIMIT: Final = 1000
"""The most entries of one user."""
SOURCES_LIMIT: Final = 100
"""The most source addresses of one entry."""
NAME_LENGTH_LIMIT: Final = 255
"""The most characters of a user's name, a secret, or the name of a resource."""
DECISIONS_KEPT: Final = 8192
"""The most decisions that a table remembers; then it forgets all of them."""


class Action(IntFlag):
    """What a user does with a resource. A request names those of which one suffices."""

    PUB = 1
    SUB = 2
    CREATE = 4
    UPDATE = 8
    DELETE = 16
    GET = 32
    LIST = 64
    ALL = 127


ACTION_NAMES: Final = {
    action.name.capitalize(): action
    for action in Action.__members__.values()
    if action.name is not None
}
"""Actions by the names that requests and files use."""


class ResourceKind(StrEnum):
    """The kinds of resources."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    ANY = "*"


class AccessDecision(Enum):
    """The decision about a request."""

    ALLOWED = "allowed"
    DENIED = "the decision is deny"
    UNMATCHED = "no matched policies"


_ALLOWED: Final = AccessDecision.ALLOWED


@attrs.frozen
class Resource:
    """What an entry is about: one name of a kind, all names with a prefix, or all of them."""

    kind: ResourceKind
    name: str = ""
    is_prefix: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `Topic:orders`. Raises ConfigError."""
        if text == ResourceKind.ANY:
            return cls(ResourceKind.ANY, is_prefix=True)
        kind, _, name = text.partition(":")
        if kind not in ResourceKind.__members__.values() or kind == ResourceKind.ANY or not name:
            raise ConfigError(
                f"The resource {text[:NAME_LENGTH_LIMIT]!r} is not like Topic:orders, Topic:pay*, Topic:* or *; "
                "kinds are Topic, Group, Cluster and Namespace"
            )
        is_prefix = name.endswith("*")
        name = name[:-1] if is_prefix else name
        if "*" in name or len(name) > NAME_LENGTH_LIMIT or not name.isprintable():
            raise ConfigError(
                f"The resource {text[:NAME_LENGTH_LIMIT]!r} has a `*` that is not its end, or is no name"
            )
        return cls(ResourceKind(kind), name, is_prefix)

    def __str__(self) -> str:
        if self.kind is ResourceKind.ANY:
            return "*"
        return f"{self.kind}:{self.name}{'*' if self.is_prefix else ''}"

    @property
    def rank(self) -> tuple[int, int]:
        """Where its entries stand among those that match: the lowest decides."""
        if self.kind is ResourceKind.ANY:
            return 3, 0
        if not self.is_prefix:
            return 0, 0
        return (1, -len(self.name)) if self.name else (2, 0)


@attrs.frozen
class Source:
    """An address or a network, as it was written."""

    text: str
    network: IPv4Network | IPv6Network = attrs.field(eq=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `10.0.0.1` or `10.0.0.0/8`. Raises ConfigError."""
        try:
            return cls(text, ip_network(text.strip(), strict=False))
        except ValueError:
            raise ConfigError(
                f"The source {text[:100]!r} is neither an address nor a network like 10.0.0.0/8"
            ) from None


@attrs.frozen
class Entry:
    """The decision about some actions on a resource, from some addresses or, if there are none, from all."""

    resource: Resource
    actions: Action
    is_allowed: bool
    sources: tuple[Source, ...] = ()

    def is_from(self, host: str) -> bool:
        if not self.sources:
            return True
        address = numeric_address(host)
        return address is not None and any(address in source.network for source in self.sources)


def _in_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.resource.rank, entry.is_allowed)))


class _Policy:
    """The entries of one policy by what they match, so that a decision costs the same however many there are."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        """`entries` are in the order in which they decide."""
        self._exact: dict[tuple[ResourceKind, str], list[Entry]] = {}
        self._by_prefix: dict[tuple[ResourceKind, str], list[Entry]] = {}
        self._any: list[Entry] = []
        lengths: dict[ResourceKind, set[int]] = {}
        for entry in entries:
            kind, name = entry.resource.kind, entry.resource.name
            if kind is ResourceKind.ANY:
                self._any.append(entry)
            elif entry.resource.is_prefix:
                self._by_prefix.setdefault((kind, name), []).append(entry)
                lengths.setdefault(kind, set()).add(len(name))
            else:
                self._exact.setdefault((kind, name), []).append(entry)
        self._lengths = {kind: sorted(found, reverse=True) for kind, found in lengths.items()}

    def matching(self, kind: ResourceKind, name: str) -> Iterator[Entry]:
        """Yield the entries about a resource in the order in which they decide."""
        yield from self._exact.get((kind, name), ())
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield from self._by_prefix.get((kind, name[:length]), ())
        yield from self._any


@attrs.frozen
class User:
    """One user: its secrets, the newest first, and its entries in the order in which they decide."""

    name: str
    secrets: tuple[bytes, ...] = attrs.field(repr=False)
    is_super: bool = False
    is_enabled: bool = True
    custom: tuple[Entry, ...] = attrs.field(default=(), converter=_in_order)
    default: tuple[Entry, ...] = attrs.field(default=(), converter=_in_order)
    white: tuple[AddressPattern, ...] = ()
    """Addresses from which the user needs neither a signature nor rights; only of 4.x's files."""
    is_bound_to_addresses: bool = attrs.field(init=False, eq=False, repr=False)
    """Whether some decision depends on where a request comes from."""
    _policies: tuple[_Policy, _Policy] = attrs.field(init=False, eq=False, repr=False)

    @is_bound_to_addresses.default
    def _has_sources(self) -> bool:
        return any(entry.sources for entry in (*self.custom, *self.default))

    @_policies.default
    def _indexed(self) -> tuple[_Policy, _Policy]:
        return _Policy(self.custom), _Policy(self.default)

    def verdict(self, kind: ResourceKind, name: str, actions: int, host: str) -> AccessDecision:
        """Decide about a request from `host` that needs one of these actions."""
        if self.is_super:
            return AccessDecision.ALLOWED
        undecided = actions  # The first entry about an action decides about it.
        for entry in self.entries_about(kind, name, actions, host):
            decides = entry.actions & undecided
            if decides and entry.is_allowed:
                return AccessDecision.ALLOWED
            undecided &= ~decides
            if not undecided:
                return AccessDecision.DENIED
        return AccessDecision.UNMATCHED if undecided == actions else AccessDecision.DENIED

    def entries_about(
        self, kind: ResourceKind, name: str, actions: int, host: str
    ) -> Iterator[Entry]:
        """Yield the entries about some of these actions from `host`, in the order in which they decide."""
        for policy in self._policies:
            for entry in policy.matching(kind, name):
                if entry.actions & actions and entry.is_from(host):
                    yield entry


@attrs.frozen
class AccessTable:
    """All users of a server by name, and the addresses whose requests need no user."""

    users: Mapping[str, User] = attrs.field(factory=dict)
    white: tuple[AddressPattern, ...] = ()
    _decided: dict[tuple[str, ResourceKind, str, int, str], AccessDecision] = attrs.field(
        factory=dict, init=False, eq=False, repr=False
    )
    _bound: frozenset[str] = attrs.field(init=False, eq=False, repr=False)

    @_bound.default
    def _bound_to_addresses(self) -> frozenset[str]:
        return frozenset(user.name for user in self.users.values() if user.is_bound_to_addresses)

    @property
    def has_white_addresses(self) -> bool:
        return bool(self.white) or any(user.white for user in self.users.values())

    def is_bound_to_addresses(self, user: User) -> bool:
        """Return whether some decision about a user of this table depends on where a request comes from."""
        return user.name in self._bound

    def with_user(self, user: User) -> "AccessTable":
        """Return the table with this user, new or in place of the one of that name."""
        return AccessTable({**self.users, user.name: user}, self.white)

    def without_user(self, name: str) -> "AccessTable":
        """Return the table without the user of this name."""
        return AccessTable(
            {each: user for each, user in self.users.items() if each != name}, self.white
        )

    def has_allowed(self, user: User, kind: ResourceKind, name: str, actions: int) -> bool:
        """Return whether `verdict` has allowed this before, from wherever it was asked; False says nothing."""
        return self._decided.get((user.name, kind, name, actions, "")) is _ALLOWED

    def verdict(
        self, user: User, kind: ResourceKind, name: str, actions: int, host: str
    ) -> AccessDecision:
        """Return the same as the user's `verdict`, from memory if possible; the user is one of this table."""
        key = (user.name, kind, name, actions, host if user.name in self._bound else "")
        decided = self._decided
        verdict = decided.get(key)
        if verdict is None:
            verdict = user.verdict(kind, name, actions, host)
            if len(decided) >= DECISIONS_KEPT:
                decided.clear()
            if len(name) <= NAME_LENGTH_LIMIT:
                decided[key] = verdict
        return verdict


def user_name_problem(name: str) -> str | None:
    """Return why this cannot be a user's name; None if it can."""
    if not name.strip():
        return "The username is blank"
    if len(name) > NAME_LENGTH_LIMIT:
        return f"The username has {len(name)} characters, more than {NAME_LENGTH_LIMIT}"
    if not name.isprintable() or name != name.strip() or ":" in name:
        return "The username has spaces around it, a colon, or characters that do not print"
    return None


def secret_problem(secret: str) -> str | None:
    """Return why this cannot be a secret, without the secret; None if it can."""
    if not secret.strip():
        return "The password is blank"
    if len(secret) > NAME_LENGTH_LIMIT:
        return f"The password has more than {NAME_LENGTH_LIMIT} characters"
    if not secret.isprintable() or secret != secret.strip():
        return "The password has spaces around it, or characters that do not print"
    return None
