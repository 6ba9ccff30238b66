"""What is checked of received bytes before they are appended: that they fit this log's files, and begin with a record.

Answers to: nothing; Java's slave appends whatever comes.
"""

from rocketrio_broker.ha.errors import FileSizeMismatchError, NoRecordError
from rocketrio_protocol.ha.stream import TransferPart
from rocketrio_protocol.record.layout import (
    MAGIC_PADDING,
    MAGICS,
    PADDING_HEAD_SIZE,
    RECORD_OVERHEAD,
    SIZE_AND_MAGIC,
)


def check_fits_file(part: TransferPart, file_size: int, master: str) -> None:
    """A transfer lies within one file of the master's, and so within one of ours."""
    if part.transfer_start // file_size != (part.transfer_end - 1) // file_size:
        raise FileSizeMismatchError(
            f"A transfer from {part.transfer_start} to {part.transfer_end} crosses the end of"
            f" a commit-log file of {file_size} bytes",
            broker_addr=master,
        )


def check_is_record(part: TransferPart, master: str) -> None:
    """Where a record must begin: the first thing received is one, or the padding at the end of a file."""
    if len(part.body) < SIZE_AND_MAGIC.size:
        return
    size, magic = SIZE_AND_MAGIC.unpack_from(part.body)
    smallest = PADDING_HEAD_SIZE if magic == MAGIC_PADDING else RECORD_OVERHEAD
    if magic not in (*MAGICS, MAGIC_PADDING) or size < smallest:
        raise NoRecordError(
            f"The master sends no record for {part.physical_offset}, but one of size {size}"
            f" and magic {magic & 0xFFFFFFFF:#x}",
            broker_addr=master,
        )
