"""Loads the files that secure a broker, and describes them: what `rocketrio-broker check` prints.

Invariant: nothing is changed, and no secret is in a finding.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs

from rocketrio_broker.access.control import NO_USERS, InnerCredentials, access_control
from rocketrio_broker.access.files import acl_paths
from rocketrio_broker.ha.link_files import load_link_security
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.tls import (
    COSTLY_KEY_REMEDY,
    costly_key,
    peer_tls_options,
    server_tls_files,
)
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.descriptors import ENOUGH, DescriptorLimit, descriptor_limit
from rocketrio_protocol.remoting.ports import SystemWallClock
from rocketrio_protocol.remoting.tls_files import days_left

OFF: Final = "off"
OPEN_SHOWN: Final = 20
"""The most paths that are named as open to others."""
HOW_TO_ALLOW_MORE: Final = "LimitNOFILE= of systemd, ulimit -Hn, or --ulimit nofile= of containers"
_OTHERS: Final = 0o077


@attrs.frozen
class CheckedFile:
    """One result of a check."""

    what: str
    text: str
    is_error: bool = False


def findings(config: BrokerConfig) -> Iterator[CheckedFile]:
    """Yield what the files of a broker hold, in turn; blocks."""
    inner: list[InnerCredentials] = []
    disk = InlineDisk()

    def load_inner() -> str:
        if config.inner_credentials_file is None:
            return OFF
        inner.append(InnerCredentials(config.inner_credentials_file, disk=disk))
        return f"user {inner[0].credentials.access_key}"

    def load_users() -> str:
        if not config.is_access_controlled:
            return OFF
        control = access_control(
            acl_paths=acl_paths(config.acl_file),
            inner=inner[0] if inner else None,
            white_addresses=config.acl_white_addresses,
            config_directory=config.config_directory,
            disk=disk,
        )
        if not control.table.users:
            raise ConfigError(NO_USERS)
        return f"{control.count} files={';'.join(control.file_names)}"

    def load_server_tls() -> str:
        files = server_tls_files(config.server_tls)
        if files is None:
            return OFF
        files.context()
        certificate = files.identity.certificate_file
        text = f"{config.server_tls.effective_mode} {_expiry(certificate)}"
        cost = costly_key(certificate)
        return f"{text}; {cost}, handshakes are slow: {COSTLY_KEY_REMEDY}" if cost else text

    def load_peer_tls() -> str:
        options = peer_tls_options(config)
        if options is None:
            return OFF
        options.context()
        own = "" if options.certificate_file is None else f" {_expiry(options.certificate_file)}"
        return f"on{own}"

    def load_link() -> str:
        security = load_link_security(
            secret_file=config.ha_secret_file,
            certificate_file=config.ha_tls_certificate_file,
            key_file=config.ha_tls_key_file,
            authority_file=config.ha_tls_authority_file,
        )
        if not security.is_proof_asked:
            return OFF
        certificate = config.ha_tls_certificate_file
        return "proved" if certificate is None else f"proved {_expiry(certificate)}"

    yield _finding("inner credentials", load_inner)
    yield _finding("access control", load_users)
    yield _finding("TLS", load_server_tls)
    yield _finding("TLS towards other servers", load_peer_tls)
    yield _finding("replication", load_link)
    yield _descriptors()
    yield from _open_paths(config.data)


def _descriptors() -> CheckedFile:
    """Say how many file descriptors a broker may have that this user starts now, in this way."""
    hard = descriptor_limit().hard
    limit = DescriptorLimit(hard, hard)
    text = f"{hard}, {limit.for_connections} of them for connections"
    if hard < ENOUGH:
        text += f"; allow {ENOUGH} or more: {HOW_TO_ALLOW_MORE}"
    return CheckedFile("file descriptors", text)


def _finding(what: str, load: Callable[[], str]) -> CheckedFile:
    try:
        return CheckedFile(what, load())
    except ConfigError as error:
        return CheckedFile(what, str(error), is_error=True)


def _expiry(certificate: Path) -> str:
    """Return when a certificate expires. Raises ConfigError for one that has."""
    days = days_left(certificate, SystemWallClock().now_ms())
    if days is None:
        return f"certificate={certificate} days_left=unknown"
    if days < 0:
        raise ConfigError(
            f"the certificate {certificate} expired {-days} days ago", remedy="Renew it"
        )
    return f"certificate={certificate} days_left={days}"


def _open_paths(data: Path) -> Iterator[CheckedFile]:
    """Yield the data directory, its folders and the files of `config/` that others may read or change."""
    if not data.is_dir():
        return
    paths = [
        data,
        *(path for path in data.iterdir() if path.is_dir()),
        *(data / "config").glob("*"),
    ]
    is_open = sorted({path for path in paths if path.stat().st_mode & _OTHERS})
    for path in is_open[:OPEN_SHOWN]:
        yield CheckedFile("open to others", f"{path}; chmod go= {path}")
    if len(is_open) > OPEN_SHOWN:
        yield CheckedFile("open to others", f"and {len(is_open) - OPEN_SHOWN} more")
