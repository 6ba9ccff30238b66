"""Gets the epochs of a log back from a peer with the same log, for a master that has lost its epoch file.

Without them readers would have to go back: nothing shows that what they read in an epoch is in this log. A slave gets
the lines of its master in the same way (resync.py).

A slave is often a little behind a master that dies. What this log has beyond it counts as of the slave's last epoch
then: a broker that knows a later one for these bytes keeps them, and says so (resync.py). One later epoch is known here
all the same: that in which this broker's own offsets count.

Invariant: lines are only taken over if the last bytes that both logs have are equal.
Answers to: nothing; a broker of Apache's controller mode without its epoch file starts with an empty one.
"""

import logging
from collections.abc import Iterator, Sequence

import attrs
import trio

from rocketrio_broker.ha.history import last_boundary
from rocketrio_broker.ha.peers import CALL_TIMEOUT
from rocketrio_broker.ha.survey import PeerView, Survey, Surveyor
from rocketrio_broker.ha.torn_end import COMPARED_SIZE, bytes_of, read_log
from rocketrio_broker.offsets.reader_epochs import parse_epoch
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.exchange import Epoch
from rocketrio_protocol.remoting.ports import Dial

logger = logging.getLogger("rocketrio_broker.ha")


async def recover_epochs(
    store: MessageStore, found: Survey, *, surveyor: Surveyor, dial: Dial, counted_in: str | None
) -> None:
    """Take over the epochs of the broker with the longest log, of those that were found and have the same one.

    `counted_in` names the last epoch that this broker knew, None if other bytes may have taken the place of its own.
    Never fails, and takes `CALL_TIMEOUT` seconds to ask, and as many for each log to read. `dial` reaches replication
    ports.
    """
    views = await surveyor.ask(found.answered, then=surveyor.epochs, limit=CALL_TIMEOUT)
    for view in sorted(views, key=_log_end, reverse=True):
        problem: Error | OSError | None = view.problem
        try:
            with trio.move_on_after(CALL_TIMEOUT):
                if view.welcome is not None and await _has_same_log(store, view, dial):
                    lines = view.welcome.epochs
                    await store.epochs.adopt([*lines, *_later(lines, counted_in, store)])
                    logger.warning(
                        "epochs recovered peer=%s known=%d", view.addr, len(store.epochs.lines)
                    )
                    return
        except (Error, OSError) as error:
            problem = error
        if problem is not None:
            logger.info("epochs not recovered peer=%s reason=%s", view.addr, problem)


def _later(lines: Sequence[Epoch], name: str | None, store: MessageStore) -> Iterator[Epoch]:
    """Yield the epoch of that name if it follows these; who wrote it, and what slaves had, is not known any more."""
    if name is None:
        return
    number, start, its_id, _ = parse_epoch(name)
    if number > lines[-1].number and lines[-1].start <= start <= store.max_physical_offset:
        yield Epoch(number=number, id=its_id, start=start)


def _log_end(view: PeerView) -> int:
    return 0 if view.welcome is None else view.welcome.end


async def _has_same_log(store: MessageStore, view: PeerView, dial: Dial) -> bool:
    """Return whether a broker's log is the same as this one, as far as both go. Raises Error."""
    log, welcome = store.commit_log, view.welcome
    end = min(log.max_offset, _log_end(view))
    if welcome is None or view.log is None or not welcome.epochs or end <= log.min_offset:
        return False
    start = last_boundary(log, log.min_offset, max(log.min_offset, end - COMPARED_SIZE))
    of_peer = attrs.evolve(view.log, end=welcome.end)
    # Without epochs only the bytes can show that both logs are one: lines of another log would hide where the two part.
    return await read_log(dial, of_peer, start, end) == bytes_of(log, start, end)
