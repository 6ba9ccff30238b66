"""TLS of one broker or name server: as a server, and as a client of name servers and other brokers.

Invariant: with a certificate a server refuses plain connections, unless its settings say otherwise.
Answers to: NettyServerConfig.useTLS, BrokerStartup's `tls.enable`.
Unlike Java: a broker makes no certificate itself, and checks every server that it asks.
"""

import logging
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs
import trio

from rocketrio_broker.settings.config import BrokerConfig, ServerTlsSettings
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.ports import Dial, WallClock, is_loopback
from rocketrio_protocol.remoting.reloaded_files import ReloadedFiles, RunBlocking
from rocketrio_protocol.remoting.server_tls import ServerTls
from rocketrio_protocol.remoting.tls import tls_dial
from rocketrio_protocol.remoting.tls_files import (
    RSA_BITS_MAX,
    ServerTlsFiles,
    TlsIdentity,
    TlsOptions,
    rsa_key_bits,
)

logger = logging.getLogger("rocketrio_broker")

COSTLY_KEY_REMEDY: Final = "use an ECDSA key of P-256, or RSA of 2048 bits"


@attrs.frozen(kw_only=True)
class Tls:
    """The TLS of one process, whose files are watched by `run`."""

    server: ServerTls | None = None
    """How it serves; None without TLS."""
    peers: TlsOptions | None = None
    """How it asks other servers; None without TLS."""
    files: tuple[ReloadedFiles[ssl.SSLContext], ...] = ()

    def dial(self, dial: Dial) -> Dial:
        """Return a function that dials servers like `dial`, with TLS if this end uses it as a client."""
        if self.peers is None:
            return dial
        files = self.files[-1]
        return tls_dial(dial, lambda: files.current, trusted=self.peers.trusted)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the files until cancelled."""
        async with trio.open_nursery() as nursery:
            for files in self.files:
                nursery.start_soon(files.run)
            task_status.started()

    async def reload(self) -> None:
        """Use the files as they are now, if they have changed."""
        for files in self.files:
            await files.look()


async def load_tls(
    server: ServerTlsSettings,
    peers: TlsOptions | None = None,
    *,
    wall_clock: WallClock,
    run_blocking: RunBlocking = trio.to_thread.run_sync,
) -> Tls:
    """Read the files that the settings name. Raises ConfigError naming the file or setting that is wrong."""
    found = server_tls_files(server)
    files: list[ReloadedFiles[ssl.SSLContext]] = []
    serving = None
    if found is not None:
        own = await run_blocking(
            _watched, found, "TLS of the server", [found.identity.certificate_file],
            wall_clock, run_blocking,
        )  # fmt: skip
        files.append(own)
        cost = await run_blocking(costly_key, found.identity.certificate_file)
        if cost:
            logger.warning(
                "TLS key makes handshakes slow key=%s remedy=%s", cost, COSTLY_KEY_REMEDY
            )
        serving = ServerTls(lambda: own.current, is_enforcing=server.effective_mode == "enforcing")
    if peers is not None:
        certificates = [] if peers.certificate_file is None else [peers.certificate_file]
        files.append(
            await run_blocking(
                _watched, peers, "TLS towards other servers", certificates, wall_clock, run_blocking
            )
        )
    return Tls(server=serving, peers=peers, files=tuple(files))


def costly_key(certificate_file: Path) -> str:
    """Return what the key of a certificate is if each handshake with it delays everybody; empty if not; blocks."""
    bits = rsa_key_bits(certificate_file)
    return "" if bits is None or bits <= RSA_BITS_MAX else f"RSA of {bits} bits"


def server_tls_files(settings: ServerTlsSettings) -> ServerTlsFiles | None:
    """Return the files of a server with TLS, None without. Raises ConfigError for settings that contradict."""
    if settings.effective_mode == "disabled":
        return None
    if settings.certificate_file is None:
        raise ConfigError(
            f"tls_mode is {settings.effective_mode}, and there is no tls_certificate_file",
            remedy="Name the certificate: --tls-cert, or tls_certificate_file",
        )
    return ServerTlsFiles(
        identity=TlsIdentity(
            certificate_file=settings.certificate_file,
            key_file=settings.key_file,
            password_file=settings.key_password_file,
            prefix="tls_",
        ),
        client_authority_file=settings.client_authority_file,
        client_auth=settings.effective_client_auth,
    )


def peer_tls_options(config: BrokerConfig) -> TlsOptions | None:
    """Return how a broker asks name servers and other brokers; None without TLS."""
    if not config.uses_peer_tls:
        return None
    return TlsOptions(
        config.peer_tls_authority_file,
        config.peer_tls_certificate_file,
        config.peer_tls_key_file,
        check_host_name=config.peer_tls_check_host_name,
        prefix="peer_tls_",
    )


def warn_if_exposed(addresses: Iterable[str], protection: Mapping[str, bool]) -> None:
    """Log one warning if hosts other than this machine can reach a listener, and protection is missing.

    `protection` says of each kind of it whether it is there, by the words for it in the log.
    """
    exposed = [addr for addr in addresses if not is_loopback(addr)]
    missing = [words for words, is_there in protection.items() if not is_there]
    if exposed and missing:
        logger.warning(
            "hosts beyond this one can reach it and it lacks protection addr=%s missing=%s",
            ",".join(exposed), "; ".join(missing),
        )  # fmt: skip


def _watched(
    source: ServerTlsFiles | TlsOptions,
    what: str,
    certificates: list[Path],
    wall_clock: WallClock,
    run_blocking: RunBlocking,
) -> ReloadedFiles[ssl.SSLContext]:
    return ReloadedFiles(
        source.context,
        source.files(),
        what=what,
        certificates=certificates,
        wall_clock=wall_clock,
        run_blocking=run_blocking,
    )
