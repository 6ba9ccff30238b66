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
    """All committed offsets: the answer to 43, and `consumerOffset.json`; key `topic@group`."""

    offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetWrapper(msgspec.Struct, rename="camel"):
    """Progress of the delay levels: the answer to 45, and `delayOffset.json`."""

    offset_table: dict[Int32, Int64] = {}


class OffsetVersions(msgspec.Struct, rename="camel"):
    """Generations as text, `resets.lowers`; keys as in the offset table."""

    generations: dict[str, dict[Int32, str]] = {}
    lowered_from: dict[str, dict[Int32, Int64]] = {}
    removed_topics: dict[str, str] = {}
    """Topics that were deleted: offsets on them of an earlier generation are void."""
    removed_groups: dict[str, str] = {}


class VersionedConsumerOffsets(ConsumerOffsetWrapper, rename="camel"):
    """The answer to 43; without versions it is an Apache broker's."""

    rocketrio_versions: OffsetVersions | None = None


class ConsumerOffsetSnapshot(VersionedConsumerOffsets, rename="camel"):
    """`rocketrioOffsets.json`: offsets, versions, and by what `consumerOffset.json` is known as written by us."""

    checksums: list[int] = msgspec.field(default_factory=list)
    log_end: Int64 = 0
    """The end of the commit log then: a shorter one has lost messages that offsets may count."""
    is_copy: bool = False
    """They follow a master's, and may be ahead of the messages that came from there."""
