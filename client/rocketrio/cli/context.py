"""The commands `rocketrio context add|edit|list|show|use|unuse|rename|copy|remove|check`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import click

from rocketrio.cli.call import Call, local, reads_files
from rocketrio.cli.columns import Column
from rocketrio.cli.commands import CallableT, Group
from rocketrio.cli.contexts import (
    Context,
    Contexts,
    contexts_path,
    read_contexts,
    write_contexts,
)
from rocketrio_protocol.errors import ConfigError, Error

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
T = TypeVar("T")


class _ContextName(click.ParamType[str]):
    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _NAME.fullmatch(str(value)):
            self.fail(f"{value!r} has other characters than letters, digits and . _ -", param, ctx)
        return str(value)


_NAME_TYPE: Final = _ContextName()


@click.group(
    cls=Group,
    most_used=("list", "use lab", "add prod --namesrv 10.0.0.1:9876 --protected"),
)
def context() -> None:
    """Name clusters, with the account to use there, and select one.

    Commands use --namesrv, else the context of --context or ROCKETRIO_CONTEXT, else NAMESRV_ADDR, else the selected
    context. A context that is protected asks for its name before anything is changed.

    \b
    Examples:
      rocketrio context add lab --namesrv 10.0.0.9:9876 --use
      rocketrio context add prod --namesrv '10.0.0.1:9876;10.0.0.2:9876' --protected
      rocketrio lag --context prod
      rocketrio context check
    """


def _settings(function: CallableT) -> CallableT:
    """Add the option of each setting of a context; None if it is not given."""
    for field in reversed(attrs.fields(Context)):
        off, option = field.metadata["off"], field.metadata["option"]
        name = f"--{field.name.replace('_', '-')}"
        function = click.option(f"{name}/{off}" if off else name, default=None, **option)(function)
    return function


@context.command()
@click.argument("name", type=_NAME_TYPE)
@_settings
@click.option("--use", "selects", is_flag=True, help="Select it.")
@local
def add(name: str, selects: bool, **fields: Any) -> None:
    """Add the context NAME.

    \b
    Example:
      rocketrio context add prod --namesrv 10.0.0.1:9876 --access-key ops --secret-file ~/.rocketrio-prod
    """
    given = {key: value for key, value in fields.items() if value is not None}
    if "namesrv" not in given:
        raise click.UsageError("a context needs --namesrv HOST:PORT")
    contexts = _read()
    _must_be_free(contexts, name)
    made = _made(lambda: Context(**given))
    _write(contexts, {**contexts.by_name, name: made}, name if selects else contexts.selected)
    click.echo(f"added {name}" + (", and selected it" if selects else ""))


@context.command()
@click.argument("name", type=_NAME_TYPE)
@_settings
@local
def edit(name: str, **fields: Any) -> None:
    """Change the given settings of the context NAME; an empty text removes one.

    \b
    Examples:
      rocketrio context edit prod --protected
      rocketrio context edit prod --description ''
    """
    given = {key: value for key, value in fields.items() if value is not None}
    if not given:
        raise click.UsageError(f"give a setting to change; the file is {contexts_path()}")
    contexts = _read()
    before = _named(contexts, name)
    made = _made(lambda: attrs.evolve(before, **given))
    _write(contexts, {**contexts.by_name, name: made}, contexts.selected)
    click.echo(f"changed {name}")


@context.command(name="list")
@reads_files
def list_contexts(call: Call) -> None:
    """List the contexts."""
    contexts = _read()
    call.output.show(
        [
            one.shown(name, selected=name == contexts.selected)
            for name, one in contexts.by_name.items()
        ],
        (
            "name",
            "namesrv",
            Column("protected", cell=lambda row: "yes" if row["protected"] else ""),
            Column("selected", cell=lambda row: "*" if row["selected"] else ""),
            "description",
        ),
        people=None
        if contexts.by_name
        else "there is no context; `rocketrio context add` makes one",
    )


@context.command()
@click.argument("name", type=_NAME_TYPE, required=False)
@reads_files
def show(call: Call, name: str | None) -> None:
    """Show the context NAME, or the selected one, without its secret."""
    contexts = _read()
    if name is None and contexts.selected is None:
        raise click.UsageError("no context is selected; give a NAME")
    name = name or str(contexts.selected)
    one = _named(contexts, name)
    row = one.shown(name, selected=name == contexts.selected)
    width = max(map(len, row))
    call.output.show(
        [row],
        document=lambda rows: rows[0],
        people=[f"{key:<{width}}  {_text(value)}" for key, value in row.items()],
    )


@context.command()
@click.argument("name", type=_NAME_TYPE)
@local
def use(name: str) -> None:
    """Select the context NAME: commands without other directions use it."""
    contexts = _read()
    _named(contexts, name)
    _write(contexts, contexts.by_name, name)
    click.echo(f"selected {name}")


@context.command()
@local
def unuse() -> None:
    """Select no context."""
    contexts = _read()
    _write(contexts, contexts.by_name, None)
    click.echo("no context is selected")


@context.command()
@click.argument("name", type=_NAME_TYPE)
@click.argument("new", type=_NAME_TYPE)
@local
def rename(name: str, new: str) -> None:
    """Give the context NAME the name NEW."""
    contexts = _read()
    _named(contexts, name)
    _must_be_free(contexts, new)
    by_name = {new if key == name else key: one for key, one in contexts.by_name.items()}
    _write(contexts, by_name, new if contexts.selected == name else contexts.selected)
    click.echo(f"renamed {name} to {new}")


@context.command()
@click.argument("name", type=_NAME_TYPE)
@click.argument("new", type=_NAME_TYPE)
@local
def copy(name: str, new: str) -> None:
    """Copy the context NAME as NEW."""
    contexts = _read()
    one = _named(contexts, name)
    _must_be_free(contexts, new)
    _write(contexts, {**contexts.by_name, new: one}, contexts.selected)
    click.echo(f"copied {name} to {new}")


@context.command()
@click.argument("name", type=_NAME_TYPE)
@local
def remove(name: str) -> None:
    """Remove the context NAME; its cluster, and files that it names, stay as they are."""
    contexts = _read()
    _named(contexts, name)
    left = {key: one for key, one in contexts.by_name.items() if key != name}
    _write(contexts, left, None if contexts.selected == name else contexts.selected)
    click.echo(f"removed {name}")


@context.command()
@click.argument("names", type=_NAME_TYPE, nargs=-1, metavar="[NAME]...")
@reads_files
async def check(call: Call, names: tuple[str, ...]) -> None:
    """Ask every name server and broker of contexts, all or those named; exit with 1 if one does not answer.

    \b
    Example:
      rocketrio context check prod
    """
    import trio

    contexts = _read()
    chosen = {name: _named(contexts, name) for name in names or contexts.by_name}
    if not chosen:
        raise click.UsageError("there is no context; `rocketrio context add` makes one")
    rows: list[dict[str, Any]] = []

    async with trio.open_nursery() as nursery:
        for name, one in chosen.items():
            nursery.start_soon(_check, name, one, rows)
    rows.sort(key=lambda row: (list(chosen).index(row["context"]), row["what"] != "name server"))
    milliseconds = Column(
        "milliseconds",
        cell=lambda row: "-" if row["milliseconds"] is None else f"{row['milliseconds']:.1f}",
        right=True,
    )
    problem = Column("problem", cell=lambda row: row["problem"] or "")
    call.output.show(rows, ("context", "what", "address", milliseconds, problem))
    if any(row["problem"] for row in rows):
        sys.exit(1)


async def _check(name: str, one: Context, rows: list[dict[str, Any]]) -> None:
    import trio

    from rocketrio.admin.admin import open_admin

    def row(what: str, address: str, began: float, problem: Error | None) -> None:
        spent = (trio.current_time() - began) * 1000
        rows.append(
            {
                "context": name,
                "what": what,
                "address": address,
                "milliseconds": None if problem else spent,
                "problem": None if problem is None else " ".join(str(problem).split()),
            }
        )

    brokers: set[str] = set()
    started = trio.current_time()

    async def ask_name_server(admin: Admin, address: str) -> None:
        servers = attrs.evolve(admin.client.name_servers, addresses=(address,))
        began = trio.current_time()
        [found] = (await servers.cluster_info_of_each()).values()
        row("name server", address, began, found if isinstance(found, Error) else None)
        if not isinstance(found, Error):
            for broker in found.broker_addr_table.values():
                brokers.update(broker.broker_addrs.values())

    async def ask_broker(admin: Admin, address: str) -> None:
        began = trio.current_time()
        problem = None
        try:
            await admin.calls.runtime_info(address)
        except Error as error:
            problem = error
        row("broker", address, began, problem)

    try:
        async with open_admin(**one.client_options()) as admin:
            async with trio.open_nursery() as nursery:
                for address in admin.client.name_servers.addresses:
                    nursery.start_soon(ask_name_server, admin, address)
            async with trio.open_nursery() as nursery:
                for address in sorted(brokers):
                    nursery.start_soon(ask_broker, admin, address)
    except Error as error:  # Of the account, or of the files of TLS.
        row("settings", one.namesrv, started, error)


# ------------------------------------------------------------------------------------------ parts


def _read() -> Contexts:

    return _made(lambda: read_contexts(contexts_path()))


def _write(contexts: Contexts, by_name: Mapping[str, Context], selected: str | None) -> None:

    write_contexts(contexts_path(), Contexts(by_name, selected))


def _named(contexts: Contexts, name: str) -> Context:
    return _made(lambda: contexts.named(name))


def _must_be_free(contexts: Contexts, name: str) -> None:
    if name in contexts.by_name:
        raise click.UsageError(
            f"there is a context {name} already; `rocketrio context edit` changes it"
        )


def _made(make: Callable[[], T]) -> T:
    try:
        return make()
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if value else "-"
