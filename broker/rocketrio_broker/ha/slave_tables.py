"""What a broker that becomes master takes over of its slaves' topics and groups: what it was not told of.

A slave copies its master's tables on a period. When the two change places what was made or set in that time is known
to the former master alone, which is a slave now; the same after a power cut that took a table's file.

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
    """Our tables, to be joined with those of slaves."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager

    async def take_over(self, call: Caller, addr: str) -> None:
        """Ask one slave (21, 201). Raises what stopped it, ConfigFileError where this disk takes nothing."""
        body = await ask(call, addr, GetAllTopicConfigRequestHeader())
        self.topics.join(read_table(body, TopicConfigSerializeWrapper, what="topics"))
        body = await ask(call, addr, GetAllSubscriptionGroupConfigRequestHeader())
        self.groups.join(read_table(body, SubscriptionGroupWrapper, what="groups"))
