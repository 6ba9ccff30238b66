"""How the check of a broker's whole log stands: body of the answer to 71021, which is ours alone."""

from typing import Self

import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.frame import Body


class LogProblem(msgspec.Struct, rename="camel"):
    """Something wrong with the log."""

    physical_offset: int
    problem: str


class LogCheckStatus(msgspec.Struct, rename="camel", kw_only=True):
    """The pass that runs, or the last one that ended."""

    number: int = 0
    """Counts the passes since the broker's start; 0 before the first."""
    is_running: bool = False
    begin: int = 0
    """The first address of the pass."""
    position: int = 0
    """Everything before it is checked."""
    end: int = 0
    """Where the log ended when the pass began."""
    is_slave: bool = False
    master_addr: str | None = None
    """The master whose log was compared with a slave's; None where none was."""
    compared_bytes: int = 0
    problem_count: int = 0
    problems: list[LogProblem] = []
    """The first of them."""
    finished_age: float | None = None
    """Seconds since the last pass that went through ended; None before it."""

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Read a body. Raises RemoteProtocolError."""
        return fastjson.loads(body, cls, what="log check")

    def to_json(self) -> bytes:
        """As fastjson writes it."""
        return fastjson.dumps(self)
