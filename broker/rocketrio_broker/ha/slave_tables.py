"""Copies topics and groups that only the slaves know about to a broker that becomes master.

A slave copies its master's tables periodically. When the two change places, only the former master, which is a slave
now, knows the topics and groups that were created or changed since the last copy. The same holds after a power cut that
destroyed a table's file.

Answers to: nothing; a new master of Apache's has what it happened to copy last.
"""

import attrs

from rocketrio_broker.config_file import read_table
from rocketrio_broker.groups import SubscriptionGroupManager
from rocketrio_broker.ha.peers import Caller, ask
from rocketrio_broker.topics import TopicConfigManager
from rocketrio_protocol.bodies.topics import SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from rocketrio_protocol.commands.admin import (
    GetAllSubscriptionGroupConfigRequestHeader,
    GetAllTopicConfigRequestHeader,
)


@attrs.frozen
class SlaveTables:
    """The broker's own tables, which are joined with those of slaves."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager

    async def take_over(self, call: Caller, addr: str) -> None:
        """Join the tables of one slave (21, 201) with these.

        Raises Error if the slave cannot be asked, ConfigFileError if this disk takes nothing.
        """
        body = await ask(call, addr, GetAllTopicConfigRequestHeader())
        self.topics.join(read_table(body, TopicConfigSerializeWrapper, what="topics"))
        body = await ask(call, addr, GetAllSubscriptionGroupConfigRequestHeader())
        self.groups.join(read_table(body, SubscriptionGroupWrapper, what="groups"))
