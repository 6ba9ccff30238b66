"""The settings of the message store, with RocketMQ's names and defaults; times in seconds, sizes in bytes.

Answers to: MessageStoreConfig.
Unlike Java: the share of memory that counts as "in memory" may be a fraction of a percent, or a size in bytes.
"""

import re
from typing import Literal

import attrs
from attrs import validators

from rocketrio_broker.settings.setting import MS, checked_words, not_negative, positive, setting
from rocketrio_protocol.errors import ConfigError

QUEUE_ENTRY_SIZE = 20
_SMALLEST_LOG_FILE = 4096  # one page; smaller files are of no use
_HOUR = re.compile(r"[01]?[0-9]|2[0-3]")
_DELAY_LEVELS = re.compile(r"[1-9]\d*[smhd](\s+[1-9]\d*[smhd])*")
_LARGEST_FILE = 0x7FFFFFFF  # the size word of padding is a signed 32-bit number


@attrs.frozen(kw_only=True, field_transformer=checked_words)
class StoreConfig:
    """The settings for storing messages."""

    mapped_file_size_commit_log: int = setting(
        1 << 30,
        "Bytes of one commit log file; master and slaves must agree.",
        validators.ge(_SMALLEST_LOG_FILE),
        validators.le(_LARGEST_FILE),
    )
    mapped_file_size_consume_queue: int = setting(
        300_000 * QUEUE_ENTRY_SIZE,
        "Bytes of one consume queue file, a multiple of 20.",
        validators.ge(QUEUE_ENTRY_SIZE),
        validators.le(_LARGEST_FILE),
    )
    message_index_enable: bool = setting(True, "Whether messages are indexed by key and unique id.")
    max_hash_slot_num: int = setting(5_000_000, "Hash slots of one index file.", positive)
    max_index_num: int = setting(
        20_000_000, "Entries of one index file, the unused first one included.", validators.gt(1)
    )
    flush_disk_type: Literal["async", "sync"] = setting(
        "async",
        "async: flush on a period; sync: a send is answered after its bytes are on the disk.",
    )
    flush_interval_commit_log: float = setting(
        0.5, "Seconds between flushes of the commit log in async mode.", positive, unit=MS
    )
    flush_interval_consume_queue: float = setting(
        1.0,
        "Seconds between checks whether enough new consume queue entries wait in memory to be written.",
        positive,
        unit=MS,
    )
    flush_consume_queue_thorough_interval: float = setting(
        60.0,
        "Seconds between syncs of queues and index, each followed by a checkpoint.",
        positive,
        unit=MS,
    )
    sync_flush_timeout: float = setting(
        5.0, "Seconds a send waits for its flush in sync mode.", positive, unit=MS
    )
    max_message_size: int = setting(
        4 << 20, "Bytes of the largest message body, and of the largest batch.", positive
    )
    max_topic_length: int = setting(
        127, "Bytes of the longest topic name.", positive, validators.le(127)
    )
    check_crc_on_recover: bool = setting(
        True,
        "Whether recovery compares the checksum of every body it reads.",
        java="checkCRCOnRecover",
    )
    file_reserved_time: float = setting(
        72.0, "Hours after which a commit log file may be deleted.", not_negative, live=True
    )
    delete_when: str = setting(
        "04",
        "Hours of the day (local time, 00 to 23, separated by ;) at which old files are deleted.",
        live=True,
    )
    disk_max_used_space_ratio: float = setting(
        75.0, "Percent of the disk in use above which old files are deleted at any hour.", live=True
    )
    disk_space_clean_forcibly_ratio: float = setting(
        85.0,
        "Percent of the disk in use above which the oldest files are deleted whatever their age.",
        live=True,
    )
    disk_space_warning_level_ratio: float = setting(
        90.0, "Percent of the disk in use above which sends are refused.", live=True
    )
    clean_file_forcibly_enable: bool = setting(
        True,
        "Whether files younger than file_reserved_time may be deleted when the disk fills up. With flush_disk_type=sync"
        " or ha_acknowledge=disk they are never deleted; sends are refused instead.",
        live=True,
    )
    clean_resource_interval: float = setting(
        10.0, "Seconds between checks of the disk's use and for expired files.", positive, unit=MS
    )
    access_message_in_memory_max_ratio: float = setting(
        40.0,
        "Percent of the machine's memory; a reader further behind the end reads from disk and is"
        " sent to a slave. May be a fraction.",
        not_negative,
        live=True,
    )
    access_message_in_memory_max_bytes: int | None = setting(
        None,
        "Bytes to use instead of access_message_in_memory_max_ratio, if set.",
        validators.optional(not_negative),
        live=True,
    )
    max_transfer_bytes_on_message_in_memory: int = setting(
        262_144, "Bytes of one pull answer from memory.", positive, live=True
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32, "Messages of one pull answer from memory.", positive, live=True
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        65_536, "Bytes of one pull answer from disk.", positive, live=True
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8, "Messages of one pull answer from disk.", positive, live=True
    )
    max_filter_message_size: int = setting(
        16_000, "Bytes of consume queue that one filtered pull reads at most.", positive, live=True
    )
    max_msgs_num_batch: int = setting(
        64, "The most messages that one query by key returns.", positive, live=True
    )
    offset_check_in_slave: bool = setting(
        False, "Whether a slave corrects offsets that lie outside its own queues.", live=True
    )
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of the levels 1, 2, ... of delayed messages.",
    )

    def __attrs_post_init__(self) -> None:
        if self.mapped_file_size_consume_queue % QUEUE_ENTRY_SIZE:
            raise ConfigError(
                "mapped_file_size_consume_queue is"
                f" {self.mapped_file_size_consume_queue}: it must be a multiple of 20"
            )
        if not all(_HOUR.fullmatch(hour.strip()) for hour in self.delete_when.split(";")):
            raise ConfigError(f"delete_when is {self.delete_when!r}: use hours such as 04 or 04;16")
        if _DELAY_LEVELS.fullmatch(self.message_delay_level.strip()) is None:
            raise ConfigError(
                f"message_delay_level is {self.message_delay_level!r}: use numbers with s, m, h or d,"
                " such as `1s 5s 1m 2h`"
            )
        ratios = (
            self.disk_max_used_space_ratio,
            self.disk_space_clean_forcibly_ratio,
            self.disk_space_warning_level_ratio,
        )
        if not 0 < ratios[0] <= ratios[1] <= ratios[2] <= 100:
            raise ConfigError(
                "the disk ratios must rise: disk_max_used_space_ratio, disk_space_clean_forcibly_ratio,"
                f" disk_space_warning_level_ratio are {ratios}"
            )

    @property
    def file_reserved_ms(self) -> float:
        """How long messages are kept, in milliseconds."""
        return self.file_reserved_time * 3_600_000

    def memory_size(self, physical_memory: int) -> int:
        """Return how many bytes at the end of the log count as being in memory."""
        if self.access_message_in_memory_max_bytes is not None:
            return self.access_message_in_memory_max_bytes
        return int(physical_memory * self.access_message_in_memory_max_ratio / 100)
