"""The tables of `rocketrio group list --long` and `group members --subscription --queues`."""

from collections.abc import Sequence

from rocketrio.admin.group_overview import GroupMember, GroupOverview
from rocketrio.cli.cells import dashed
from rocketrio.cli.output import Column, Row
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.versions import version_name

LONG = (
    "group", Column("model", cell=lambda row: _model(row)), "members", dashed("topics"), "lag", "verdict",
    "why",
)  # fmt: skip
"""The columns of `group list --long`."""
MEMBERS = ("client_id", "address", "language", "version")


def overview_row(one: GroupOverview) -> dict[str, object]:
    """Return a row of `group list --long`."""
    return {
        "group": one.group,
        "model": one.model,
        "members": one.members,
        "topics": list(one.topics),
        "lag": one.lag,
        "verdict": one.verdict,
        "why": one.why,
    }


def _model(row: Row) -> str:
    if row["model"] is None:
        return "-" if row["members"] == 0 else "unknown"
    return str(row["model"]).lower()


def member_columns(*, subscription: bool, queues: bool) -> Sequence[str]:
    """Return the columns of `group members`."""
    extra = ["since"] if subscription or queues else []
    if subscription:
        extra.append("subscriptions")
    if queues:
        extra.append("queues")
    return [*MEMBERS, *extra]


def member_row(one: GroupMember) -> dict[str, object]:
    """Return a row of `group members`; queues of the retry topic are left out, each member has one of its own."""
    queues = one.queues
    subscriptions = one.subscriptions
    return {
        "client_id": one.client_id,
        "address": one.address,
        "language": one.language,
        "version": version_name(one.version),
        "since": one.since,
        "subscriptions": None
        if subscriptions is None
        else {
            each.topic: each.sub_string
            for each in subscriptions
            if not each.topic.startswith(RETRY_PREFIX)
        },
        "queues": None
        if queues is None
        else [
            f"{each.topic} {each.broker_name}/{each.queue_id}"
            for each in queues
            if not each.topic.startswith(RETRY_PREFIX)
        ],
    }
