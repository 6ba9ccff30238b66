"""Names of topics, groups and brokers for the completion of shells: asked within a moment, kept for half a minute.

Invariant: it prints nothing and raises nothing. Whatever goes wrong, there are no names.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rocketrio.cli.commands import Kind
from rocketrio.cli.contexts import Choice, choose, contexts_path, read_contexts, replace_private

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.connect import ClientOptions

ASK_TIMEOUT: Final = 0.3
"""Seconds for the question, while a person waits behind the Tab key."""
KEPT: Final = 30.0
"""Seconds that names are kept in a file."""


def known_names(context: click.Context, kind: Kind) -> list[str]:
    """Return the names in the cluster that the options so far, the environment or the selected context name."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        return _known(context, kind)
    except Exception:
        return []
    finally:
        logging.disable(before)


def _known(context: click.Context, kind: Kind) -> list[str]:

    choice = choose(
        read_contexts(contexts_path()),
        namesrv=context.params.get("namesrv"),
        context=context.params.get("context_name"),
        environ=os.environ,
    )
    if choice.context is not None and choice.context.secret_command:
        return []  # It may ask for a passphrase.
    return _kept_or_asked(choice, kind)


def _kept_or_asked(choice: Choice, kind: Kind) -> list[str]:
    import trio
    from platformdirs import user_cache_path

    path = user_cache_path("rocketrio") / "names.json"
    key = f"{kind} {choice.name or ''} {';'.join(choice.name_servers)}"
    now = time.time()
    kept = {each: one for each, one in _read(path).items() if 0 <= now - one[0] < KEPT}
    if key not in kept:
        names = trio.run(_asked, choice, kind)
        if names is None:
            return []
        kept[key] = now, names
        with suppress(OSError):
            replace_private(path, json.dumps(kept))
    return kept[key][1]


def _read(path: Path) -> dict[str, tuple[float, list[str]]]:
    try:
        return {
            str(key): (float(at), [str(name) for name in names])
            for key, (at, names) in json.loads(path.read_text()).items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


async def _asked(choice: Choice, kind: Kind) -> list[str] | None:
    """Return the names; None if the cluster does not answer in time."""
    import trio

    from rocketrio.admin.admin import open_admin
    from rocketrio_protocol.remoting.tasks import ungrouped

    options: ClientOptions = {} if choice.context is None else choice.context.client_options()
    options["name_servers"] = choice.name_servers
    with trio.move_on_after(ASK_TIMEOUT), ungrouped():
        async with open_admin(**options) as admin:
            return sorted(await _names(admin, kind))
    return None


async def _names(admin: Admin, kind: Kind) -> Iterable[str]:
    if kind == "topics":
        return await admin.topics(include_system=False)
    if kind == "groups":
        return await admin.groups(include_system=False)
    brokers = (await admin.client.name_servers.cluster_info()).broker_addr_table
    if kind == "brokers":
        return brokers
    return [address for broker in brokers.values() for address in broker.broker_addrs.values()]
