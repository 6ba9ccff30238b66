"""One message that a handler has, from the moment it is handed out until it is done."""

from typing import TYPE_CHECKING

import attrs

from rocketrio_protocol.message import MessageExt

if TYPE_CHECKING:
    from rocketrio.process_queue import Chunk, ProcessQueue


@attrs.define(eq=False)
class InWork:
    """Kept by its queue, in the order of offsets, until all before it are done."""

    process_queue: "ProcessQueue"
    chunk: "Chunk"
    message: MessageExt
    is_done: bool = False
    is_stale: bool = False
    """Its queue went elsewhere meanwhile: what becomes of it moves nothing."""
