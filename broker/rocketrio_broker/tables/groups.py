"""The consumer groups of one broker: their settings, their version, and `config/subscriptionGroup.json`.

Invariant: every change bumps the DataVersion and is in the file before it is in the table. A change that cannot be
written is not made, and raises ConfigFileError (versioned_table.py).
Invariant: no request makes the table larger than `groups_limit`; a copy of another broker's table may be.
Answers to: SubscriptionGroupManager; RocketMQ reference, sections 2.11, 5.7 and 5.8.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.settings.config import LiveConfig
from rocketrio_broker.tables.config_file import ConfigFile, ConfigFileError
from rocketrio_broker.tables.versioned_table import VersionedTable
from rocketrio_protocol import names
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.topics import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.remoting.ports import WallClock

logger = logging.getLogger("rocketrio_broker.groups")


class SubscriptionGroupManager:
    """The table of consumer groups."""

    def __init__(self, *, config: LiveConfig, file: ConfigFile, wall_clock: WallClock) -> None:
        self._config = config
        self._answer_text = fastjson.KeptText(is_pretty=False)
        self.subscription_group_table: dict[str, SubscriptionGroupConfig] = {
            group: SubscriptionGroupConfig(group) for group in names.SYSTEM_GROUPS
        }
        self.table: Final = VersionedTable(
            SubscriptionGroupWrapper,
            self.subscription_group_table,
            file=file,
            possible=_possible,
            wall_clock=wall_clock,
        )
        """Keeps the groups in files; the table's owner syncs and closes it."""

    def load(self) -> None:
        """Load the groups from the files, and add the groups that every broker has."""
        self.table.load()
        # Done here, because otherwise the first request for all groups would have to encode all of them.
        self._answer_text.of(self.subscription_group_table)

    @property
    def data_version(self) -> DataVersion:
        """The version of the table."""
        return self.table.data_version

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's settings; a new group is created with the defaults. None if that is not allowed.

        A new group that cannot be stored gets the defaults and is not in the table, because readers must go on. Raises
        RefusedError for a new group of a name that consumers cannot have.
        """
        known = self.subscription_group_table.get(group)
        if known is not None:
            return known
        if (problem := names.consumer_group_problem(group)) is not None:
            raise RefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        return self.find_all([group]).get(group)

    def find_all(self, groups: Iterable[str]) -> dict[str, SubscriptionGroupConfig]:
        """Return the settings of those groups that exist or may be created; new ones are stored in one write."""
        table = self.subscription_group_table
        found = {group: table[group] if group in table else self._new(group) for group in groups}
        created = {
            group: settings
            for group, settings in found.items()
            if settings is not None and group not in table
        }
        if created:
            try:
                self._grow(created)
            except ConfigFileError as error:
                logger.debug("groups not kept count=%d error=%s", len(created), error)
            else:
                logger.info("groups created count=%d first=%s", len(created), next(iter(created)))
        return {group: settings for group, settings in found.items() if settings is not None}

    def _new(self, group: str) -> SubscriptionGroupConfig | None:
        may_create = self._config.broker.auto_create_subscription_group or names.is_system_group(
            group
        )
        if not may_create or names.consumer_group_problem(group):
            return None
        return SubscriptionGroupConfig(group)

    def update(self, group: SubscriptionGroupConfig) -> None:
        """Create the group or replace its settings."""
        self.update_all([group])

    def update_all(self, groups: Iterable[SubscriptionGroupConfig]) -> None:
        """Create these groups or replace their settings, in one write of the file."""
        self._grow({group.group_name: group for group in groups})

    def _grow(self, groups: Mapping[str, SubscriptionGroupConfig]) -> None:
        limit = self._config.broker.groups_limit
        # Before it is written: clients name groups, and would fill the table that each slave copies.
        self.table.check_room(groups, limit=limit, setting="groups_limit")
        self.table.put(groups)

    def delete(self, group: str) -> bool:
        """Remove the group; return False if there was none."""
        return self.table.remove(group)

    def wrapper(self) -> SubscriptionGroupWrapper:
        """Return all groups with their version: the answer to 201, and the file's content."""
        return SubscriptionGroupWrapper(self.data_version, dict(self.subscription_group_table))

    def answer(self) -> bytes:
        """Return all groups with their version as JSON: the answer to 201."""
        table = self._answer_text.of(self.subscription_group_table)
        members = {"dataVersion": self.data_version, "subscriptionGroupTable": table}
        return fastjson.dumps(members)

    def replace(self, wrapper: SubscriptionGroupWrapper) -> bool:
        """Replace the table by a master's; return False if it is the one already here."""
        return self.table.replace(wrapper.data_version, wrapper.subscription_group_table)

    def join(self, wrapper: SubscriptionGroupWrapper) -> bool:
        """Add what only a slave knows, unless its table is the older one; return False if nothing changed."""
        count = self.table.join(wrapper.data_version, wrapper.subscription_group_table)
        if count is None:
            return False
        logger.info("groups taken over count=%d", count)
        return True


def _possible(table: dict[str, SubscriptionGroupConfig]) -> dict[str, SubscriptionGroupConfig]:
    """Return the table without invalid entries."""
    kept = {}
    for name, group in table.items():
        problem = names.group_name_problem(name)
        if problem is None and group.group_name != name:
            problem = f"its settings are those of {group.group_name!r}"
        if problem is None:
            kept[name] = group
        else:
            logger.warning("group skipped group=%r reason=%s", name, problem)
    return kept
