"""Headers of transactions: END_TRANSACTION (37), CHECK_TRANSACTION_STATE (39), RESUME_CHECK_HALF_MESSAGE (323).

    producer -> broker   SEND with TRAN_MSG: the half message, which consumers do not see
    producer -> broker   37 commit, rollback or unknown, oneway
    broker -> producer   39, oneway, if no decision arrived; answered by another 37
    operator -> broker   323, to resume the checks of a half message that were given up

Answers to: EndTransactionRequestHeader, CheckTransactionStateRequestHeader; RocketMQ reference, section 2.9.
"""

from typing import ClassVar, Final

import msgspec

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import RequestHeader

TRANSACTION_UNKNOWN: Final = 0
TRANSACTION_COMMIT: Final = 8
TRANSACTION_ROLLBACK: Final = 12


class EndTransactionRequestHeader(RequestHeader):
    """Decide a transaction; the two offsets are those in the answer to the half message, or in 39."""

    code: ClassVar = RequestCode.END_TRANSACTION
    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    msg_id: str
    from_transaction_check: bool | None = None
    transaction_id: str | None = None
    topic: str | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class CheckTransactionStateRequestHeader(RequestHeader):
    """Broker to producer: ask for the decision. The body is the record of the half message, with its real topic."""

    code: ClassVar = RequestCode.CHECK_TRANSACTION_STATE
    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class ResumeCheckHalfMessageRequestHeader(RequestHeader):
    """Resume the checks of a message in TRANS_CHECK_MAX_TIME_TOPIC, given by its offset id."""

    code: ClassVar = RequestCode.RESUME_CHECK_HALF_MESSAGE
    msg_id: str | None = None
    topic: str | None = None
