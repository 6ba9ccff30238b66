"""Bounds how deeply JSON from outside is nested, before a decoder recurses into it.

A decoder recurses once for each level. Without this bound the depth that it survives is a property of the interpreter:
its recursion limit up to Python 3.13, less the frames that are already on the stack, and the size of the C stack from
3.14 on. The bound makes the answer the same everywhere, and leaves room on the stack for whatever handles the value.
"""

from itertools import accumulate
from typing import Final

from rocketrio_protocol.frame import Body

DEPTH_LIMIT: Final = 64
"""Objects and arrays around a value of a header or a body of the protocol; none of Apache's has more than ten."""

MESSAGE_DEPTH_LIMIT: Final = 256
"""Objects and arrays around a value in the JSON that users send to each other."""

_NO_MARKS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_ROUNDS: Final = 8
_SHORT: Final = 4096
"""Bytes of most headers and bodies. In a longer text the brackets are seldom few, and counting is one pass more."""
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class NestedTooDeeplyError(ValueError):
    """The text has more objects and arrays inside each other than the limit; it says how many are allowed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} objects and arrays are nested")


def check_depth(data: Body, limit: int = DEPTH_LIMIT) -> None:
    """Raise NestedTooDeeplyError for a JSON text in which more objects and arrays are nested than the limit.

    The text need not be valid: it is counted exactly as far as a decoder can read it.
    """
    text = data if isinstance(data, bytes) else bytes(data)
    # The place of the last bracket bounds their number, and is found in a tenth of the time that counting takes.
    if text.rfind(b"{") < limit > text.rfind(b"["):
        return
    if len(text) <= _SHORT and text.count(b"{") + text.count(b"[") <= limit:
        return
    brackets = _brackets(text)
    if limit < 2 * _ROUNDS or not _is_flat(brackets):
        depths = accumulate(map(_STEPS.__getitem__, brackets))
        if any(map(limit.__lt__, depths)):  # It ends at the first that is too deep.
            raise NestedTooDeeplyError(limit)


def _brackets(text: bytes) -> bytes:
    """Return the brackets outside of strings."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = text.translate(None, _NO_MARKS).replace(b'""', b"")
    # Only strings with brackets are left of the strings; every second piece between quotes is outside of them.
    return b"".join(marks.split(b'"')[::2])


def _is_flat(brackets: bytes) -> bool:
    """Return whether few levels are proved to be nested, as in every real table; this is 20 times faster than counting.

    One round takes away one or two levels of pairs.
    """
    for _ in range(_ROUNDS):
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if not brackets:
            return True
    return False
