"""Administration of a cluster: topics, groups, offsets, brokers and their replication.

    async with open_admin(name_servers=["10.0.0.1:9876"]) as admin:
        await admin.create_topic("orders", queues=8)

Every question and every change is a method of `Admin`. Exported beside it is every type that its methods take and
return, so that a program can name what it holds.
"""

from rocketrio.admin.access import AccessAdmin, AccessRight, AccessUser
from rocketrio.admin.admin import Admin, open_admin
from rocketrio.admin.broker_numbers import BrokerNumber, counts_of, state_of
from rocketrio.admin.brokers import Cleaned, Cleaning, HandOver
from rocketrio.admin.browse import TopicMessages
from rocketrio.admin.clients import ConnectedClient, ConnectedClients
from rocketrio.admin.cluster_status import BrokerDescription, BrokerStatus
from rocketrio.admin.dead_letters import DeadLetterCount, DeadLetters, Resent, chooses
from rocketrio.admin.declared import ApplyPlan, Change, DeclaredPlace
from rocketrio.admin.diagnosis import CODES, Diagnosis, GroupCheck, Health
from rocketrio.admin.diagnosis.rule import Finding
from rocketrio.admin.diagnosis.snapshot import Snapshot
from rocketrio.admin.drain import Held, WritePermission
from rocketrio.admin.events import BrokerEvent, EventFeed
from rocketrio.admin.groups import GroupMember, GroupOverview, GroupSettings, ModeChange
from rocketrio.admin.lag import LagWindow
from rocketrio.admin.lag_values import GroupLag, LagReport, QueueLag
from rocketrio.admin.message_status import GroupTrack, Track
from rocketrio.admin.message_trace import MessageTrace, TraceStep
from rocketrio.admin.messages import IdParts, id_parts
from rocketrio.admin.name_servers import NameServerState
from rocketrio.admin.offsets import CommittedOffset, QueueOffsets
from rocketrio.admin.resend_journal import Journal, open_journal
from rocketrio.admin.reset_plan import PlanChangedError, ResetPlan, Target
from rocketrio.admin.resets import OffsetReset
from rocketrio.admin.round_trips import RoundTrips
from rocketrio.admin.topics import (
    PermissionChange,
    Served,
    TopicCount,
    TopicDescription,
    TopicOverview,
    TopicReader,
)
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
    "BrokerNumber",
    "BrokerStatus",
    "Change",
    "Cleaned",
    "Cleaning",
    "CommittedOffset",
    "ConnectedClient",
    "ConnectedClients",
    "DeadLetterCount",
    "DeadLetters",
    "DeclaredPlace",
    "Diagnosis",
    "EventFeed",
    "Finding",
    "GroupCheck",
    "GroupLag",
    "GroupMember",
    "GroupOverview",
    "GroupSettings",
    "GroupTrack",
    "HandOver",
    "Health",
    "Held",
    "IdParts",
    "Journal",
    "LagReport",
    "LagWindow",
    "MessageTrace",
    "ModeChange",
    "NameServerState",
    "OffsetReset",
    "Owner",
    "PermissionChange",
    "PlanChangedError",
    "QueryNotFoundError",
    "QueueLag",
    "QueueOffsets",
    "RequestCodeNotSupportedError",
    "Resent",
    "ResetPlan",
    "RoundTrips",
    "Served",
    "Severity",
    "Snapshot",
    "Target",
    "TopicCount",
    "TopicDescription",
    "TopicMessages",
    "TopicOverview",
    "TopicReader",
    "TraceStep",
    "Track",
    "Transactions",
    "Verdict",
    "WritePermission",
    "chooses",
    "counts_of",
    "id_parts",
    "open_admin",
    "open_journal",
    "state_of",
]
