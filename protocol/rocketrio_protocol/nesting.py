"""Bounds how deeply JSON from outside is nested, before a decoder recurses into it.

A decoder recurses once for each level. Without this bound the depth that it survives is a property of the interpreter:
its recursion limit up to Python 3.13, less the frames that are already on the stack, and the size of the C stack from
3.14 on. The bound makes the answer the same everywhere, and leaves room on the stack for whatever handles the value.
"""

from typing import Final

from rocketrio_protocol.frame import Body

DEPTH_LIMIT: Final = 64
"""Objects and arrays around a value of a header or a body of the protocol; none of Apache's has more than ten."""

MESSAGE_DEPTH_LIMIT: Final = 256
"""Objects and arrays around a value in the JSON that users send to each other."""

_SHORT: Final = 4096
"""Bytes of most headers and bodies. In a longer text the brackets are seldom few, and counting is one pass more."""
_ONE_KIND: Final = bytes.maketrans(b"[]", b"{}")
_NO_MARKS: Final = bytes(set(range(256)) - set(b'[]{}"'))


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
    rounds = 0
    # A round takes away the innermost pairs, so that as many rounds shorten a valid text as levels are nested in it.
    while len(shorter := brackets.replace(b"{}", b"")) < len(brackets):
        rounds += 1
        if rounds > limit or b"{" * (limit + 1) in shorter:
            raise NestedTooDeeplyError(limit)
        brackets = shorter
    # A text that is not valid leaves some. A decoder stops at a closing one, and goes on into opening ones.
    if brackets.startswith(b"{") and rounds + len(brackets) > limit:
        raise NestedTooDeeplyError(limit)


def _brackets(text: bytes) -> bytes:
    """Return the brackets outside of strings, all of one kind."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = text.translate(_ONE_KIND, _NO_MARKS).replace(b'""', b"")
    # Only strings with brackets are left of the strings; every second piece between quotes is outside of them.
    return b"".join(marks.split(b'"')[::2])
