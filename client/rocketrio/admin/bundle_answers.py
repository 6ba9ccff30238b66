"""Asks for what a bundle has beyond what the doctor judges: groups, offsets, replication, and name servers' settings.

Invariant: settings and texts go through `without_secrets`; what did not answer is in the bundle as its reason.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from rocketrio.admin.admin import Admin
from rocketrio.admin.bundle import with_folders, without_secrets
from rocketrio.admin.cluster_status import UNKNOWN_STATES
from rocketrio.admin.doctor_answers import DoctorAnswers
from rocketrio.admin.name_server_admin import ORDER_NAMESPACE, name_server_settings, texts
from rocketrio_protocol.errors import Error


async def more_for_bundle(admin: Admin, answers: DoctorAnswers) -> dict[str, Any]:
    """Return further files of a bundle, by name. Raises nothing for a server that does not answer."""
    files: dict[str, Any] = {}

    async def ask(name: str, question: Callable[[str], Awaitable[Any]], addr: str) -> None:
        try:
            files[name] = await question(addr)
        except Error as error:
            files[name] = {"not_answered": error.what}

    async with trio.open_nursery() as nursery:
        for one, folder in with_folders(answers.cluster.brokers):
            if one.state in UNKNOWN_STATES:
                continue
            nursery.start_soon(
                ask, f"{folder}/replication.json", admin.calls.ha_status, one.address
            )
            if one.role != "slave":
                nursery.start_soon(ask, f"{folder}/groups.json", admin.calls.groups, one.address)
                nursery.start_soon(
                    ask, f"{folder}/offsets.json", admin.calls.all_offsets, one.address
                )
    tables = {
        "settings": await name_server_settings(admin),
        ORDER_NAMESPACE: await texts(admin, ORDER_NAMESPACE),
    }
    for name, found in tables.items():
        files[f"name_servers/{name}.json"] = {
            address: {"not_answered": one.what} if isinstance(one, Error) else without_secrets(one)
            for address, one in found.items()
        }
    return dict(sorted(files.items()))
