"""The table of all requests, which their handlers declare, as a reader can check it: requests.md beside this file.

`python -m tests.broker.test_declaration` writes it again. A changed line of it is a changed promise to operators.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.support.declared_requests import BROKER, NAME_SERVER

from rocketrio_broker.access.needs import VALID_USER, Need
from rocketrio_broker.namesrv.processor import NameServerFacts
from rocketrio_broker.requests.declaration import (
    Audited,
    Declaration,
    answers,
    changes_of,
    handlers_of,
)
from rocketrio_broker.role.answering import ANY
from rocketrio_protocol.access.model import Action
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.channel import Channel

TABLE: Final = Path(__file__).with_name("requests.md")

HEAD: Final = """\
# What brokers and name servers declare of their requests

`python -m tests.broker.test_declaration` writes this page. It says which rights a request needs on what its
fields name, how its sender is known, in which standings of the broker it is answered, and what else is declared.
"""

_BY_BODY: Final = "by its body or a stored message"


class Facts(NameServerFacts):
    """A server with every topic, and with no message."""

    cluster_name = "cluster"

    def has_topic(self, name: str) -> bool:
        return True


def page() -> str:
    """Return the page as it should be."""
    return HEAD + "".join(
        f"\n## {title}\n\n| code | request | needs | known by | answered | beside this |\n|---|---|---|---|---|---|\n"
        + "".join(lines(declared))
        for title, declared in (("A broker", BROKER), ("A name server", NAME_SERVER))
    )


def lines(table: dict[int, Declaration]) -> Iterator[str]:
    for code, one in sorted(table.items()):
        beside = {
            "held": one.held,
            "audited": one.audit is not None,
            "a few at a time": one.limited,
            "not on the second port": not one.on_fast_port,
        }  # fmt: skip
        cells = (
            str(code),
            RequestCode(code).name,
            rights(one),
            one.known_by.name.lower(),
            "always" if one.standing is ANY else one.standing.name.lower().replace("_", " "),
            ", ".join(what for what, is_so in beside.items() if is_so),
        )
        yield f"| {' | '.join(cells)} |\n"


def rights(one: Declaration) -> str:
    request = RemotingCommand(one.code)
    if one.header is not None:
        request = RemotingCommand.request(named_by_its_fields(one.header))
    needs: Sequence[Need] | None = None
    with suppress(Exception):
        needs = one.rule(request, Facts())
    if needs is None:
        return _BY_BODY
    return (
        ", ".join(f"{each.kind}:{each.name} {actions(each.actions)}" for each in needs) or "a user"
    )


def actions(bits: int) -> str:
    return "/".join(str(each.name).capitalize() for each in Action if each & bits) or "Super"


def named_by_its_fields(header_class: type[RequestHeader]) -> RequestHeader:
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(header_class):
        kinds = (
            (field.type,) if isinstance(field.type, type) else getattr(field.type, "__args__", ())
        )
        values[field.name] = field.name if str in kinds else False if bool in kinds else 7
    return header_class(**values)


def test_table_of_requests_is_what_the_handlers_declare() -> None:
    assert TABLE.read_text() == page()


def test_code_has_one_handler() -> None:
    class One:
        @answers(RequestCode.GET_EVENTS, needs=VALID_USER)
        def events(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
            return request.response()

    class Two:
        @answers(RequestCode.GET_EVENTS, needs=VALID_USER)
        def other(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
            return request.response()

    assert handlers_of(One()).keys() == {RequestCode.GET_EVENTS}
    with pytest.raises(AssertionError, match="of another family"):
        handlers_of(One(), Two())


def test_state_is_that_of_the_object_that_answers() -> None:
    class Family:
        def __init__(self, value: int) -> None:
            self.value = value

        def _state(self, names: object) -> tuple[int, object]:
            return self.value, names

        @answers(RequestCode.GET_EVENTS, needs=VALID_USER, audit=Audited(names=repr, state=_state))
        @answers(RequestCode.GET_IDENTITY, needs=VALID_USER)
        def events(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
            return request.response()

    first, second = changes_of(handlers_of(Family(1))), changes_of(handlers_of(Family(2)))
    assert first.keys() == {RequestCode.GET_EVENTS}
    code = RequestCode.GET_EVENTS
    assert first[code].state("x") == (1, "x")
    assert second[code].state("x") == (2, "x")


if __name__ == "__main__":
    TABLE.write_text(page())
