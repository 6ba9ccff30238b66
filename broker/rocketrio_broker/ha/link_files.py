"""Reads the files that secure the replication link, and refuses those that are not safe enough.

Invariant: a secret or key that other users of the machine can read is not used, nor is a secret that can be guessed.
"""

import ssl
from pathlib import Path
from typing import Final

from rocketrio_broker.ha.link_security import LinkSecurity
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import read_private
from rocketrio_protocol.remoting.tls_files import TlsIdentity, load_authority, new_context

SECRET_SIZE_MIN: Final = 16
"""The fewest bytes of a secret: if a slave dials an attacker, the attacker can try guesses offline."""

SECRET_VARIETY_MIN: Final = 8
"""The fewest different bytes in a secret: with fewer it is a pattern."""

SECRET_SIZE_MAX: Final = 4096
"""The most bytes of a secret: a larger file is some other file, named by mistake."""


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
    identity = TlsIdentity(certificate_file=certificate_file, key_file=key_file, prefix="ha_tls_")
    server, client = new_context(ssl.PROTOCOL_TLS_SERVER), new_context(ssl.PROTOCOL_TLS_CLIENT)
    # The authority signs nothing but this cluster's brokers, and they are dialled by addresses that change.
    client.check_hostname = False
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        identity.load_into(context)
        load_authority(context, authority_file, "ha_tls_authority_file")
    return LinkSecurity(secret, server, client)


def _read_secret(path: Path) -> bytes:
    what = f"ha_secret_file {path}"
    remedy = f"Write one with: (umask 077; openssl rand -base64 32 > {path})"
    secret = read_private(path, what, size_max=SECRET_SIZE_MAX, remedy=remedy).strip()
    if len(secret) < SECRET_SIZE_MIN:
        problem = f"{len(secret)} bytes, at least {SECRET_SIZE_MIN} are needed"
    elif len(set(secret)) < SECRET_VARIETY_MIN:
        problem = f"{len(set(secret))} different bytes, at least {SECRET_VARIETY_MIN} are needed"
    else:
        return secret
    raise ConfigError(f"{what} holds {problem}", remedy=remedy)
