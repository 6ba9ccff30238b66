"""The progress of the delay levels: `config/delayOffset.json`, and what slaves copy with request 45.

    {"offsetTable":{1:12,3:4}}         level: the queue offset of the next message of SCHEDULE_TOPIC_XXXX

Progress is valid for a log that has the delivered messages. A log that lost its end, in a power cut or because a slave
takes over that had not received all of it, must not get that progress, or these messages are never delivered.

Invariant: the file records no delivery that could still be lost: the delivery is synced, and confirmed, first.
Invariant: a slave that copies the progress also gets the length of the log for which it is valid (`log_end`).
Answers to: ScheduleMessageService's offsetTable, DelayOffsetSerializeWrapper.
"""

from collections.abc import Callable

from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_protocol.bodies.offsets import DelayOffsetWrapper


class DelayOffsets:
    """The progress of one broker's delay levels: its own while it delivers, otherwise its master's."""

    def __init__(self, file: ConfigFile, *, log_end: Callable[[], int]) -> None:
        """Create it without progress; `log_end` returns the current end of the commit log."""
        self.file = file
        self.offset_table: dict[int, int] = {}
        self.log_end = 0
        """The address after the last delivery."""
        self.change_count = 0
        self._log_end_now = log_end
        self._is_own = False
        self._written = 0

    def load(self) -> None:
        """Find out whether the file can be read; `file.unreadable` says why not."""
        self._stored()

    def take_over(self, body: bytes, log_end: int) -> None:
        """Take a slave's progress for this broker's file, which cannot be read, if this log has what it counts.

        Raises ConfigFileError.
        """
        # Progress that counts more log than there is here would pass over messages that were never delivered.
        if log_end <= self._log_end_now():
            self.file.write_bytes(body)

    def begin(self) -> None:
        """Load the progress from the file, and continue from there."""
        self.offset_table = self._stored().offset_table
        self.log_end = self._log_end_now()
        self._written = self.change_count
        self._is_own = True

    def end(self) -> None:
        """Note that from now on the file holds another broker's progress."""
        self._is_own = False

    def advance(self, level: int, queue_offset: int, log_end: int) -> None:
        """Record that messages before `queue_offset` are delivered, at addresses before `log_end`."""
        self.offset_table[level] = queue_offset
        self.log_end = max(self.log_end, log_end)
        self.change_count += 1

    @property
    def has_unwritten(self) -> bool:
        """Whether the file is older than the progress."""
        return self._written != self.change_count

    def snapshot(self) -> tuple[DelayOffsetWrapper, int, int]:
        """Return the progress, the length of the log for which it is valid, and the change count for `write`."""
        return (
            DelayOffsetWrapper(dict(sorted(self.offset_table.items()))),
            self.log_end,
            self.change_count,
        )

    def write(self, wrapper: DelayOffsetWrapper, change_count: int) -> None:
        """Write a snapshot to the file. Raises ConfigFileError."""
        self.file.write(wrapper)
        self._written = change_count

    def answer(self) -> tuple[DelayOffsetWrapper, int]:
        """Return the progress for a slave, and the length of the log for which it is valid."""
        if self._is_own:
            wrapper, log_end, _ = self.snapshot()
            return wrapper, log_end
        return self._stored(), self._log_end_now()

    def _stored(self) -> DelayOffsetWrapper:
        return self.file.load_table(DelayOffsetWrapper) or DelayOffsetWrapper()
