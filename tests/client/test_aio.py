"""Trio as a guest of asyncio: calls both ways, what cancels and exceptions become, and that nothing is left behind."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support import clients
from tests.support.clients import client_of
from tests.support.secured_broker import SECRET, secured
from tests.support.tls import client_context, write_files
from tests.support.waiting import eventually

from rocketrio import (
    ClosedError,
    Credentials,
    Message,
    MessageExt,
    TlsOptions,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.aio import TrioSide, open_trio
from rocketrio_broker.embedded import EmbeddedCluster

LIMIT = 120.0
"""Seconds after which a test that hangs has failed."""


def in_asyncio(main: Callable[[TrioSide], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT), open_trio() as side:
            await main(side)

    asyncio.run(run(), debug=True)


@pytest.mark.slow
def test_asyncio_sends_and_an_asyncio_handler_gets_every_message() -> None:
    handled: list[int] = []
    all_handled = asyncio.Event()

    async def handle(message: MessageExt) -> None:
        await asyncio.sleep(0)
        handled.append(int(message.body))
        if len(handled) == 40:
            all_handled.set()

    async def main(side: TrioSide) -> None:
        async with side.open(EmbeddedCluster(slaves=0)) as cluster:
            client = client_of(cluster)
            async with side.open(client) as opened:
                async with side.open(open_producer(client=opened)) as producer:
                    sends = [
                        side.run(producer.send, Message("orders", b"%d" % number))
                        for number in range(40)
                    ]
                    results = await asyncio.gather(*sends)
                    assert {result.status.name for result in results} == {"SEND_OK"}

                async def consume() -> None:  # A trio function.
                    async with open_consumer("orders", group="g", client=opened) as consumer:
                        async for message in consumer:
                            await side.on_asyncio(handle, message)

                consuming = asyncio.create_task(side.run(consume))
                await all_handled.wait()
                consuming.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await consuming

                async def left() -> int:
                    async with open_consumer("orders", group="g", client=opened) as consumer:
                        committed = [
                            await consumer.committed_offset(q) for q in consumer.assignment
                        ]
                        return 40 - sum(o for o in committed if isinstance(o, int))

                assert await side.run(left) <= 1  # The last one was in work.

    in_asyncio(main)
    assert sorted(handled) == list(range(40))


def test_asyncio_program_reads_a_topic_that_is_created_again_while_it_runs() -> None:
    handled: list[bytes] = []
    more = asyncio.Event()

    async def handle(message: MessageExt) -> None:
        await asyncio.sleep(0)
        handled.append(message.body)
        more.set()

    async def main(side: TrioSide) -> None:
        async with (
            side.open(EmbeddedCluster(slaves=0)) as cluster,
            side.open(client_of(cluster)) as opened,
            side.open(open_admin(client=opened)) as admin,
        ):

            async def send(bodies: list[bytes]) -> None:
                await side.run(partial(admin.create_topic, "orders", queues=1))
                await side.run(opened.refresh_topic_route, "orders")
                async with side.open(open_producer(client=opened)) as producer:
                    for body in bodies:
                        await side.run(producer.send, Message("orders", body))

            async def consume() -> None:  # A trio function.
                async with open_consumer("orders", group="g", client=opened) as consumer:
                    async for message in consumer:
                        await side.on_asyncio(handle, message)

            await send([b"0", b"1", b"2"])
            consuming = asyncio.create_task(side.run(consume))
            while len(handled) < 3:
                await more.wait()
                more.clear()
            await side.run(admin.delete_topic, "orders")
            await send([b"new 0", b"new 1", b"new 2", b"new 3"])
            while len(handled) < 7:
                await more.wait()
                more.clear()
            consuming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await consuming

    in_asyncio(main)
    assert handled == [b"0", b"1", b"2", b"new 0", b"new 1", b"new 2", b"new 3"]


def test_asyncio_program_uses_tls_and_keys_that_an_asyncio_function_gives(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    settings = {
        "tls_certificate_file": files.certificate,
        "tls_key_file": files.key,
        "peer_tls_authority_file": files.authority,
    }
    given = [Credentials("user", "the-former-secret")]

    async def from_a_vault() -> Credentials:
        await asyncio.sleep(0)
        return given.pop() if len(given) == 1 else Credentials("user", SECRET)

    async def main(side: TrioSide) -> None:
        async with side.open(secured(tmp_path, tls=client_context(), **settings)) as here:
            await side.run(here.add_user, "user", {"Topic:orders": ["Pub", "Create"]})
            producing = clients.open_producer(
                name_servers=here.cluster.name_servers,
                dial=here.cluster.dial,
                credentials=lambda: side.on_asyncio(from_a_vault),
                tls=TlsOptions(files.authority),
            )
            async with side.open(producing) as producer:
                sent = await side.run(producer.send, Message("orders", b"x"))
                assert sent.status.name == "SEND_OK"
            assert given == []

    in_asyncio(main)


def test_exceptions_come_out_on_the_other_side_as_they_are() -> None:
    async def trio_fails(error: Exception, *, by: str) -> None:
        await trio.lowlevel.checkpoint()
        error.add_note(by)
        raise error

    async def asyncio_fails(error: Exception) -> None:
        await asyncio.sleep(0)
        raise error

    async def main(side: TrioSide) -> None:
        error = LookupError("from trio")
        with pytest.raises(LookupError) as caught:
            await side.run(partial(trio_fails, by="hand"), error)
        assert caught.value is error
        assert error.__notes__ == ["hand"]
        with pytest.raises(ZeroDivisionError):
            await side.run(side.on_asyncio, asyncio_fails, ZeroDivisionError())

    in_asyncio(main)


def test_cancel_in_asyncio_waits_for_the_end_of_the_trio_function() -> None:
    events: list[str] = []

    begun = asyncio.Event()

    async def slow_to_end() -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.05)
                events.append("trio has ended")

    async def main(side: TrioSide) -> None:
        task = asyncio.create_task(side.run(slow_to_end))
        await begun.wait()
        for _ in range(3):  # However often.
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        events.append("asyncio goes on")

    in_asyncio(main)
    assert events == ["trio has ended", "asyncio goes on"]


def test_cancel_in_trio_waits_for_the_end_of_the_asyncio_function() -> None:
    events: list[str] = []

    async def slow_to_end() -> None:
        events.append("asyncio has begun")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            events.append("asyncio has ended")

    async def main(side: TrioSide) -> None:
        async def bounded() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(side.on_asyncio, slow_to_end)
                await eventually(lambda: events, LIMIT, interval=0.001)
                nursery.cancel_scope.cancel()
            events.append("trio goes on")

        await side.run(bounded)

    in_asyncio(main)
    assert events == ["asyncio has begun", "asyncio has ended", "trio goes on"]


def test_handler_cancelled_by_other_code_is_an_error() -> None:
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    async def main(side: TrioSide) -> None:
        with pytest.raises(ClosedError, match="cancelled on the asyncio side"):
            await side.run(side.on_asyncio, cancels_itself)

    in_asyncio(main)


class Held:
    """A trio context manager that remembers how it was left."""

    def __init__(self) -> None:
        self.left_by: BaseException | str = "not"
        self.fail = trio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[str]:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.watch)
                yield "value"
                nursery.cancel_scope.cancel()
        except BaseException as error:
            self.left_by = error
            raise
        self.left_by = "end"

    async def watch(self) -> None:
        await self.fail.wait()
        raise LookupError("in the background")


def test_context_manager_is_left_at_the_end_of_the_block() -> None:
    held = Held()

    async def main(side: TrioSide) -> None:
        async with side.open(held.open()) as value:
            assert (value, held.left_by) == ("value", "not")
        assert held.left_by == "end"

    in_asyncio(main)


def test_context_manager_sees_the_exception_of_the_block() -> None:
    held = Held()

    async def main(side: TrioSide) -> None:
        with pytest.raises(ExceptionGroup) as caught:  # Its nursery wraps it.
            async with side.open(held.open()):
                raise LookupError
        assert caught.group_contains(LookupError)
        assert caught.value is held.left_by

    in_asyncio(main)


def test_context_manager_sees_a_cancel_as_a_cancel() -> None:
    held = Held()

    async def main(side: TrioSide) -> None:
        async def hold() -> None:
            async with asyncio.timeout(None) as limit, side.open(held.open()):
                limit.reschedule(0)  # It is long past.
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await hold()
        assert isinstance(held.left_by, BaseExceptionGroup)
        assert {type(error) for error in held.left_by.exceptions} == {trio.Cancelled}

    in_asyncio(main)


def test_block_is_cancelled_when_what_it_holds_fails() -> None:
    held = Held()

    async def main(side: TrioSide) -> None:
        async def fail() -> None:
            held.fail.set()

        async def hold() -> None:
            async with side.open(held.open()):
                await side.run(fail)
                await asyncio.Event().wait()

        with pytest.raises(ExceptionGroup) as caught:
            await hold()
        assert caught.group_contains(LookupError)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    in_asyncio(main)


def test_context_manager_that_cannot_be_entered_raises_the_reason() -> None:
    @asynccontextmanager
    async def refuse() -> AsyncGenerator[None]:
        raise LookupError("no cluster")
        yield

    async def main(side: TrioSide) -> None:
        with pytest.raises(LookupError, match="no cluster"):
            async with side.open(refuse()):
                raise AssertionError

    in_asyncio(main)


def test_end_of_the_block_ends_the_trio_side_and_its_waiters() -> None:
    begun, ended = asyncio.Event(), list[str]()

    async def wait() -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.append("trio")

    async def run() -> None:
        async with open_trio() as side:
            task = asyncio.create_task(side.run(wait))
            await begun.wait()
        assert ended == ["trio"]
        with pytest.raises(ClosedError):
            await task
        with pytest.raises(ClosedError):
            await side.run(trio.sleep, 0)

    asyncio.run(run(), debug=True)


def test_cancelled_block_ends_the_trio_side_too() -> None:
    ended: list[str] = []

    async def run() -> None:
        async with asyncio.timeout(None) as limit, open_trio() as side:

            async def wait() -> None:
                limit.reschedule(0)  # It is long past.
                try:
                    await trio.sleep_forever()
                finally:
                    ended.append("trio")

            await side.run(wait)

    with pytest.raises(TimeoutError):
        asyncio.run(run(), debug=True)
    assert ended == ["trio"]
