"""A client in another language as a child process that takes orders: a JSON line asks, a JSON line answers.

{"op": "send", "topic": "orders", "body": "one"}          {"result": {...}}          {"error": "..."}
"""

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
import trio

from tests.support.processes import LineProcess

CALL_TIMEOUT = 60.0
"""Seconds; the longest single call is a blocking pull of 20 s."""


class ClientError(Exception):
    """What the other side threw."""


@attrs.define
class LineClient:
    """One client process; each op is a method call: `client.call("send", topic="orders", body="one")`."""

    error: ClassVar[type[ClientError]] = ClientError
    _process: LineProcess | None = attrs.field(default=None, init=False)

    def start(self, argv: Sequence[str | Path], log: Path) -> None:
        self._process = LineProcess.start(argv, log=log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def call(self, op: str, **request: Any) -> Any:
        """Do one thing and return its result; `error` when the other side threw.

        Raises TimeoutError where it does not answer: what it answers later would be taken for that of the next call.
        """
        process = self._process
        assert process is not None
        line = process.ask(json.dumps({"op": op, **request}), CALL_TIMEOUT)
        if not line:
            raise TimeoutError(f"{op}: no answer within {CALL_TIMEOUT:.0f} s:\n{process.tail()}")
        answer = json.loads(line)
        if "error" in answer:
            raise self.error(f"{op} {request}: {answer['error']}")
        return answer.get("result")

    async def acall(self, op: str, **request: Any) -> Any:
        """`call` in a worker thread, so that a rocketrio client goes on meanwhile."""
        return await trio.to_thread.run_sync(partial(self.call, op, **request))

    def until(self, op: str, timeout: float = 30.0, **request: Any) -> Any:
        """Repeat a call until it does not throw: routes spread only with the next registration."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.call(op, **request)
            except ClientError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)
