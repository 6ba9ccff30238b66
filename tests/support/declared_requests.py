"""What brokers and name servers declare of their requests, by code."""

from typing import Any, cast

from rocketrio_broker.namesrv.processor import NameServerProcessor
from rocketrio_broker.processors import FAMILIES
from rocketrio_broker.processors.access_admin import AccessAdminProcessor
from rocketrio_broker.processors.role import RoleProcessor
from rocketrio_broker.requests.declaration import Declaration, declarations_of


def _declared(*families: Any) -> dict[int, Declaration]:
    return {
        declared.code: declared
        for family in families
        for _, declared in declarations_of(cast(type, family))
    }


BROKER = _declared(*FAMILIES, RoleProcessor, AccessAdminProcessor)
"""With the requests that a broker answers only with access control."""
NAME_SERVER = _declared(NameServerProcessor)
