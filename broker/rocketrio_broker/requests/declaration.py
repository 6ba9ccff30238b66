"""A request is declared at its handler, the method that answers it: these are all facts about its code.

    @answers(
        admin.DeleteTopicInBrokerRequestHeader,     the header class, which has code, fields, answer and body
        needs=T(DELETE), known_by=ADDRESS,          the rights of its sender, and how that is known (`access/needs.py`)
        standing=SERVING,                           in which standings it is answered (`role/answering.py`)
        held=True,                                  whether it waits for the end of a hand-over (`role/held_writes.py`)
        audit=Audited(state=...),                   which line the audit writes of it (`audit.py`)
    )
    async def delete_topic(self, channel, request): ...

What is not declared is the most cautious: a proof is needed, and nothing is held, audited or refused by standing. A
server collects its table from the objects that it was built with; no module keeps one.

Invariant: a code has one handler.
"""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from rocketrio_broker.access.needs import PROOF, KnownBy, Needs, Rule, rule_of
from rocketrio_broker.requests.audit import AuditedChange, fields_of_header
from rocketrio_broker.role.answering import ANY, AnsweredIn
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Answer, Processor

_DECLARED: Final = "declared_requests"

Method: TypeAlias = Callable[[Any, Channel, RemotingCommand], Answer | Coroutine[Any, Any, Answer]]
MethodT = TypeVar("MethodT", bound=Method)


@attrs.frozen(kw_only=True)
class Audited:
    """How the requests of a code are audited."""

    names: Callable[[RemotingCommand], Any] | None = None
    """Return what a request names; None for the fields of its header."""
    state: Callable[[Any, Any], Any] = lambda family, names: None
    """Return, given the handler's object and what the request names, the state that it changes."""
    applies: Callable[[RemotingCommand], bool] = lambda request: True
    """Return whether this request changes anything, and comes from an operator."""


@attrs.frozen(kw_only=True)
class Declaration:
    """What a handler declares of one code."""

    code: int
    header: type[RequestHeader] | None
    """The class of its header; None for a code without fields that only other programs send."""
    rule: Rule
    known_by: KnownBy
    standing: AnsweredIn
    held: bool
    audit: Audited | None
    limited: bool
    """Whether its answer is long, so that only a few are made at the same time (`processors/long_answers.py`)."""
    on_fast_port: bool
    """Whether the second listener answers it too."""


@attrs.frozen
class Handler:
    """A declared code, and the method of one object that answers it."""

    declared: Declaration
    process: Processor
    family: object

    @property
    def change(self) -> AuditedChange | None:
        """How it is audited, or None."""
        audit, header = self.declared.audit, self.declared.header
        if audit is None:
            return None
        names = audit.names
        if names is None:
            assert header is not None, "a code without a header names nothing"
            names = fields_of_header(header)
        return AuditedChange(
            names=names, state=partial(audit.state, self.family), applies=audit.applies
        )


Handlers: TypeAlias = Mapping[int, Handler]


def answers(
    *requests: type[RequestHeader] | RequestCode,
    needs: Needs,
    known_by: KnownBy = PROOF,
    standing: AnsweredIn = ANY,
    held: bool = False,
    audit: Audited | None = None,
    limited: bool = False,
    on_fast_port: bool = True,
) -> Callable[[MethodT], MethodT]:
    """Declare the requests that a method answers; see `Declaration` for what the arguments mean."""

    def declare(method: MethodT) -> MethodT:
        known: tuple[Declaration, ...] = getattr(method, _DECLARED, ())
        for request in requests:
            header = None if isinstance(request, RequestCode) else request
            declared = Declaration(
                code=request if isinstance(request, RequestCode) else request.code,
                header=header,
                rule=rule_of(needs, header),
                known_by=known_by,
                standing=standing,
                held=held,
                audit=audit,
                limited=limited,
                on_fast_port=on_fast_port,
            )
            known = (*known, declared)
        setattr(method, _DECLARED, known)
        return method

    return declare


def declarations_of(family: type) -> Iterator[tuple[str, Declaration]]:
    """Yield what a class declares, each with the name of its method."""
    for name, method in vars(family).items():
        declared: tuple[Declaration, ...] = getattr(method, _DECLARED, ())
        for each in declared:
            yield name, each


def handlers_of(*families: object) -> dict[int, Handler]:
    """Return the handlers that the classes of these objects declare, by code."""
    found: dict[int, Handler] = {}
    for family in families:
        for name, declared in declarations_of(type(family)):
            assert declared.code not in found, f"{family} answers a code of another family"
            found[declared.code] = Handler(declared, getattr(family, name), family)
    return found


def changes_of(handlers: Handlers) -> dict[int, AuditedChange]:
    """Return how requests are audited, by code."""
    return {code: each.change for code, each in handlers.items() if each.change is not None}
