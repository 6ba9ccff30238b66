"""Why a request is refused: raised by the checks of a processor, answered with its code and words.

Invariant: a refusal leaves nothing behind; the request may be sent again as it is.
"""

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import Error


class Refused(Error):
    """The answer is `code` with `remark`, and no header."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark, code=code, remark=remark)
        self.response_code = code
        self.words = remark
