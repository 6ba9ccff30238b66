"""Walking the log record by record, over padding and from file to file.

Invariant: a position handed back is the beginning of a record, of padding's successor, or the end.
Recovery ends at the first thing that is not a record; afterwards such a thing is damage, and an error.
Answers to: ReputMessageService.doReput's loop, and that of CommitLog's recovery.
"""

from collections.abc import Iterator

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.errors import StoreDamagedError
from rocketrio_protocol.message_codec import (
    PADDING_HEAD_SIZE,
    RecordHeader,
    RecordStatus,
    scan_record,
)


class LogWalk:
    """A position that moves through the appended part of the log."""

    def __init__(
        self,
        log: CommitLog,
        position: int,
        *,
        check_crc: bool = False,
        stop_at_damage: bool = False,
    ) -> None:
        self._log = log
        self._check_crc = check_crc
        self._stop_at_damage = stop_at_damage
        self.problem = ""
        """Why the walk stopped, when damage stopped it."""
        self.position = position
        """Everything before it has been handed out."""

    def records(self, max_bytes: int) -> Iterator[RecordHeader]:
        """The next records, about `max_bytes` of them; ends early where the rest of a record has yet to come.

        `position` is that of the record's end when it is handed out, `record.physical_offset` where it lies.
        """
        log = self._log
        stop = self.position + max_bytes
        while self.position < min(stop, log.max_offset):
            file = log.files.file_at(self.position)
            if file is None:
                raise StoreDamagedError(f"no file of the log holds the address {self.position}")
            base = file.start_offset
            limit = min(log.max_offset - base, file.size)
            view = file.view
            while self.position < stop:
                position = self.position - base
                record = scan_record(view, position, limit, check_crc=self._check_crc)
                if record.status is not RecordStatus.RECORD:
                    break
                if record.physical_offset != self.position:
                    self._stop(f"its record says it lies at {record.physical_offset}")
                    return
                self.position += record.size
                yield record
            else:
                return
            if record.status is RecordStatus.PADDING and position + record.size == file.size:
                self.position += record.size
                continue
            if not self._is_unfinished(record, limit - position):
                self._stop(record.problem or "zeros or wrong padding where data was appended")
            return

    def _stop(self, problem: str) -> None:
        self.problem = f"{self.position}: {problem}"
        if not self._stop_at_damage:
            raise StoreDamagedError(
                f"the commit log is damaged at {self.problem}",
                remedy="Start the broker again so that recovery cuts the log there, or copy it from"
                " the master",
            )

    @staticmethod
    def _is_unfinished(record: RecordHeader, available: int) -> bool:
        """Whether more bytes will complete what begins here: replication may cut anywhere."""
        if record.status is RecordStatus.INCOMPLETE:
            return True
        return record.status is RecordStatus.END and available < PADDING_HEAD_SIZE
