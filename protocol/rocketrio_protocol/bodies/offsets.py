"""Tables of committed offsets, with what makes one newer than another.

    {"offsetTable":{"T@G":{0:9}}, "rocketrioVersions":{"generations":{"T@G":{0:"0.1"}}, ...}}

Versions are a rocketrio addition to the answer to 43, and are in a file of its own. Only what differs from the first
generation is named. Apache's peers ignore the member, and get it only if they ask.

Answers to: ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper.
Unlike Java: Apache's offsets have no versions.
"""

import msgspec

from rocketrio_protocol.bodies.fastjson import Int32, Int64


class ConsumerOffsetWrapper(msgspec.Struct, rename="camel"):
    """All committed offsets by `topic@group`: the answer to 43, and `consumerOffset.json`."""

    offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetWrapper(msgspec.Struct, rename="camel"):
    """Progress of the delay levels: the answer to 45, and `delayOffset.json`."""

    offset_table: dict[Int32, Int64] = {}


class OffsetVersions(msgspec.Struct, rename="camel"):
    """The versions of offsets; a generation is the text `resets.lowers`. The keys are those of the offset table."""

    generations: dict[str, dict[Int32, str]] = {}
    lowered_from: dict[str, dict[Int32, Int64]] = {}
    removed_topics: dict[str, str] = {}
    """Deleted topics: offsets of an earlier generation on them are void."""
    removed_groups: dict[str, str] = {}
    epoch: str = ""
    """The last epoch of the log whose messages these offsets count, in the form that readers use; empty if unknown."""
    epochs: dict[str, dict[Int32, str]] = {}
    """The epochs of those offsets that members committed in another one."""


class VersionedConsumerOffsets(ConsumerOffsetWrapper, rename="camel"):
    """The answer to 43; an Apache broker sends no versions."""

    rocketrio_versions: OffsetVersions | None = None


class ConsumerOffsetSnapshot(VersionedConsumerOffsets, rename="camel"):
    """`rocketrioOffsets.json`: offsets, versions, and checksums that identify a `consumerOffset.json` of rocketrio."""

    checksums: list[int] = msgspec.field(default_factory=list)
    log_end: Int64 = 0
    """The end of the commit log at that time: a shorter log has lost messages that the offsets may count."""
    is_copy: bool = False
    """True for offsets copied from a master, which may be ahead of the messages copied so far."""
