"""Reads the files that secure the replication link, and refuses those that are not safe enough.

Invariant: a secret or key that other users of the machine can read is not used, nor is a secret that can be guessed.
"""

import os
import ssl
import stat
from functools import partial
from pathlib import Path
from typing import Final

from rocketrio_broker.ha.link_security import LinkSecurity
from rocketrio_protocol.errors import ConfigError

SECRET_SIZE_MIN: Final = 16
"""The fewest bytes of a secret: if a slave dials an attacker, the attacker can try guesses offline."""

SECRET_VARIETY_MIN: Final = 8
"""The fewest different bytes in a secret: with fewer it is a pattern."""

SECRET_SIZE_MAX: Final = 4096
"""The most bytes of a secret: a larger file is some other file, named by mistake."""

_OTHERS: Final = 0o077


def load_link_security(
    *,
    secret_file: Path | None = None,
    certificate_file: Path | None = None,
    key_file: Path | None = None,
    authority_file: Path | None = None,
) -> LinkSecurity:
    """Read the files that the settings name; blocks. Raises ConfigError naming the file that is missing or wrong."""
    secret = None if secret_file is None else _read_secret(secret_file)
    if certificate_file is None and authority_file is None and key_file is None:
        return LinkSecurity(secret)
    if certificate_file is None or authority_file is None:
        raise ConfigError(
            "TLS for replication needs this broker's certificate and the authority that signs all of them",
            remedy="Set ha_tls_certificate_file and ha_tls_authority_file "
            "(ha_tls_key_file where the key is not in the certificate's file)",
        )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    key_path = key_file or certificate_file
    # The authority signs nothing but this cluster's brokers, and they are dialled by addresses that change.
    client.check_hostname = False
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            _check_private(key_path, f"the key in {key_path}", key_path)
            context.load_cert_chain(
                certificate_file, key_file, password=partial(_ask_nobody, key_path)
            )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ha_tls_certificate_file {certificate_file} cannot be used: {error}"
            ) from error
        try:
            context.load_verify_locations(authority_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ha_tls_authority_file {authority_file} cannot be used: {error}"
            ) from error
    return LinkSecurity(secret, server, client)


def _read_secret(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            _check_private(file.fileno(), f"ha_secret_file {path}", path)
            secret = file.read(SECRET_SIZE_MAX + 1).strip()
    except OSError as error:
        raise ConfigError(f"ha_secret_file {path} cannot be read: {error.strerror}") from error
    if len(secret) > SECRET_SIZE_MAX:
        problem = f"more than {SECRET_SIZE_MAX} bytes"
    elif len(secret) < SECRET_SIZE_MIN:
        problem = f"{len(secret)} bytes, at least {SECRET_SIZE_MIN} are needed"
    elif len(set(secret)) < SECRET_VARIETY_MIN:
        problem = f"{len(set(secret))} different bytes, at least {SECRET_VARIETY_MIN} are needed"
    else:
        return secret
    raise ConfigError(
        f"ha_secret_file {path} holds {problem}",
        remedy=f"Write one with: (umask 077; openssl rand -base64 32 > {path})",
    )


def _check_private(file: int | Path, what: str, path: Path) -> None:
    mode = os.stat(file).st_mode
    if mode & _OTHERS:
        raise ConfigError(
            f"{what} is open to others (mode {stat.S_IMODE(mode):04o})",
            remedy=f"chmod 600 {path}; if others may have read it, make a new one",
        )


def _ask_nobody(key_path: Path) -> bytes:
    raise ConfigError(
        f"the key in {key_path} is encrypted, and a broker cannot ask for its password",
        remedy=f"openssl pkey -in {key_path} -out PLAIN writes it without one; chmod 600 PLAIN",
    )
