"""The status of a master and of its slave, both well, and changes of it."""

import attrs

from rocketrio.admin.cluster_status import TAKES_WRITES, BrokerStatus

NONE = dict.fromkeys(attrs.fields_dict(BrokerStatus))
MASTER = BrokerStatus(
    **{
        **NONE,
        "cluster": "c",
        "broker_name": "broker-a",
        "broker_id": 0,
        "role": "sync-master",
        "address": "h:1",
        "state": TAKES_WRITES,
    }
)
SLAVE = attrs.evolve(MASTER, broker_id=1, role="slave", address="h:2", state="following")


def slave(**changes: object) -> BrokerStatus:
    return attrs.evolve(SLAVE, **changes)


def master(**changes: object) -> BrokerStatus:
    return attrs.evolve(MASTER, **changes)
