"""Objects that are bound to one process: clients and what is opened on them. They refuse pickling and use after a fork.

A fork copies the memory and shares the sockets: two processes that write to one connection corrupt its frames, and both
would be the same member of their groups. In the child process every such object therefore gets a class that raises
on every access; no check is needed while messages are handled.

Invariant: children do not affect the parent process.
"""

import os
from typing import Any, Final, NoReturn, Self, SupportsIndex
from weakref import WeakValueDictionary

from rocketrio_protocol.errors import Error


class WrongProcessError(Error, TypeError):
    """A client, or an object that was opened on one, was moved to another process by a fork or by pickling."""

    remedy = "Open one there, with the same settings: settings, messages and queues can be pickled"


class Live:
    """Base class of objects that are bound to one process."""

    __slots__ = ()

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        made = super().__new__(cls)
        _alive[id(made)] = made
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise WrongProcessError(
            f"a {type(self).__name__} cannot be pickled: it lives in one process"
        )


# The only table per process: the child can only know from its parent's table which objects to change.
_alive: Final[WeakValueDictionary[int, Live]] = WeakValueDictionary()


def _disable_all() -> None:
    for each in list(_alive.values()):
        each.__class__ = _disabled(type(each))
    _alive.clear()


def _disabled(kind: type[Live]) -> type[Live]:
    """Return the class for an object of `kind` that is left over from before a fork."""

    def refuse(self: object, name: str) -> Any:
        if name.startswith("__"):  # The interpreter itself asks for these.
            return object.__getattribute__(self, name)
        raise WrongProcessError(
            f"this {kind.__name__} was opened before a fork, by the parent process"
        )

    def __repr__(self: object) -> str:  # noqa: N807 - it becomes a method.
        return f"<{kind.__name__} of the parent process>"

    members = {"__slots__": (), "__getattribute__": refuse, "__repr__": __repr__}
    made: type[Live] = type(kind.__name__, (kind,), members)
    return made


os.register_at_fork(after_in_child=_disable_all)
