"""The client's routing tables, and the choice of the address for a request.

Invariant: no decision depends on the order of a hash table: ids are tried in a defined order.
Invariant: an address that just failed is avoided while another one is known.
Answers to: the tables of MQClientInstance, findBrokerAddressInSubscribe / InPublish / InAdmin,
PullAPIWrapper.recalculatePullFromWhichNode / updatePullFromWhichNode.
Unlike Java: a broker's addresses are those of the newest route answer of any topic, changed or not, so that one topic's
older answer does not remain in use. A missing id is replaced by the master, then by the smallest id.
"""

from collections.abc import Callable

import attrs

from rocketrio_protocol.bodies.route import TopicRouteData
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.message import MessageQueue


@attrs.frozen
class FindBrokerResult:
    """An address and its broker id."""

    addr: str
    broker_id: int

    @property
    def is_slave(self) -> bool:
        """Whether it is a slave: pulls from a slave do not commit offsets."""
        return self.broker_id != MASTER_ID


def _never(addr: str) -> bool:
    return False


@attrs.define
class Router:
    """What a client knows of its cluster."""

    topic_route_table: dict[str, TopicRouteData] = attrs.Factory(dict)
    broker_addr_table: dict[str, dict[int, str]] = attrs.Factory(dict)
    """Broker name to id to address."""
    pull_from_which_node_tables: dict[str, dict[MessageQueue, int]] = attrs.Factory(dict)
    """Group to queue to the broker id that the last pull answer suggested: one group may lag while another does not."""
    connect_broker_by_user: bool = False
    """Whether pulls go to `default_broker_id` regardless of the brokers' suggestions."""
    default_broker_id: int = MASTER_ID
    is_avoided: Callable[[str], bool] = _never
    """Returns whether an address failed recently."""

    def update_topic_route(self, topic: str, route: TopicRouteData) -> bool:
        """Take over a fresh route; return whether it differs from the previous one."""
        for broker in route.broker_datas:
            # Even if the topic's route is the same: another topic's older answer may have put other addresses here.
            self.broker_addr_table[broker.broker_name] = dict(broker.broker_addrs)
        if self.topic_route_table.get(topic) == route:
            return False
        self.topic_route_table[topic] = route
        self._forget_absent_queues(topic, route)
        return True

    def _forget_absent_queues(self, topic: str, route: TopicRouteData) -> None:
        counts = {data.broker_name: data.read_queue_nums for data in route.queue_datas}
        for table in self.pull_from_which_node_tables.values():
            for queue in [queue for queue in table if queue.topic == topic]:
                if queue.queue_id >= counts.get(queue.broker_name, 0):
                    del table[queue]

    def clean_offline_brokers(self) -> list[str]:
        """Drop the addresses that no route contains any more; return them."""
        routed: dict[str, set[str]] = {}
        for route in self.topic_route_table.values():
            for broker in route.broker_datas:
                routed.setdefault(broker.broker_name, set()).update(broker.broker_addrs.values())
        offline: list[str] = []
        for name, addrs in list(self.broker_addr_table.items()):
            for broker_id, addr in list(addrs.items()):
                if addr not in routed.get(name, ()):
                    offline.append(addr)
                    del addrs[broker_id]
            if not addrs:
                del self.broker_addr_table[name]
        return offline

    def addresses(self, *, masters_only: bool = False) -> list[str]:
        """Return all known broker addresses, masters first."""
        found = {
            (broker_id, addr)
            for addrs in self.broker_addr_table.values()
            for broker_id, addr in addrs.items()
            if broker_id == MASTER_ID or not masters_only
        }
        return list(dict.fromkeys(addr for _, addr in sorted(found)))

    def find_broker_address_in_publish(self, broker_name: str) -> str | None:
        """Return the master's address: only a master takes messages."""
        return self.broker_addr_table.get(broker_name, {}).get(MASTER_ID)

    def find_broker_address_in_subscribe(
        self, broker_name: str, broker_id: int, only_this_broker: bool = False
    ) -> FindBrokerResult | None:
        """Return where to read from: the requested id, else another one unless `only_this_broker` is set.

        The order is: the requested id, then the master, then the smallest id; addresses that failed recently come last,
        in the same order.
        """
        addrs = self.broker_addr_table.get(broker_name, {})
        if only_this_broker:
            addr = addrs.get(broker_id)
            return None if addr is None else FindBrokerResult(addr, broker_id)
        addr = addrs.get(broker_id)
        if addr is not None and not self.is_avoided(addr):
            return FindBrokerResult(addr, broker_id)
        if not addrs:
            return None
        chosen = min(
            addrs,
            # A defined order, and no chance: all queues of a broker move to the same replica.
            key=lambda id_: (self.is_avoided(addrs[id_]), id_ != broker_id, id_ != MASTER_ID, id_),
        )
        return FindBrokerResult(addrs[chosen], chosen)

    def candidates(self, broker_name: str) -> list[FindBrokerResult]:
        """Return every address of a broker name in the order to try them: the master first, recent failures last."""
        addrs = self.broker_addr_table.get(broker_name, {})
        ids = sorted(addrs, key=lambda id_: (self.is_avoided(addrs[id_]), id_ != MASTER_ID, id_))
        return [FindBrokerResult(addrs[id_], id_) for id_ in ids]

    def live(self, broker_name: str) -> list[FindBrokerResult]:
        """Return the candidates that did not fail recently."""
        return [found for found in self.candidates(broker_name) if not self.is_avoided(found.addr)]

    @property
    def pull_from_which_node_table(self) -> dict[MessageQueue, int]:
        """The suggestions to all groups in one table, a copy; if two groups have one for a queue, the later group's."""
        merged: dict[MessageQueue, int] = {}
        for table in self.pull_from_which_node_tables.values():
            merged |= table
        return merged

    def recalculate_pull_from_which_node(self, queue: MessageQueue, group: str) -> int:
        """Return the broker id to pull this queue from: the user's choice, the last suggestion, or the master."""
        if self.connect_broker_by_user:
            return self.default_broker_id
        table = self.pull_from_which_node_tables.get(group)
        return MASTER_ID if table is None else table.get(queue, MASTER_ID)

    def update_pull_from_which_node(self, queue: MessageQueue, broker_id: int, group: str) -> None:
        """Remember what a pull answer suggested for the group's next pull."""
        table = self.pull_from_which_node_tables.get(group)
        if table is None:
            table = self.pull_from_which_node_tables[group] = {}
        table[queue] = broker_id
