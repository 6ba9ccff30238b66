"""The command `rocketrio clients`."""

import click

from rocketrio.admin.clients import (
    ConnectedClient,
    ConnectedClients,
    connected_clients,
)
from rocketrio.cli.asking import asking
from rocketrio.cli.cells import dashed
from rocketrio.cli.commands import Command
from rocketrio.cli.common import client_options, end_in_part, reads, run
from rocketrio.cli.output import Output
from rocketrio.connect import ClientOptions
from rocketrio_protocol.codes import LanguageCode
from rocketrio_protocol.versions import version_name, version_number

_LANGUAGES = [code.name.lower() for code in LanguageCode]


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
@client_options
def clients(
    language: str | None,
    older_than: int | None,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """List all clients that are connected to brokers: producers, and members of groups.

    `version` is that of the protocol, which every client reports; 4.9.7 is what rocketrio's report.

    \b
    Examples:
      rocketrio clients
      rocketrio clients --language java --older-than 4.9.0
    """
    found: list[ConnectedClients] = []

    async def work() -> None:
        async with asking("asking brokers", client) as admin:
            found.append(await connected_clients(admin))

    run(work, verbose=verbose)
    shown = [
        one
        for one in found[0].clients
        if language in (None, one.language.lower())
        and (older_than is None or one.version < older_than)
    ]
    output.show(
        [client_row(one) for one in shown],
        ("client_id", "address", "language", "version", dashed("produces"), dashed("consumes")),
    )
    end_in_part(found[0].silent)


def client_row(one: ConnectedClient) -> dict[str, object]:
    """Return a row of the tables of clients and producers."""
    return {
        "client_id": one.client_id,
        "address": one.address,
        "language": one.language,
        "version": version_name(one.version),
        "version_number": one.version,
        "produces": list(one.produces),
        "consumes": list(one.consumes),
    }
