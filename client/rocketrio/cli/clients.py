"""The command `rocketrio clients`."""

from __future__ import annotations

from typing import Final

import click

from rocketrio.cli.call import Call, reads
from rocketrio.cli.columns import Column, dashed, hidden
from rocketrio.cli.commands import Command
from rocketrio_protocol.codes import LanguageCode
from rocketrio_protocol.versions import version_name, version_number

_LANGUAGES = [code.name.lower() for code in LanguageCode]
CLIENTS: Final = (
    "client_id",
    "address",
    "language",
    Column("version", value=lambda one: version_name(one.version)),
    hidden("version_number", lambda one: one.version),
    dashed("produces"),
    dashed("consumes"),
)


class _Version(click.ParamType[int]):
    """A version of the protocol, as 4.9.7 or V5_1_0, or its number."""

    name = "VERSION"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        text = str(value)
        if text.isdecimal():
            return int(text)
        number = version_number(text)
        if number is None:
            self.fail(f"{text!r} is not a version like 4.9.7", param, ctx)
        return number


@click.command(cls=Command)
@click.option(
    "--language", type=click.Choice(_LANGUAGES, case_sensitive=False), help="Only of this language."
)
@click.option("--older-than", type=_Version(), help="Only of versions before this one, as 4.9.7.")
@reads
async def clients(call: Call, language: str | None, older_than: int | None) -> None:
    """List all clients that are connected to brokers: producers, and members of groups.

    `version` is that of the protocol, which every client reports; 4.9.7 is what rocketrio's report.

    \b
    Examples:
      rocketrio clients
      rocketrio clients --language java --older-than 4.9.0
    """

    async with call.asking("asking brokers"):
        found = await call.admin.connected_clients()
    shown = [
        one
        for one in found.clients
        if language in (None, one.language.lower())
        and (older_than is None or one.version < older_than)
    ]
    call.output.show(shown, CLIENTS)
    call.silent.update(found.silent)
