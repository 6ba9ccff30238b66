"""One message that a handler has, and its place in its queue until all before it are done.

A place outlives its message: of what is done behind a message that is not, only an offset is kept.
"""

from typing import TYPE_CHECKING, Optional

import attrs

from rocketrio_protocol.message import MessageExt

if TYPE_CHECKING:
    from rocketrio.consuming.process_queue import Chunk, ProcessQueue


@attrs.define(eq=False)
class Place:
    """In the order of offsets."""

    offset: int
    """What is committed when this one is the lowest that is not done."""
    work: Optional["InWork"] = None
    """None: it is done."""


@attrs.define(eq=False)
class InWork:
    """One message, from the moment it is handed out until its handler has finished."""

    process_queue: "ProcessQueue"
    chunk: "Chunk"
    message: MessageExt
    place: Place
    is_stale: bool = False
    """Its queue went elsewhere meanwhile: what becomes of it moves nothing."""
