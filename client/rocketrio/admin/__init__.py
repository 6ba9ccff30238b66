"""Administration of a cluster: topics, groups, offsets, brokers and their replication.

    async with open_admin(name_servers=["10.0.0.1:9876"]) as admin:
        await admin.create_topic("orders", queues=8)

Every question and every change is a method of `Admin`. Exported beside it is what programs pass to its methods, catch
or hold, and the results that they hand on. Other results are read by their fields, and stand beside their subject.
"""

from rocketrio.admin.access import AccessAdmin, AccessRight, AccessUser
from rocketrio.admin.admin import Admin, open_admin
from rocketrio.admin.broker_numbers import counts_of, state_of
from rocketrio.admin.brokers import Cleaning, HandOver
from rocketrio.admin.browse import TopicMessages
from rocketrio.admin.cluster_status import BrokerDescription, BrokerStatus
from rocketrio.admin.dead_letters import DeadLetters, Resent, chooses
from rocketrio.admin.declared import ApplyPlan, Change, DeclaredPlace
from rocketrio.admin.diagnosis import CODES, Diagnosis, GroupCheck, Health
from rocketrio.admin.diagnosis.rule import Finding
from rocketrio.admin.diagnosis.snapshot import Snapshot
from rocketrio.admin.events import BrokerEvent, EventFeed
from rocketrio.admin.groups import GroupSettings
from rocketrio.admin.lag import LagWindow
from rocketrio.admin.lag_values import GroupLag, LagReport, QueueLag
from rocketrio.admin.message_status import Track
from rocketrio.admin.messages import id_parts
from rocketrio.admin.offsets import QueueOffsets
from rocketrio.admin.resend_journal import Journal, open_journal
from rocketrio.admin.reset_plan import PlanChangedError, ResetPlan, Target
from rocketrio.admin.resets import OffsetReset
from rocketrio.admin.topics import Served, TopicDescription
from rocketrio.admin.transactions import Transactions
from rocketrio.thresholds import Severity
from rocketrio_protocol.errors import QueryNotFoundError, RequestCodeNotSupportedError
from rocketrio_protocol.lag import Owner, Verdict

__all__ = [
    "CODES",
    "AccessAdmin",
    "AccessRight",
    "AccessUser",
    "Admin",
    "ApplyPlan",
    "BrokerDescription",
    "BrokerEvent",
    "BrokerStatus",
    "Change",
    "Cleaning",
    "DeadLetters",
    "DeclaredPlace",
    "Diagnosis",
    "EventFeed",
    "Finding",
    "GroupCheck",
    "GroupLag",
    "GroupSettings",
    "HandOver",
    "Health",
    "Journal",
    "LagReport",
    "LagWindow",
    "OffsetReset",
    "Owner",
    "PlanChangedError",
    "QueryNotFoundError",
    "QueueLag",
    "QueueOffsets",
    "RequestCodeNotSupportedError",
    "Resent",
    "ResetPlan",
    "Served",
    "Severity",
    "Snapshot",
    "Target",
    "TopicDescription",
    "TopicMessages",
    "Track",
    "Transactions",
    "Verdict",
    "chooses",
    "counts_of",
    "id_parts",
    "open_admin",
    "open_journal",
    "state_of",
]
