"""The HA status of a broker: the body of the answer to 907.

    members with Apache's names    read by Java's `mqadmin haStatus`, and sent by Apache 5.x brokers too
    members named `rocketrio…`     extensions, which Java's readers ignore

A master fills `ha_connection_info`, a slave `ha_client_runtime_info`.

Answers to: HARuntimeInfo with HAConnectionRuntimeInfo and HAClientRuntimeInfo (5.x; 4.x has no such request).
"""

from typing import Self

import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.frame import Body


class HAConnectionRuntimeInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One slave, as seen by its master."""

    addr: str = ""
    """The slave's end of the replication connection."""
    slave_ack_offset: int = 0
    diff: int = 0
    """Bytes that the slave is behind."""
    in_sync: bool = False
    """True if the slave is close enough that synchronous sends wait for it."""
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    """The offset at which the next transfer starts."""
    rocketrio_broker_id: int | None = None
    """The broker id of the slave, if it has sent it."""
    rocketrio_seconds_behind: float | None = None
    """Seconds since the first byte was stored that the slave has not acknowledged; 0 if there is none."""
    rocketrio_report_age: float | None = None
    """Seconds since the slave's last report."""
    rocketrio_connected_since: int | None = None
    """Epoch ms."""
    rocketrio_bytes_sent: int | None = None


class HAClientRuntimeInfo(msgspec.Struct, rename="camel", kw_only=True):
    """The slave's own view; empty on a master."""

    master_addr: str | None = None
    """The address from which it fetches the log."""
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    """When the master last sent bytes, epoch ms; 0 if it never did."""
    last_write_timestamp: int = 0
    """When the slave last reported."""
    master_flush_offset: int = 0
    """Only used by Apache's auto-switching brokers."""
    rocketrio_state: str | None = None
    """What it is doing, as a text for people, which may change."""
    rocketrio_state_id: str | None = None
    """The same for programs; None from brokers of earlier versions."""
    rocketrio_local_addr: str | None = None
    """The slave's end of the connection: its `addr` in the answer of its master."""
    rocketrio_acknowledges: str | None = None
    """`memory` or `disk`: where bytes must be before the slave reports them."""
    rocketrio_master_offset: int | None = None
    """The greatest offset that the master is known to have reached."""
    rocketrio_verified_offset: int | None = None
    """The offset up to which its log equals that of the connected master."""
    rocketrio_level_age: float | None = None
    """Seconds since it last had the whole log of the master; None if it never did."""
    rocketrio_bytes_received: int | None = None
    rocketrio_last_problem: str | None = None
    """Why the log does not arrive, or None."""
    rocketrio_copied_bytes: int | None = None
    """Bytes copied so far by a long copy under way; this and the next three are None if there is none."""
    rocketrio_copy_bytes: int | None = None
    """Bytes of the whole copy, according to the end of the master's log when the master was last asked."""
    rocketrio_copy_rate: int | None = None
    """Bytes copied a second."""
    rocketrio_copy_seconds_left: float | None = None
    rocketrio_tables_age: float | None = None
    """Seconds since topics, groups and offsets were last copied completely."""
    rocketrio_tables_problem: str | None = None


class BeyondBoundary(msgspec.Struct, rename="camel", kw_only=True):
    """The end of a slave's log that its master does not have, and that the slave does not cut off automatically."""

    start: int
    end: int
    messages: int
    topics: dict[str, int] = {}
    """Messages of each topic."""
    is_counted_whole: bool = True
    """True if all messages were counted; otherwise there are more."""
    why_kept: str | None = None


class LastWait(msgspec.Struct, rename="camel", kw_only=True):
    """The waits of the last send that had to wait."""

    status: str
    end_offset: int
    flush_seconds: float | None = None
    slave_seconds: float | None = None
    slave: str | None = None


class OwnStatus(msgspec.Struct, rename="camel", kw_only=True):
    """The status of a rocketrio broker, in addition to Apache's members."""

    role: str
    """`async-master`, `sync-master` or `slave`."""
    broker_id: int
    claims: bool | None = None
    """True for a master that leads or is about to; None if it does not say so."""
    configured_role: str | None = None
    """The role in its settings, if an operator or a restart gave it another one."""
    configured_broker_id: int | None = None
    refusal: str | None = None
    """Why a master refuses writes, or None. A slave always refuses them, and gives no reason here."""
    standing: str | None = None
    """`leads`, `follows` or `stands aside`."""
    stands_aside_for: str | None = None
    """The live master of the same broker name for which it stands aside; None if it knows none."""
    flushed_offset: int = 0
    """The offset up to which the log is on disk."""
    min_offset: int = 0
    max_offset: int = 0
    shown_offset: int | None = None
    """Readers see messages that end at or before this offset; None if they see all stored messages."""
    shown_by: str | None = None
    """What decides `shown_offset`: `slaves`; `disk`, if too few slaves keep up; `nobody`, if too few keep up and
    readers wait; or `master`, on a slave, which repeats what its master reported."""
    in_sync_slaves: int | None = None
    """How many slaves must have a message before a synchronous master answers PUT_OK; None on other brokers."""
    live_slaves: int = 0
    waiting_answers: int = 0
    """Sends that are waiting now."""
    answered: dict[str, int] = {}
    """How many waiting sends were answered with each status since the start."""
    last_wait: LastWait | None = None
    member: str | None = None
    """The name of its data directory."""
    epoch: int | None = None
    """The number of the last epoch in its log; None if it is unknown."""
    epoch_id: str | None = None
    epoch_start: int | None = None
    beyond: BeyondBoundary | None = None
    last_problem: str | None = None
    """The last problem with a slave, or of a slave; None if there was none."""
    problems: list[str] = []
    """Current problems of this broker: its clock, its log, its disk."""
    now: int | None = None
    """Its wall clock when it answered, epoch ms."""


class HARuntimeInfo(msgspec.Struct, rename="camel", kw_only=True):
    """Body of the answer to 907."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    """Slaves that are close enough that synchronous sends wait for them."""
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
    rocketrio: OwnStatus | None = None

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Decode a body. Raises RemoteProtocolError."""
        return fastjson.loads(body, cls, what="HA status")

    def to_json(self) -> bytes:
        """Encode the body as fastjson writes it."""
        return fastjson.dumps(self)
