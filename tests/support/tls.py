"""Certificates of one authority for servers and clients of tests, made once a process."""

import functools
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import trustme

from rocketrio_protocol.remoting.tls_files import TlsIdentity, new_context

HOSTS = ("127.0.0.1", "localhost", *(f"10.0.0.{number}" for number in (1, 9, 10, 11, 12)))
"""The hosts of servers in tests, in memory and on real ports."""


@functools.cache
def authority() -> trustme.CA:
    """The authority of all certificates here."""
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@functools.cache
def server_context(*names: str) -> ssl.SSLContext:
    """Return what a server with these names uses; by default the addresses of the tests' networks."""
    context = new_context(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*(names or HOSTS)).configure_cert(context)
    return context


@functools.cache
def client_context() -> ssl.SSLContext:
    """Return what a client uses that trusts the authority."""
    context = new_context(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    return context


@attrs.frozen
class CertificateFiles:
    """Files as an operator has them."""

    authority: Path
    certificate: Path
    key: Path

    @property
    def identity(self) -> TlsIdentity:
        """Return what a server takes them as."""
        return TlsIdentity(certificate_file=self.certificate, key_file=self.key)


def write_files(
    folder: Path, *names: str, days: int = 90, is_expired: bool = False
) -> CertificateFiles:
    """Write a new certificate of the authority with its key; by default it names the hosts of tests."""
    end = datetime.now(UTC) + timedelta(days=-2 if is_expired else days)
    issued = authority().issue_cert(
        *(names or HOSTS), not_before=end - timedelta(days=100), not_after=end
    )
    files = CertificateFiles(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    authority().cert_pem.write_to_path(files.authority)
    issued.cert_chain_pems[0].write_to_path(files.certificate)
    files.key.touch(mode=0o600)
    issued.private_key_pem.write_to_path(files.key)
    return files
