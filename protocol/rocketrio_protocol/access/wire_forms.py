"""Converts users and policies to and from the JSON that requests 3001 to 3010 and our own file use.

Invariant: what is converted has no password in it; a change that gives none keeps the secrets.
Answers to: UserConverter, AclConverter.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import attrs

from rocketrio_protocol.access.model import (
    ACTION_NAMES,
    ENTRIES_LIMIT,
    SECRETS_LIMIT,
    SOURCES_LIMIT,
    Action,
    Entry,
    Resource,
    Source,
    User,
    secret_problem,
)
from rocketrio_protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketrio_protocol.errors import ConfigError

SUBJECT_PREFIX: Final = "User:"

_TYPES: Final = {"super": True, "normal": False}
_STATUSES: Final = {"enable": True, "disable": False}
_DECISIONS: Final = {"allow": True, "deny": False}
_POLICY_TYPES: Final = {"custom": "Custom", "default": "Default"}

T = TypeVar("T")


def subject_of(user: User) -> str:
    """Return the subject that stands for a user."""
    return f"{SUBJECT_PREFIX}{user.name}"


def user_info(user: User) -> UserInfo:
    """Return a user as answers show it, without its password."""
    return UserInfo(
        username=user.name,
        user_type="Super" if user.is_super else "Normal",
        user_status="enable" if user.is_enabled else "disable",
    )


def changed_user(user: User, info: UserInfo) -> User:
    """Return the user with what `info` gives.

    A new password is added before the previous one, which remains valid; the newest one given again removes the
    previous. Raises ConfigError.
    """
    secrets = user.secrets
    if info.password is not None:
        secrets = with_secret(secrets, info.password)
    is_super = chosen(info.user_type, _TYPES, "userType", user.is_super)
    is_enabled = chosen(info.user_status, _STATUSES, "userStatus", user.is_enabled)
    return attrs.evolve(user, secrets=secrets, is_super=is_super, is_enabled=is_enabled)


def with_secret(secrets: Sequence[bytes], password: str) -> tuple[bytes, ...]:
    """Return a user's secrets after its password was set. Raises ConfigError."""
    problem = secret_problem(password)
    if problem is not None:
        raise ConfigError(problem)
    new = password.encode()
    if secrets and secrets[0] == new:
        return (new,)
    return (new, *(each for each in secrets if each != new))[:SECRETS_LIMIT]


def acl_info(user: User, resource_filter: str = "") -> AclInfo | None:
    """Return a user's policies on resources that contain a text; None if there are none."""
    policies = []
    for kind, entries in (("Custom", user.custom), ("Default", user.default)):
        shown = [_entry_info(entry) for entry in entries if resource_filter in str(entry.resource)]
        if shown:
            policies.append(PolicyInfo(kind, shown))
    return AclInfo(subject_of(user), policies) if policies else None


def merged_acl(user: User, info: AclInfo) -> User:
    """Return the user with these policies; an entry replaces the one of its type for the same resource.

    Raises ConfigError that says which part is missing or wrong.
    """
    if not info.policies:
        raise ConfigError("The policies is empty.")
    for policy in info.policies:
        kind = policy_type(policy.policy_type or "Custom")
        if not policy.entries:
            raise ConfigError("The entries is empty.")
        new = [_entry(each) for each in policy.entries]
        if kind == "Custom":
            user = attrs.evolve(user, custom=_merged(user.custom, new))
        else:
            user = attrs.evolve(user, default=_merged(user.default, new))
    if len(user.custom) + len(user.default) > ENTRIES_LIMIT:
        raise ConfigError(f"A user has at most {ENTRIES_LIMIT} entries")
    return user


def without_entries(user: User, kind: str | None, resource: str | None) -> User:
    """Return the user without its entries of a policy type and resource; None means all. Raises ConfigError."""
    named = Resource.parse(resource) if resource else None
    wanted = policy_type(kind) if kind else None

    def left(own: str, entries: Iterable[Entry]) -> tuple[Entry, ...]:
        if wanted not in (None, own):
            return tuple(entries)
        return tuple(each for each in entries if named is not None and each.resource != named)

    return attrs.evolve(
        user, custom=left("Custom", user.custom), default=left("Default", user.default)
    )


def policy_type(text: str) -> str:
    """Return `Custom` or `Default`. Raises ConfigError."""
    return chosen(text, _POLICY_TYPES, "policyType", "Custom")


def chosen(text: str | None, choices: dict[str, T], what: str, otherwise: T) -> T:
    """Return what a text stands for, in any case; `otherwise` for none. Raises ConfigError."""
    if not text:
        return otherwise
    value = choices.get(text.lower())
    if value is None:
        raise ConfigError(
            f"{what} is {text[:40]!r}, not one of {', '.join(each.capitalize() for each in choices)}"
        )
    return value


def _merged(old: Iterable[Entry], new: Iterable[Entry]) -> tuple[Entry, ...]:
    by_resource = {entry.resource: entry for entry in (*old, *new)}
    return tuple(by_resource.values())


def _entry(info: PolicyEntryInfo) -> Entry:
    if not info.resource:
        raise ConfigError("The resource is null.")
    if not info.actions:
        raise ConfigError("The actions is empty.")
    if not info.decision:
        raise ConfigError("The decision is null.")
    if len(info.source_ips) > SOURCES_LIMIT:
        raise ConfigError(f"An entry has at most {SOURCES_LIMIT} sourceIps")
    actions = Action(0)
    for name in info.actions:
        action = ACTION_NAMES.get(name.capitalize())
        if action is None:
            raise ConfigError(
                f"The action {name[:40]!r} cannot be given: use {', '.join(ACTION_NAMES)}"
            )
        actions |= action
    return Entry(
        Resource.parse(info.resource),
        actions,
        chosen(info.decision, _DECISIONS, "decision", False),
        tuple(Source.parse(each) for each in info.source_ips if each.strip()),
    )


def _entry_info(entry: Entry) -> PolicyEntryInfo:
    is_all = entry.actions == Action.ALL
    shown = [
        name
        for name, action in ACTION_NAMES.items()
        if (action == Action.ALL) == is_all and entry.actions & action
    ]
    return PolicyEntryInfo(
        resource=str(entry.resource),
        actions=shown,
        source_ips=[source.text for source in entry.sources],
        decision="Allow" if entry.is_allowed else "Deny",
    )
