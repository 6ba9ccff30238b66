"""Servers and clients of both products with TLS: their certificates, and how they are started.

All certificates are of one authority and name 127.0.0.1. Apache reads keys in PKCS#8 alone.
"""

import ssl
import subprocess
from pathlib import Path
from typing import Final, Literal

import attrs

from rocketrio import TlsOptions
from tests.support.tls import CertificateFiles, write_files

Mode = Literal["disabled", "permissive", "enforcing"]
TLS_CLIENT: Final = "-Dtls.enable=true"


@attrs.frozen
class Certificates:
    """What servers and clients prove and trust."""

    server: CertificateFiles
    client: CertificateFiles

    @property
    def context(self) -> ssl.SSLContext:
        """Return what the harness itself connects with."""
        return self.options.context()

    @property
    def options(self) -> TlsOptions:
        """Return what our client connects with: it trusts the authority, and has a certificate."""
        return TlsOptions(self.client.authority, self.client.certificate, self.client.key)

    def our_server(self, *, mode: Mode = "enforcing", mutual: bool = False) -> dict[str, object]:
        """Return the settings of a rocketrio server."""
        mutual_settings = {"tls_client_authority_file": self.server.authority} if mutual else {}
        return {
            "tls_mode": mode,
            "tls_certificate_file": self.server.certificate,
            "tls_key_file": self.server.key,
            **mutual_settings,
        }

    @property
    def our_peers(self) -> dict[str, object]:
        """Return the settings of a rocketrio broker as a client."""
        return {
            "peer_tls": "true",
            "peer_tls_authority_file": self.client.authority,
            "peer_tls_certificate_file": self.client.certificate,
            "peer_tls_key_file": self.client.key,
        }

    def apache(self, folder: Path, *, mutual: bool = False) -> tuple[str, ...]:
        """Return the options of an Apache server that enforces TLS, and uses it as a client too, without test mode."""
        need = "require" if mutual else "none"
        return (
            "-Dtls.server.mode=enforcing",
            TLS_CLIENT,
            f"-Dtls.config.file={self._properties(folder, need)}",
        )

    def java_client(self, folder: Path) -> tuple[str, ...]:
        """Return the options of a Java client that checks servers and proves itself."""
        return (TLS_CLIENT, f"-Dtls.config.file={self._properties(folder, 'none')}")

    def _properties(self, folder: Path, need: str) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "tls.properties"
        server, client = self.server, self.client
        path.write_text(
            f"""\
tls.test.mode.enable=false
tls.server.need.client.auth={need}
tls.server.authClient=true
tls.server.certPath={server.certificate}
tls.server.keyPath={server.key}
tls.server.trustCertPath={server.authority}
tls.client.authServer=true
tls.client.certPath={client.certificate}
tls.client.keyPath={client.key}
tls.client.trustCertPath={client.authority}
"""
        )
        return path


def make_certificates(folder: Path, *server_names: str) -> Certificates:
    """Write certificates of one authority for a server and a client; the server's names 127.0.0.1 by default."""
    made = []
    for name in ("server", "client"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        files = write_files(folder / name, *(server_names if name == "server" else ()))
        plain = files.key.with_name("pkcs8.pem")
        plain.touch(mode=0o600)
        subprocess.run(
            ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", files.key, "-out", plain], check=True
        )
        made.append(attrs.evolve(files, key=plain))
    return Certificates(*made)


def as_settings(settings: dict[str, object]) -> tuple[str, ...]:
    """Return settings as `--set` takes them."""
    return tuple(f"{name}={value}" for name, value in settings.items())


def as_options(settings: dict[str, object]) -> tuple[str, ...]:
    """Return the settings of a server as options of the command."""
    names = {
        "tls_mode": "--tls-mode",
        "tls_certificate_file": "--tls-cert",
        "tls_key_file": "--tls-key",
        "tls_client_authority_file": "--tls-client-ca",
    }
    return tuple(word for name, value in settings.items() for word in (names[name], str(value)))
