"""Chooses the broker id from which a reader should pull next: the broker's half of read/write splitting.

    slave_read_enable   behind memory   the group names
    no                  either          0, the master, whatever its settings say
    yes                 yes             which_broker_when_consume_slowly; 1, the default, is any slave
    yes                 no              broker_id (0)

    named       asked broker   suggested
    0           either         0
    any slave   master         a live one; without one 0
    any slave   slave          its own id: it keeps the readers that were sent to it
    one slave   master         that id while it is live; otherwise as any slave
    one slave   slave          that id

Of several slaves each group gets one, by rendezvous hash: groups are spread, all members of a group get the same one,
and when a slave connects or leaves, only the groups that must move do.

Invariant: a slave sends a caught-up reader back to the group's preferred broker, and a slave that must not be read from
sends every reader to the master.
Answers to: PullMessageProcessor's use of GetMessageResult.isSuggestPullingFromSlave; RocketMQ reference, section 8.4.
Unlike Java: a master there suggests the named id whether or not such a slave exists, and sends every group without a
setting to 1. Its tools write the 1 with every change of a group, so the value does not express a preference.
"""

from collections.abc import Callable, Collection
from typing import Final

from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.rendezvous import weight

ANY_SLAVE: Final = SubscriptionGroupConfig("").which_broker_when_consume_slowly
"""The setting of a group without a preference: any slave, once the group is behind memory."""


def suggest_which_broker_id(
    group: SubscriptionGroupConfig,
    *,
    slave_read_enable: bool,
    is_behind_memory: bool,
    own_id: int,
    live_slaves: Callable[[int], Collection[int]],
) -> int:
    """Return the id for the next pull; `is_behind_memory` is the store's `suggest_pulling_from_slave`.

    `live_slaves`, called with the named id, returns which slaves can be read from; it is only called if needed.
    """
    if not slave_read_enable:
        return MASTER_ID
    named = group.which_broker_when_consume_slowly if is_behind_memory else group.broker_id
    if named == MASTER_ID:
        return MASTER_ID
    is_any = is_behind_memory and named == ANY_SLAVE
    if own_id != MASTER_ID:
        return own_id if is_any else named
    live = live_slaves(named)
    if named in live and not is_any:
        return named
    return max(live, key=lambda id_: weight(group.group_name, id_), default=MASTER_ID)
