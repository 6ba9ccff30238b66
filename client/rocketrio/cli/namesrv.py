"""The commands `rocketrio namesrv show|settings|kv`."""

from collections.abc import Mapping

import click

from rocketrio.admin.admin import open_admin
from rocketrio.admin.name_server_admin import (
    change_name_server_settings,
    delete_text,
    name_server_settings,
    name_server_states,
    put_text,
    texts,
)
from rocketrio.cli.cells import dashed
from rocketrio.cli.commands import Group
from rocketrio.cli.common import (
    changes,
    client_options,
    end_in_part,
    may_be_lost,
    reads,
    run,
    run_in_part,
)
from rocketrio.cli.output import Column, Output
from rocketrio.connect import ClientOptions
from rocketrio_protocol.errors import Error

_SHOWN = ("address", Column("milliseconds", "ms"), "brokers", dashed("differs", unknown=True))


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
@client_options
def show(output: Output, client: ClientOptions, verbose: int) -> None:
    """Show how fast each name server answers, how many brokers it knows, and what differs from the others.

    \b
    Example:
      rocketrio namesrv show --json
    """

    async def work(silent: dict[str, str]) -> None:
        async with open_admin(**client) as admin:
            states = await name_server_states(admin)
        output.show(
            [
                {
                    "address": one.address,
                    "milliseconds": None if one.seconds is None else round(one.seconds * 1000, 1),
                    "brokers": one.brokers,
                    "differs": None if one.problem else list(one.differs),
                    "problem": one.problem,
                }
                for one in states
            ],
            _SHOWN,
        )
        silent.update({one.address: one.problem for one in states if one.problem})
        if len(silent) == len(states):
            raise Error(f"no name server answered: {'; '.join(silent)}")

    run_in_part(work, verbose=verbose)


# ------------------------------------------------------------------------------------------ settings


@namesrv.command()
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@changes
@client_options
def settings(
    settings: tuple[str, ...],
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Show the settings of each name server, or change some while they run.

    Apache's write them to their file; rocketrio's keep them until their next start. It is an error if one takes a
    setting without effect.

    \b
    Examples:
      rocketrio namesrv settings
      rocketrio namesrv settings orderMessageEnable=true
    """
    wanted = dict(_setting(text) for text in settings)
    failed: dict[str, str] = {}

    async def work() -> None:
        async with open_admin(**client) as admin:
            before = await name_server_settings(admin)
            after = before
            if wanted and not dry_run:
                after = await change_name_server_settings(admin, wanted)
        rows: list[dict[str, object]] = []
        for address, found in after.items():
            if isinstance(found, Error):
                failed[address] = str(found)
                continue
            was = before[address]
            old = {} if isinstance(was, Error) else was
            rows += [
                {
                    "address": address,
                    "setting": name,
                    "value": wanted.get(name) if dry_run and wanted else found.get(name),
                    "before": old.get(name),
                }
                for name in (wanted or sorted(found))
            ]
        if failed and len(failed) == len(after):
            raise Error("; ".join(dict.fromkeys(failed.values())))
        columns = ("address", "setting", "value", "before") if wanted else _SETTINGS
        output.show(rows, columns)

    run(work, verbose=verbose)
    end_in_part(failed)


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
@client_options
def get(
    namespace: str, key: str | None, output: Output, client: ClientOptions, verbose: int
) -> None:
    """Show the texts of NAMESPACE, or that of KEY, as each name server has them.

    \b
    Example:
      rocketrio namesrv kv get ORDER_TOPIC_CONFIG
    """
    failed: dict[str, str] = {}

    async def work() -> None:
        async with open_admin(**client) as admin:
            found = await texts(admin, namespace)
        rows = _text_rows(namespace, key, found, failed)
        output.show(rows, ("address", "key", "value"))
        if not rows and not failed:
            named = namespace if key is None else f"{namespace} {key}"
            raise Error(f"no name server has a text for {named}")

    run(work, verbose=verbose)
    end_in_part(failed)


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
@client_options
def set_command(
    namespace: str,
    key: str,
    value: str,
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Store VALUE under NAMESPACE and KEY at every name server.

    \b
    Example:
      rocketrio namesrv kv set ORDER_TOPIC_CONFIG orders "broker-a:4;broker-b:4"
    """
    change_text(
        namespace, key, value, dry_run=dry_run, output=output, client=client, verbose=verbose
    )


@kv.command("delete")
@click.argument("namespace")
@click.argument("key")
@changes
@client_options
def delete(
    namespace: str, key: str, dry_run: bool, output: Output, client: ClientOptions, verbose: int
) -> None:
    """Remove the text under NAMESPACE and KEY at every name server."""
    change_text(
        namespace, key, None, dry_run=dry_run, output=output, client=client, verbose=verbose
    )


def change_text(
    namespace: str,
    key: str,
    value: str | None,
    *,
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Store or remove a text at every name server, and show it before and after."""
    failed: dict[str, str] = {}

    async def work() -> None:
        async with open_admin(**client) as admin:
            before = await texts(admin, namespace)
            refused: Mapping[str, Error] = {}
            if value is None and not dry_run:
                await may_be_lost(f"the text under {namespace} {key} is lost at every name server")
            if not dry_run:
                refused = (
                    await delete_text(admin, namespace, key)
                    if value is None
                    else await put_text(admin, namespace, key, value)
                )
        rows: list[dict[str, object]] = []
        for address, table in before.items():
            problem = refused.get(address, table if isinstance(table, Error) else None)
            if problem is not None:
                failed[address] = str(problem)
                continue
            assert not isinstance(table, Error)
            rows.append({"address": address, "key": key, "before": table.get(key), "after": value})
        if failed and not rows:
            raise Error("; ".join(dict.fromkeys(failed.values())))
        output.show(rows, ("address", "key", dashed("before"), dashed("after")))

    run(work, verbose=verbose)
    end_in_part(failed)
