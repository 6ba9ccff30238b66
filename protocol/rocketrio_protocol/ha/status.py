"""The HA status of a broker by request: body of the answer to 907.

    members of Apache's own names     read by Java's `mqadmin haStatus`, and by us from an Apache 5.x broker
    members named `rocketrio…`        ours beside them; Java's readers skip what they do not know, and Apache sends none

On a master `ha_connection_info` counts, on a slave `ha_client_runtime_info`.

Answers to: HARuntimeInfo with HAConnectionRuntimeInfo and HAClientRuntimeInfo (5.x; 4.x has no such request).
"""

from typing import Self

import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.frame import Body


class HAConnectionRuntimeInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One slave, as its master sees it."""

    addr: str = ""
    """The slave's end of the replication connection."""
    slave_ack_offset: int = 0
    diff: int = 0
    """Bytes behind."""
    in_sync: bool = False
    """Near enough to be waited for."""
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    """Where the next transfer starts."""
    rocketrio_broker_id: int | None = None
    """Which slave it is, where it has said so."""
    rocketrio_seconds_behind: float | None = None
    """How long the first byte that the slave has not acknowledged has been stored; 0 when there is none."""
    rocketrio_report_age: float | None = None
    """Seconds since the slave's last report."""
    rocketrio_connected_since: int | None = None
    """Epoch ms."""
    rocketrio_bytes_sent: int | None = None


class HAClientRuntimeInfo(msgspec.Struct, rename="camel", kw_only=True):
    """A slave's own view; a master leaves it empty."""

    master_addr: str | None = None
    """Where it fetches the log."""
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    """When the master last sent something, epoch ms; 0: it never did."""
    last_write_timestamp: int = 0
    """When the slave last reported."""
    master_flush_offset: int = 0
    """Known to Apache's auto-switching brokers only."""
    rocketrio_state: str | None = None
    rocketrio_local_addr: str | None = None
    """Its end of the connection: `addr` of this slave in what its master answers."""
    rocketrio_acknowledges: str | None = None
    """`memory` or `disk`: what it must have a byte in before it reports it."""
    rocketrio_master_offset: int | None = None
    """The greatest address that the master is known to have reached."""
    rocketrio_verified_offset: int | None = None
    """Up to here its log is equal to the connected master's."""
    rocketrio_level_age: float | None = None
    """Seconds since it last had all that the master had; None when it never did."""
    rocketrio_bytes_received: int | None = None
    rocketrio_last_problem: str | None = None
    """Why the log does not arrive; None while it does."""
    rocketrio_copied_bytes: int | None = None
    """Of a long copy under way; this and the next three are None when there is none."""
    rocketrio_copy_bytes: int | None = None
    """How many it is to be, as far as the master's log went when it was last asked."""
    rocketrio_copy_rate: int | None = None
    """Bytes a second."""
    rocketrio_copy_seconds_left: float | None = None
    rocketrio_tables_age: float | None = None
    """Seconds since topics, groups and offsets were last copied whole."""
    rocketrio_tables_problem: str | None = None


class BeyondBoundary(msgspec.Struct, rename="camel", kw_only=True):
    """What a slave has that its master lacks, and does not cut off without being asked."""

    start: int
    end: int
    messages: int
    topics: dict[str, int] = {}
    """Messages of each topic."""
    is_counted_whole: bool = True
    """Whether all of it was counted; otherwise there are more messages."""
    why_kept: str | None = None


class LastWait(msgspec.Struct, rename="camel", kw_only=True):
    """What the last send that had to wait has waited for."""

    status: str
    end_offset: int
    flush_seconds: float | None = None
    slave_seconds: float | None = None
    slave: str | None = None


class OwnStatus(msgspec.Struct, rename="camel", kw_only=True):
    """What our brokers say of themselves beside Apache's members."""

    role: str
    """`async-master`, `sync-master` or `slave`."""
    broker_id: int
    claims: bool | None = None
    """Of a master: it leads, or is about to; None where it does not say."""
    configured_role: str | None = None
    """What its settings say; it holds another role since an operator, or its own return, gave it that."""
    configured_broker_id: int | None = None
    refusal: str | None = None
    """Why no writes are taken; None where they are. A slave never takes any, and says nothing here."""
    standing: str | None = None
    """`leads`, `follows` or `stands aside`."""
    stands_aside_for: str | None = None
    """The live master of its name for which it stands aside; None where it knows of none."""
    flushed_offset: int = 0
    """The disk has everything before this address."""
    min_offset: int = 0
    max_offset: int = 0
    shown_offset: int | None = None
    """Readers see what ends at or before this address; None where they see all that is stored."""
    shown_by: str | None = None
    """What that goes by: `slaves`, `disk` (too few slaves keep up: what its disk has synced), `nobody` (too few keep
    up, and readers wait), or `master` (of a slave: as its master told)."""
    in_sync_slaves: int | None = None
    """How many slaves must have a message before a synchronous master answers PUT_OK; None on others."""
    live_slaves: int = 0
    waiting_answers: int = 0
    """Sends that wait now."""
    answered: dict[str, int] = {}
    """How often sends that waited were answered with each status since the start."""
    last_wait: LastWait | None = None
    member: str | None = None
    """The name of its data directory."""
    epoch: int | None = None
    """The number of the last epoch in its log; None where none is known."""
    epoch_id: str | None = None
    epoch_start: int | None = None
    beyond: BeyondBoundary | None = None
    last_problem: str | None = None
    """What last went wrong with a slave, or for a slave; None when nothing did."""
    problems: list[str] = []
    """What is wrong with this broker by itself now: its clock, its log, its disk."""


class HARuntimeInfo(msgspec.Struct, rename="camel", kw_only=True):
    """Body of the answer to 907."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    """Slaves near enough to be waited for."""
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
    rocketrio: OwnStatus | None = None

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Read a body. Raises RemoteProtocolError."""
        return fastjson.loads(body, cls, what="HA status")

    def to_json(self) -> bytes:
        """As fastjson writes it."""
        return fastjson.dumps(self)
