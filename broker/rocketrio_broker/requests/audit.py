"""One line for each change that an operator makes: who, from where, what, before and after, and with which result.

    {"time": "2026-11-21T08:00:00.123Z", "server": "10.0.0.1:10911", "client": "10.0.0.7:51812", "user": "ops",
     "request": "UPDATE_AND_CREATE_TOPIC", "names": {"topic": "orders", "perm": 4}, "before": {...}, "after": {...},
     "result": "SUCCESS", "remark": null}

Every line goes to the logger `rocketrio_broker.requests.audit`, and into the file of the setting `audit_log`.

Invariant: a line has no secret: neither passwords nor keys.
Invariant: a line is written whether the change was made, refused or failed, and never decides about it.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import attrs
import msgspec
import trio

from rocketrio_broker.store.disk import Disk
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import Error
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Answer, Processor
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.remoting.tasks import every
from rocketrio_protocol.times import nearest_time

STATE_SIZE_LIMIT: Final = 64 * 1024
"""Bytes of what a request names, or of the state before or after it, in JSON; more is replaced by its size."""
WAITING_LIMIT: Final = 10_000
"""Lines that wait to be written to the file; while its disk takes none, more are left out and counted."""
RETRY_PAUSE: Final = 5.0
_SECRETS: Final = frozenset({"secret_key", "password"})

logger = logging.getLogger("rocketrio_broker.audit")


@attrs.frozen(kw_only=True)
class AuditedChange:
    """How the requests of one code are audited."""

    names: Callable[[RemotingCommand], Any]
    """Return what a request names."""
    state: Callable[[Any], Any] = lambda names: None
    """Return the state that it changes, given what it names; called before and after."""
    applies: Callable[[RemotingCommand], bool] = lambda request: True
    """Return whether this request changes anything, and comes from an operator."""


def fields_of_header(header_class: type[RequestHeader]) -> Callable[[RemotingCommand], Any]:
    """Return a function that returns the fields of a request's header, without secrets and what is not given."""

    def names(request: RemotingCommand) -> dict[str, Any]:
        fields = msgspec.structs.asdict(request.header(header_class))
        return {
            name: value
            for name, value in fields.items()
            if value is not None and name not in _SECRETS
        }

    return names


def named_settings(request: RemotingCommand) -> list[str]:
    """Return the settings that a request changes."""
    return sorted(parse_properties(request.body))


def nothing_named(request: RemotingCommand) -> list[str]:
    """Return that a request names nothing."""
    return []


class Audit:
    """The audit of one server."""

    def __init__(
        self, server: str, *, wall_clock: WallClock, disk: Disk, path: Path | None = None
    ) -> None:
        self._server = server
        self._wall_clock = wall_clock
        self._disk = disk
        self._path = path
        self._waiting: deque[str] = deque()
        self._left_out = 0
        self._wanted = trio.Event()

    def __repr__(self) -> str:
        return f"<Audit of {self._server}>"

    def over(
        self, table: Mapping[int, Processor], changes: Mapping[int, AuditedChange]
    ) -> dict[int, Processor]:
        """Return the same table with processors whose changes are audited."""
        return {
            code: self._audited(processor, changes[code]) if code in changes else processor
            for code, processor in table.items()
        }

    def _audited(self, processor: Processor, change: AuditedChange) -> Processor:
        def process(
            channel: Channel, request: RemotingCommand
        ) -> Answer | Coroutine[Any, Any, Answer]:
            if not _asked(change.applies, request):
                return processor(channel, request)
            # Before the processor, which changes the state that this notes.
            attempt = _Attempt(self, change, channel, request)
            try:
                answer = processor(channel, request)
            except Exception as fault:
                attempt.failed(fault)
                raise
            if isinstance(answer, Coroutine):
                return _AuditedWork(answer, attempt)
            attempt.answered(answer)
            return answer

        return process

    def record(self, request: RemotingCommand, channel: Channel, values: dict[str, Any]) -> None:
        """Log a line, and have it written to the file."""
        when = nearest_time(self._wall_clock.now_ms())
        line = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "server": self._server,
            "client": channel.remote_addr,
            "user": request.user,
            "request": _code_name(request.code),
            **values,
        }
        logger.info(
            "an operator's request client=%s user=%s request=%s names=%s before=%s after=%s result=%s remark=%s",
            line["client"], line["user"], line["request"],
            *(json.dumps(values[key]) for key in ("names", "before", "after")),
            values["result"], values["remark"],
        )  # fmt: skip
        if self._path is None:
            return
        if len(self._waiting) >= WAITING_LIMIT:
            self._left_out += 1
            return
        self._waiting.append(json.dumps(line))
        self._wanted.set()

    # ------------------------------------------------------------------------------------- the file

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write the lines to the file until cancelled, and then the last ones."""
        task_status.started()
        try:
            while True:
                await self._wanted.wait()
                # Before the write, so that a line which comes during it causes another one.
                self._wanted = trio.Event()
                async for _ in every(RETRY_PAUSE):
                    if await self._write():
                        break
        finally:
            with trio.CancelScope(shield=True):
                await self._write()

    async def _write(self) -> bool:
        """Write the lines that wait; return whether that worked."""
        lines = list(self._waiting)
        if not lines:
            return True
        assert self._path is not None
        data = "".join(f"{line}\n" for line in lines).encode()
        try:
            await self._disk.run(self._append, self._path, data)
        except OSError as error:
            logger.error(
                "audit log not written, will retry file=%s lines=%d left_out=%d error=%s",
                self._path, len(lines), self._left_out, error,
            )  # fmt: skip
            return False
        # Only now, and only these: lines that came meanwhile wait behind them, and a failed write is tried again.
        for _ in lines:
            self._waiting.popleft()
        return True

    def _append(self, path: Path, data: bytes) -> None:
        # Opened each time, so that other programs may rename the file.
        file = self._disk.open(path, create=True)
        try:
            file.pwrite(data, file.size)
            file.fdatasync()
        finally:
            file.close()


class _Attempt:
    """One request, from before its processor is called."""

    def __init__(
        self, audit: Audit, change: AuditedChange, channel: Channel, request: RemotingCommand
    ) -> None:
        self._audit = audit
        self._change = change
        self._channel = channel
        self._request = request
        self._names = _asked(change.names, request)
        self._before = _asked(change.state, self._names)

    def answered(self, answer: Answer) -> None:
        """Record what a processor answered; one that answers later has made its change."""
        if answer is None or answer.code == ResponseCode.SUCCESS:
            self._record("SUCCESS", None)
        else:
            self._record(_response_name(answer.code), answer.remark)

    def failed(self, fault: BaseException) -> None:
        """Record an exception of the processor."""
        if isinstance(fault, Error):
            code = ResponseCode.SYSTEM_ERROR if fault.code is None else fault.code
            self._record(_response_name(code), fault.remark or fault.what)
        else:
            self._record(type(fault).__name__, str(fault))

    def _record(self, result: str, remark: str | None) -> None:
        values = {
            "names": _plain(self._names),
            "before": _plain(self._before),
            "after": _plain(_asked(self._change.state, self._names)),
            "result": result,
            "remark": remark,
        }
        self._audit.record(self._request, self._channel, values)


class _AuditedWork(Coroutine[Any, Any, Answer]):
    """A processor that waits; closing it before it began closes the processor's coroutine, as if it stood alone."""

    def __init__(self, work: Coroutine[Any, Any, Answer], attempt: _Attempt) -> None:
        self._work = work
        self._attempt = attempt

    def __await__(self) -> Generator[Any, Any, Answer]:
        try:
            answer = yield from self._work.__await__()
        except BaseException as fault:
            self._attempt.failed(fault)
            raise
        self._attempt.answered(answer)
        return answer

    def send(self, value: Any) -> Any:
        """Continue the processor."""
        return self._work.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        """Raise an exception in the processor."""
        return self._work.throw(kind)

    def close(self) -> None:
        """End the processor, which has not begun."""
        self._work.close()


def _asked(function: Callable[[Any], Any], about: Any) -> Any:
    """Return what a function says of a request; None for one that cannot be read, which its processor refuses."""
    with suppress(Exception):
        return function(about)
    return None


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, or only its size if it is very large."""
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    size = len(msgspec.json.encode(plain))
    return {"size": size} if size > STATE_SIZE_LIMIT else plain


def _code_name(code: int) -> str:
    return RequestCode(code).name if code in RequestCode.__members__.values() else str(code)


def _response_name(code: int) -> str:
    return ResponseCode(code).name if code in ResponseCode.__members__.values() else str(code)
