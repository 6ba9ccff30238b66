"""Static members of consumer groups that are away: their connection ended, and their grace time has not.

A client that requests a grace time with its heartbeats (`rocketrioStaticGrace`) stays in the list of its group's
members for that time after its connection ended. Members that divide the queues by that list leave it its own, so a
restart under the same client id moves no queue. The table takes the time as an argument.

Answers to: nothing of Apache's (docs/decisions/0021-static-members.md); Kafka's group.instance.id.
"""

import logging
from typing import Final

logger = logging.getLogger("rocketrio_broker.clients")

AWAY_LIMIT: Final = 1000
"""The most members of one group that may be away, more than a group sensibly has; a further one leaves at once."""


ALL_AWAY_LIMIT: Final = 100_000
"""The same limit for all groups together, some 30 MB."""


class AwayMembers:
    """The members that are away, by group, each with the end of its grace time."""

    def __init__(self) -> None:
        self._until: dict[str, dict[str, float]] = {}
        self._size = 0

    def leave(self, group: str, client_id: str, *, until: float) -> bool:
        """Note that a member's connection ended; return False if too many members are already away."""
        away = self._until.get(group, {})
        is_new = client_id not in away
        if is_new and (len(away) >= AWAY_LIMIT or self._size >= ALL_AWAY_LIMIT):
            logger.warning("too many members away group=%s client_id=%s", group, client_id)
            return False
        self._size += is_new
        self._until.setdefault(group, away)[client_id] = until
        logger.info("static member away group=%s client_id=%s", group, client_id)
        return True

    def come_back(self, group: str, client_id: str) -> bool:
        """Note that a member is connected; return True if it was away."""
        away = self._until.get(group)
        if away is None or away.pop(client_id, None) is None:
            return False
        self._size -= 1
        if not away:
            del self._until[group]
        logger.info("static member back group=%s client_id=%s", group, client_id)
        return True

    def client_ids(self, group: str) -> list[str]:
        """Return the group's members that are away."""
        return list(self._until.get(group, ()))

    def expire(self, now: float) -> list[str]:
        """Remove members whose grace time is over; return the groups that lost a member."""
        groups = []
        for group, away in list(self._until.items()):
            over = [client_id for client_id, until in away.items() if until <= now]
            for client_id in over:
                del away[client_id]
                self._size -= 1
                logger.info("static member gone group=%s client_id=%s", group, client_id)
            if not away:
                del self._until[group]
            if over:
                groups.append(group)
        return groups
