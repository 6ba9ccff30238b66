"""Why a request is refused: raised by the checks of a processor, answered with its code and remark.

Invariant: a refused request changes nothing; it may be sent again unchanged.
"""

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import Error


class RefusedError(Error):
    """A request is refused with `code` and `remark`, and without a response header."""

    code: ResponseCode
    remark: str

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark, code=code, remark=remark)
