"""Which broker id a reader shall pull from next: the broker's half of read/write splitting.

    slave_read_enable   behind memory   suggested
    no                  either          0, the master
    yes                 yes             which_broker_when_consume_slowly of the group (1)
    yes                 no              broker_id of the group (0)

Invariant: master and slaves go by the same table, each with its own settings and log: a caught-up reader is
sent home by the slave, and a slave that may not be read sends everybody to the master.
Answers to: PullMessageProcessor's use of GetMessageResult.isSuggestPullingFromSlave; RocketMQ reference, section 8.4.
"""

from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.topic_config import SubscriptionGroupConfig


def suggest_which_broker_id(
    group: SubscriptionGroupConfig, *, slave_read_enable: bool, is_behind_memory: bool
) -> int:
    """The id for the next pull; `is_behind_memory` is the store's `suggest_pulling_from_slave`."""
    if not slave_read_enable:
        return MASTER_ID
    if is_behind_memory:
        return group.which_broker_when_consume_slowly
    return group.broker_id
