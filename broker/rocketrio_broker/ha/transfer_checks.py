"""Checks received bytes before they are appended: they must fit this log's files, and begin with a record.

Answers to: nothing; Java's slave appends whatever it receives.
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
    """Check that a transfer lies within one file of this size. Raises FileSizeMismatchError.

    It lies within one file of the master's, so it does if the sizes are equal.
    """
    if part.transfer_start // file_size != (part.transfer_end - 1) // file_size:
        raise FileSizeMismatchError(
            f"A transfer from {part.transfer_start} to {part.transfer_end} crosses the end of"
            f" a commit-log file of {file_size} bytes",
            broker_addr=master,
        )


def check_is_record(part: TransferPart, master: str) -> None:
    """Check that the first bytes, where a record must begin, begin one or the padding at a file's end.

    Raises NoRecordError.
    """
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
