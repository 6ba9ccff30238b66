"""Whether one client uses TLS, and with which files.

Invariant: a client with TLS sends nothing without it, and reaches only servers whose certificates it has checked,
unless its caller gives a context of its own.
Answers to: ClientConfig.useTLS, TlsSystemConfig.
Unlike Java: Java's clients check no certificate by default, and never the host that it names.
"""

import os
import ssl
from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs
import trio

from rocketrio.cluster.variables import TLS_CA_FILE_VARIABLE, TLS_VARIABLE
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.ports import Dial, WallClock
from rocketrio_protocol.remoting.reloaded_files import ReloadedFiles
from rocketrio_protocol.remoting.tls import tls_dial
from rocketrio_protocol.remoting.tls_files import TlsOptions

GivenTls: TypeAlias = bool | ssl.SSLContext | TlsOptions | None
"""What users pass; None means the environment."""

_WORDS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("", "0", "false", "no", "off"), False),
}


def given_tls(
    given: GivenTls,
    ssl_context: ssl.SSLContext | None = None,
    environ: Mapping[str, str] | None = None,
) -> TlsOptions | ssl.SSLContext | None:
    """Return how to use TLS: as given, else as the environment says, else None. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    if ssl_context is not None:
        if given is not None:
            raise ConfigError("give tls= or ssl_context=, not both")
        if not isinstance(ssl_context, ssl.SSLContext):
            raise _wrong_type("ssl_context", ssl_context)
        return ssl_context
    if isinstance(given, ssl.SSLContext | TlsOptions):
        return given
    if given is not None and not isinstance(given, bool):
        raise _wrong_type("tls", given)
    authority_file = environ.get(TLS_CA_FILE_VARIABLE) or None
    if given is None:
        word = environ.get(TLS_VARIABLE)
        if word is not None and word.lower() not in _WORDS:
            raise ConfigError(f"{TLS_VARIABLE} is {word!r}, neither true nor false")
        # A file of authorities alone asks for TLS: ignored, all would be sent in the open.
        given = authority_file is not None if word is None else _WORDS[word.lower()]
    return TlsOptions(authority_file) if given else None


@attrs.frozen
class SecuredDial:
    """How one client connects."""

    dial: Dial
    files: ReloadedFiles[ssl.SSLContext] | None = None
    """The files of its TLS, which its nursery watches; None without any."""


async def secured_dial(
    dial: Dial, tls: TlsOptions | ssl.SSLContext | None, *, wall_clock: WallClock
) -> SecuredDial:
    """Return a function that dials like `dial`, with TLS unless `tls` is None. Raises ConfigError for wrong files."""
    if tls is None:
        return SecuredDial(dial)
    if isinstance(tls, ssl.SSLContext):
        return SecuredDial(tls_dial(dial, lambda: tls, trusted="the given context is"))
    files = await trio.to_thread.run_sync(_loaded, tls, wall_clock)
    return SecuredDial(tls_dial(dial, lambda: files.current, trusted=tls.trusted), files)


def _loaded(tls: TlsOptions, wall_clock: WallClock) -> ReloadedFiles[ssl.SSLContext]:
    return ReloadedFiles(
        tls.context,
        tls.files(),
        what="TLS of the client",
        certificates=[] if tls.certificate_file is None else [tls.certificate_file],
        wall_clock=wall_clock,
    )


def _wrong_type(name: str, given: object) -> ConfigError:
    return ConfigError(
        f"{name}= cannot be of type {type(given).__name__}",
        remedy="Use tls=True, tls=TlsOptions(authority_file=...) or ssl_context=ssl.create_default_context()",
    )
