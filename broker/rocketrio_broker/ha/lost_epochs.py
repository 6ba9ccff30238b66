"""Gets the epochs of a log back from a peer with the same log, for a master that has lost its epoch file.

Without them readers would have to go back: nothing shows that what they read in an epoch is in this log. A slave gets
the lines of its master in the same way (resync.py).

Invariant: lines are only taken over if the peer has all of this log, and the last bytes of both are equal.
Answers to: nothing; a broker of Apache's controller mode without its epoch file starts with an empty one.
"""

import logging
from collections.abc import Sequence

import trio

from rocketrio_broker.ha.exchange import ask_welcome, greeting_of
from rocketrio_broker.ha.history import last_boundary
from rocketrio_broker.ha.peers import CALL_TIMEOUT, Peers, ask_replica
from rocketrio_broker.ha.torn_end import COMPARED_SIZE, PeerLog, bytes_of, read_log
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.exchange import Welcome
from rocketrio_protocol.remoting.ports import Dial

logger = logging.getLogger("rocketrio_broker.ha")


async def recover_epochs(
    store: MessageStore, addrs: Sequence[str], *, peers: Peers, dial: Dial
) -> None:
    """Take over the epochs of the first of these peers that has the same log.

    Never fails, and takes `CALL_TIMEOUT` seconds for each peer at most. `dial` reaches replication ports.
    """
    for addr in addrs:
        try:
            with trio.move_on_after(CALL_TIMEOUT):
                welcome = await _same_log(store, addr, peers, dial)
                if welcome is not None:
                    await store.epochs.adopt(welcome.epochs)
                    logger.warning(
                        "epochs recovered peer=%s known=%d", addr, len(store.epochs.lines)
                    )
                    return
        except (Error, OSError) as error:
            logger.info("epochs not recovered peer=%s reason=%s", addr, error)


async def _same_log(store: MessageStore, addr: str, peers: Peers, dial: Dial) -> Welcome | None:
    """Return the greeting of a peer that has all of this log, None if it has not. Raises Error."""
    replica = await ask_replica(peers, addr)
    if replica is None or not replica.knows_epochs:
        return None
    transport = await dial(replica.ha_addr)
    try:
        welcome = await ask_welcome(transport, greeting_of(store, asks_only=True))
    finally:
        await transport.aclose()
    log = store.commit_log
    end = log.max_offset
    if not welcome.epochs or welcome.end < end:
        return None
    start = last_boundary(log, log.min_offset, max(log.min_offset, end - COMPARED_SIZE))
    data = await read_log(dial, PeerLog(replica.ha_addr, welcome.end, True), start, end)
    return welcome if data == bytes_of(log, start, end) else None
