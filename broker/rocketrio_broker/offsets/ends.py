"""Where a queue ends for a group: what its committed offset is compared with."""

from rocketrio_broker.store.message_store import MessageStore


def end_for(store: MessageStore, topic: str, queue_id: int, committed: int) -> int:
    """Return the end that a group's lag counts to. It lies before the committed offset only if the log ends there.

    After a change of masters a group may be ahead of what readers see; a slave may lack what the group has read. Then
    nothing is unread. An offset beyond the log counts messages of a topic that was made again, or of a longer log.
    """
    seen = store.seen_queue_end(topic, queue_id)
    if committed <= seen or store.is_slave:
        return max(seen, committed)
    return max(seen, min(committed, store.next_queue_offset(topic, queue_id)))
