"""Real files: what a broker needs to have its replication closed to strangers, a secret or certificates, and folders.

The former are made once in a process. What is random in a handshake changes bytes, not when anything
happens: histories stay equal.
"""

import atexit
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import trustme
from tests.cluster.histories.schedule import Mode
from tests.support.replication import secret_file, write_private


def link_settings(mode: Mode) -> dict[str, Any]:
    """The settings of a broker."""
    if mode.link == "open":
        return {}
    directory = _files()
    if mode.link == "secret":
        return {"ha_secret_file": directory / "secret"}
    return {
        "ha_tls_certificate_file": directory / "broker.pem",
        "ha_tls_authority_file": directory / "authority.pem",
    }


def new_folder() -> Path:
    """An empty folder for one run, which goes with the process."""
    return Path(tempfile.mkdtemp(dir=_root()))


@cache
def _root() -> Path:
    kept = tempfile.TemporaryDirectory(prefix="rocketrio-histories-")
    atexit.register(kept.cleanup)
    return Path(kept.name)


@cache
def _files() -> Path:
    directory = _root()
    secret_file(directory / "secret")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "authority.pem")
    write_private(authority.issue_cert("broker-a"), directory / "broker.pem")
    return directory
