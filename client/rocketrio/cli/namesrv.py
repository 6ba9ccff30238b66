"""The commands `rocketrio namesrv show|settings|kv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from rocketrio.cli.call import Call, changes, reads
from rocketrio.cli.cluster_options import may_be_lost
from rocketrio.cli.columns import Column, dashed, hidden
from rocketrio.cli.commands import Group
from rocketrio_protocol.errors import Error

if TYPE_CHECKING:
    pass

_SERVERS: Final = (
    "address",
    Column(
        "milliseconds",
        "ms",
        value=lambda one: None if one.seconds is None else round(one.seconds * 1000, 1),
    ),
    "brokers",
    dashed("differs", unknown=True, value=lambda one: None if one.problem else one.differs),
    hidden("problem"),
)
"""The columns of `namesrv show`."""


@click.group(cls=Group, most_used=("show", "kv get ORDER_TOPIC_CONFIG", "settings"))
def namesrv() -> None:
    """Show name servers and whether they agree, and change their settings and texts.

    Name servers exchange nothing: every command asks each of them.

    \b
    Examples:
      rocketrio namesrv show
      rocketrio namesrv settings orderMessageEnable=true --dry-run
      rocketrio namesrv kv set my-namespace my-key my-value
    """


@namesrv.command()
@reads
async def show(call: Call) -> None:
    """Show how fast each name server answers, how many brokers it knows, and what differs from the others.

    \b
    Example:
      rocketrio namesrv show --json
    """

    states = await call.admin.name_server_states()
    call.output.show(states, _SERVERS)
    call.silent.update({one.address: one.problem for one in states if one.problem})
    if len(call.silent) == len(states):
        raise Error(f"no name server answered: {'; '.join(call.silent)}")


# ------------------------------------------------------------------------------------------ settings


@namesrv.command()
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@changes
async def settings(call: Call, settings: tuple[str, ...]) -> None:
    """Show the settings of each name server, or change some while they run.

    Apache's write them to their file; rocketrio's keep them until their next start. It is an error if one takes a
    setting without effect.

    \b
    Examples:
      rocketrio namesrv settings
      rocketrio namesrv settings orderMessageEnable=true
    """

    wanted = dict(_setting(text) for text in settings)
    before = await call.admin.name_server_settings()
    after = before
    if wanted and not call.dry_run:
        after = await call.admin.change_name_server_settings(wanted)
    rows: list[dict[str, object]] = []
    for address, found in after.items():
        if isinstance(found, Error):
            call.silent[address] = str(found)
            continue
        was = before[address]
        old = {} if isinstance(was, Error) else was
        rows += [
            {
                "address": address,
                "setting": name,
                "value": wanted.get(name) if call.dry_run and wanted else found.get(name),
                "before": old.get(name),
            }
            for name in (wanted or sorted(found))
        ]
    if call.silent and len(call.silent) == len(after):
        raise Error("; ".join(dict.fromkeys(call.silent.values())))
    columns = ("address", "setting", "value", "before") if wanted else _SETTINGS
    call.output.show(rows, columns)


_SETTINGS = ("address", "setting", "value")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.UsageError(f"{text!r} is not KEY=VALUE, as orderMessageEnable=true")
    return name.strip(), value.strip()


# --------------------------------------------------------------------------------------------- texts


@namesrv.group(cls=Group)
def kv() -> None:
    """Show and change the texts that name servers keep by namespace and key."""


@kv.command("get")
@click.argument("namespace")
@click.argument("key", required=False)
@reads
async def get(call: Call, namespace: str, key: str | None) -> None:
    """Show the texts of NAMESPACE, or that of KEY, as each name server has them.

    \b
    Example:
      rocketrio namesrv kv get ORDER_TOPIC_CONFIG
    """

    found = await call.admin.name_server_texts(namespace)
    rows = _text_rows(namespace, key, found, call.silent)
    call.output.show(rows, ("address", "key", "value"))
    if not rows and not call.silent:
        named = namespace if key is None else f"{namespace} {key}"
        raise Error(f"no name server has a text for {named}")


def _text_rows(
    namespace: str,
    key: str | None,
    found: Mapping[str, Mapping[str, str] | Error],
    failed: dict[str, str],
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for address, table in found.items():
        if isinstance(table, Error):
            failed[address] = table.what
            continue
        rows += [
            {"address": address, "namespace": namespace, "key": name, "value": value}
            for name, value in sorted(table.items())
            if key in (None, name)
        ]
    return rows


@kv.command("set")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@changes
async def set_command(call: Call, namespace: str, key: str, value: str) -> None:
    """Store VALUE under NAMESPACE and KEY at every name server.

    \b
    Example:
      rocketrio namesrv kv set ORDER_TOPIC_CONFIG orders "broker-a:4;broker-b:4"
    """
    await change_text(call, namespace, key, value)


@kv.command("delete")
@click.argument("namespace")
@click.argument("key")
@changes
async def delete(call: Call, namespace: str, key: str) -> None:
    """Remove the text under NAMESPACE and KEY at every name server."""
    await change_text(call, namespace, key, None)


async def change_text(call: Call, namespace: str, key: str, value: str | None) -> None:
    """Store or remove a text at every name server, and show it before and after."""

    before = await call.admin.name_server_texts(namespace)
    refused: Mapping[str, Error] = {}
    if value is None and not call.dry_run:
        await may_be_lost(f"the text under {namespace} {key} is lost at every name server")
    if not call.dry_run:
        refused = (
            await call.admin.delete_name_server_text(namespace, key)
            if value is None
            else await call.admin.put_name_server_text(namespace, key, value)
        )
    rows: list[dict[str, object]] = []
    for address, table in before.items():
        problem = refused.get(address, table if isinstance(table, Error) else None)
        if problem is not None:
            call.silent[address] = str(problem)
            continue
        assert not isinstance(table, Error)
        rows.append({"address": address, "key": key, "before": table.get(key), "after": value})
    if call.silent and not rows:
        raise Error("; ".join(dict.fromkeys(call.silent.values())))
    call.output.show(rows, ("address", "key", dashed("before"), dashed("after")))
