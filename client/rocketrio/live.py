"""Objects that live in one process: clients and what is opened on them. They refuse to be pickled, and to be used after
a fork.

A fork copies the memory and shares the sockets: two processes that write to one connection destroy its frames, and
both would be one member of their groups. In the child every such object is therefore changed into one that raises
whatever is asked of it; nothing is looked at on the way of a message.

Invariant: the parent notices nothing of its children.
"""

import os
from typing import Any, Final, NoReturn, SupportsIndex
from weakref import WeakValueDictionary

from rocketrio_protocol.errors import Error


class WrongProcess(Error, TypeError):
    """A client, or what was opened on one, was taken to another process: by a fork, or by pickling."""

    remedy = "Open one there, with the same settings: settings, messages and queues can be pickled"


class Live:
    """Base of what lives in one process; each instance calls `born`."""

    __slots__ = ()

    def born(self) -> None:
        """Say that it is here; at the end of the constructor."""
        _alive[id(self)] = self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise WrongProcess(f"a {type(self).__name__} cannot be pickled: it lives in one process")


# The one table of the process: what to change in a child can only be known by what its parent had.
_alive: Final[WeakValueDictionary[int, Live]] = WeakValueDictionary()


def _strand() -> None:
    for each in list(_alive.values()):
        each.__class__ = _stranded(type(each))
    _alive.clear()


def _stranded(kind: type[Live]) -> type[Live]:
    """The class of an object of `kind` that was left behind by a fork."""

    def refuse(self: object, name: str) -> Any:
        if name.startswith("__"):  # What the interpreter itself asks for.
            return object.__getattribute__(self, name)
        raise WrongProcess(f"this {kind.__name__} was opened before a fork, by the parent process")

    def __repr__(self: object) -> str:  # noqa: N807 - it becomes a method.
        return f"<{kind.__name__} of the parent process>"

    members = {"__slots__": (), "__getattribute__": refuse, "__repr__": __repr__}
    made: type[Live] = type(kind.__name__, (kind,), members)
    return made


os.register_at_fork(after_in_child=_strand)
