"""The state of the check of a broker's log: the body of the answer to 71021, a rocketrio extension."""

from typing import Self

import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.frame import Body


class LogProblem(msgspec.Struct, rename="camel"):
    """One problem of the log."""

    physical_offset: int
    problem: str


class LogCheckStatus(msgspec.Struct, rename="camel", kw_only=True):
    """The current pass of the check, or the last one."""

    number: int = 0
    """The number of the pass since the broker's start; 0 before the first."""
    is_running: bool = False
    begin: int = 0
    """The offset at which the pass began."""
    position: int = 0
    """The offset up to which the log is checked."""
    end: int = 0
    """The end of the log when the pass began."""
    is_slave: bool = False
    master_addr: str | None = None
    """The master whose log was compared with this slave's, or None."""
    compared_bytes: int = 0
    problem_count: int = 0
    problems: list[LogProblem] = []
    """The first problems."""
    finished_age: float | None = None
    """Seconds since the end of the last complete pass; None if there was none."""

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Read a body. Raises RemoteProtocolError."""
        return fastjson.loads(body, cls, what="log check")

    def to_json(self) -> bytes:
        """As fastjson writes it."""
        return fastjson.dumps(self)
