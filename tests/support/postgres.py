"""A PostgreSQL server for one test: its data and its socket lie in a folder that goes with it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SYSTEM_USER = "postgres"
"""Who runs it if the tests run as root, which PostgreSQL refuses to be."""


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@contextmanager
def postgres() -> Iterator[str]:
    """Start a server and yield how to connect to it. Skip the test where there is none."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is missing: `apt-get install postgresql` (Debian) has it")
    user = SYSTEM_USER if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="rocketrio-postgres-"))
    try:
        if user is not None:
            shutil.chown(folder, user)

        def run(program: str, *words: str) -> None:
            command = [programs / program, "--pgdata", folder / "data", *words]
            subprocess.run(
                command, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=300
            )

        run("initdb", "--username", "shop", "--auth", "trust", "--no-sync")
        settings = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "--wait", "--log", f"{folder}/log", "--options", settings, "start")
        try:
            yield f"host={folder} user=shop dbname=postgres"
        finally:
            run("pg_ctl", "--wait", "--mode", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
