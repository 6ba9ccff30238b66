"""Makes TLS contexts from files with certificates and keys (PEM).

Invariant: a key that other users of the machine may read is not used, and no password is asked for on a terminal.
Invariant: a context without checks is made only for a server that asks for no certificates.
Answers to: TlsSystemConfig, TlsHelper.
Unlike Java: a client checks servers unless its caller gives a context of its own, and a server checks every
certificate that it asks for. By default Java accepts all.
"""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import attrs

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import check_private, read_private

ClientAuth = Literal["none", "optional", "require"]

PASSWORD_SIZE_MAX: Final = 1024
"""The most bytes of a file with a password: PEM_BUFSIZE of OpenSSL."""

CERTIFICATE_FILE_SIZE_MAX: Final = 1 << 20
"""The most bytes of a file whose certificates are searched for the first that expires."""

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}
_MS_PER_DAY: Final = 86_400_000
_RSA: Final = bytes.fromhex("2a864886f70d010101")
RSA_BITS_MAX: Final = 2048
"""Bits of an RSA key with which a handshake takes a millisecond of CPU; with 4096 it takes five, with P-256 a fifth."""


def new_context(protocol: int) -> ssl.SSLContext:
    """Return a context for `ssl.PROTOCOL_TLS_SERVER` or `_CLIENT` without certificates.

    TLS 1.2 is the oldest version, for Java 8 before its update 261. Tickets would cost work at each handshake for
    connections that stay for hours, and renegotiation lets a client cause that work as often as it wants. Frames carry
    their length, so an end without a farewell cuts no message unnoticed.
    """
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)


@attrs.frozen(kw_only=True)
class TlsIdentity:
    """A certificate with its key, in files."""

    certificate_file: Path = attrs.field(converter=Path)
    """The certificate, and those that connect it to the authority."""
    key_file: Path | None = attrs.field(default=None, converter=_path)
    """The key, if it is not in the same file."""
    password: str | bytes | None = attrs.field(default=None, repr=False)
    """The password of the key."""
    password_file: Path | None = attrs.field(default=None, converter=_path)
    """A file with that password."""
    prefix: str = ""
    """What the names of the settings begin with, for errors: `peer_tls_`."""

    def files(self) -> tuple[Path, ...]:
        """Return the files that `load_into` reads."""
        return _given(self.certificate_file, self.key_file, self.password_file)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Let a context prove this identity; blocks. Raises ConfigError that names the file that is wrong."""
        key_file = self.key_file or self.certificate_file
        what = f"the key in {key_file}"
        try:
            # Before it is used: a key that others could read may be known, and must be replaced.
            check_private(key_file, what, key_file)
        except OSError as error:
            raise ConfigError(f"{what} cannot be read: {error.strerror}") from error
        name = f"{self.prefix}certificate_file {self.certificate_file}"
        try:
            # Without a password OpenSSL would ask for it on the terminal.
            context.load_cert_chain(self.certificate_file, self.key_file, password=self._password)
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).replace("_", " ").lower()
            raise ConfigError(
                f"{name} cannot be used with {what}: {reason}", remedy=_identity_remedy(error)
            ) from error
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"{name} cannot be used with {what}: {why}") from error

    def _password(self) -> str | bytes:
        if self.password is not None:
            return self.password
        key_file = self.key_file or self.certificate_file
        if self.password_file is None:
            raise ConfigError(
                f"the key in {key_file} is encrypted, and its password is not given",
                remedy=f"openssl pkey -in {key_file} -out PLAIN writes it without one; chmod 600 PLAIN",
            )
        name = f"{self.prefix}key_password_file {self.password_file}"
        return read_private(self.password_file, name, size_max=PASSWORD_SIZE_MAX).rstrip(b"\r\n")


@attrs.frozen(kw_only=True)
class ServerTlsFiles:
    """The files of a server."""

    identity: TlsIdentity
    client_authority_file: Path | None = None
    """The authority that signs the certificates of clients."""
    client_auth: ClientAuth = "none"
    """Whether clients are asked for a certificate, and may have none. A certificate that they show is checked."""

    def __attrs_post_init__(self) -> None:
        if self.client_auth != "none" and self.client_authority_file is None:
            raise ConfigError(
                f"tls_client_auth is {self.client_auth}, and no authority says which certificates count",
                remedy="Name its file: tls_client_authority_file, --tls-client-ca",
            )

    def files(self) -> tuple[Path, ...]:
        """Return all files that `context` reads."""
        return (*self.identity.files(), *_given(self.client_authority_file))

    def context(self) -> ssl.SSLContext:
        """Return a new context; blocks. Raises ConfigError that names the file that is wrong."""
        context = new_context(ssl.PROTOCOL_TLS_SERVER)
        self.identity.load_into(context)
        if self.client_authority_file is not None:
            load_authority(context, self.client_authority_file, "tls_client_authority_file")
        context.verify_mode = _CLIENT_AUTH[self.client_auth]
        return context


@attrs.frozen
class TlsOptions:
    """How a client uses TLS: whom it trusts, and how it proves who it is."""

    authority_file: Path | None = attrs.field(default=None, converter=_path)
    """The authority that signs the certificates of servers; None: the authorities that this machine trusts."""
    certificate_file: Path | None = attrs.field(default=None, converter=_path)
    """The client's own certificate, for servers that ask for one."""
    key_file: Path | None = attrs.field(default=None, converter=_path)
    """Its key, if it is in another file."""
    key_password: str | bytes | None = attrs.field(default=None, repr=False)
    """The password of the key."""
    check_host_name: bool = True
    """Whether the certificate of a server must name the host that is dialled. Brokers are dialled by the addresses in
    routes, which are often IP addresses. False suits an authority that signs nothing but this cluster's certificates.
    """
    key_password_file: Path | None = attrs.field(default=None, converter=_path, kw_only=True)
    """A file with the password of the key."""
    prefix: str = attrs.field(default="", kw_only=True, repr=False)
    """What the names of these settings begin with, for errors."""

    def __attrs_post_init__(self) -> None:
        if self.certificate_file is None and self.key_file is not None:
            raise ConfigError(
                f"{self.prefix}key_file is given without {self.prefix}certificate_file",
                remedy="Name the certificate of that key",
            )

    @property
    def trusted(self) -> str:
        """The trusted authorities in words."""
        return (
            f"{self.authority_file} is" if self.authority_file else "this machine's authorities are"
        )

    def files(self) -> tuple[Path, ...]:
        """Return all files that `context` reads."""
        identity = self._identity()
        return (*_given(self.authority_file), *(() if identity is None else identity.files()))

    def context(self) -> ssl.SSLContext:
        """Return a new context; blocks. Raises ConfigError that names the file that is wrong."""
        context = new_context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_host_name
        if self.authority_file is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            load_authority(context, self.authority_file, f"{self.prefix}authority_file")
        identity = self._identity()
        if identity is not None:
            identity.load_into(context)
        return context

    def _identity(self) -> TlsIdentity | None:
        if self.certificate_file is None:
            return None
        return TlsIdentity(
            certificate_file=self.certificate_file,
            key_file=self.key_file,
            password=self.key_password,
            password_file=self.key_password_file,
            prefix=self.prefix,
        )


def load_authority(context: ssl.SSLContext, path: Path, what: str) -> None:
    """Let a context trust the authorities in a file. Raises ConfigError that names it."""
    try:
        context.load_verify_locations(path)
    except OSError as error:  # SSLError too.
        raise ConfigError(f"{what} {path} cannot be used: {error.strerror or error}") from error


def days_left(certificate_file: Path, now_ms: int) -> int | None:
    """Return the number of days until the first certificate of a file expires, negative after that; blocks.

    None if the file has none, or cannot be read.
    """
    end_ms = expires_ms(certificate_file)
    return None if end_ms is None else (end_ms - now_ms) // _MS_PER_DAY


def expires_ms(certificate_file: Path) -> int | None:
    """Return when the first certificate of a file expires, in ms since 1970; blocks.

    None if the file has none, or cannot be read.
    """
    try:
        with certificate_file.open() as file:
            text = file.read(CERTIFICATE_FILE_SIZE_MAX)
        ends = [certificate_expiry_ms(ssl.PEM_cert_to_DER_cert(pem)) for pem in _certificates(text)]
    except (OSError, ValueError, IndexError):
        return None
    return min(ends) if ends else None


def _given(*paths: Path | None) -> tuple[Path, ...]:
    return tuple(path for path in paths if path is not None)


def _identity_remedy(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "The key belongs to another certificate: replace both"
    if error.reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return "Make a new certificate; ECDSA P-256 keys cost servers least"
    return "Both are PEM files; a key with a password needs the right one"


def _certificates(text: str) -> list[str]:
    """Return the certificates of a PEM file, each with its head and foot."""
    head, foot = ssl.PEM_HEADER, ssl.PEM_FOOTER
    return [f"{head}\n{part.partition(foot)[0].strip()}\n{foot}\n" for part in text.split(head)[1:]]


def rsa_key_bits(certificate_file: Path) -> int | None:
    """Return the size of the RSA key of a file's first certificate; blocks.

    None if it has another key, or cannot be read.
    """
    try:
        with certificate_file.open() as file:
            text = file.read(CERTIFICATE_FILE_SIZE_MAX)
        return _rsa_bits(ssl.PEM_cert_to_DER_cert(_certificates(text)[0]))
    except (OSError, ValueError, IndexError):
        return None


def _rsa_bits(der: bytes) -> int | None:
    _, _, position = _element(der, _validity_at(der))
    _, _, position = _element(der, position)  # Subject
    _, algorithm, _ = _element(der, position)  # SubjectPublicKeyInfo
    _, start, end = _element(der, algorithm)
    _, oid, oid_end = _element(der, start)
    if der[oid:oid_end] != _RSA:
        return None
    _, key, _ = _element(der, end)  # A bit string, whose first byte counts unused bits.
    _, start, _ = _element(der, key + 1)
    _, modulus, end = _element(der, start)
    return int.from_bytes(der[modulus:end]).bit_length()


def certificate_expiry_ms(der: bytes) -> int:
    """Return the end of a certificate's validity in milliseconds since 1970 (RFC 5280, 4.1)."""
    _, start, _ = _element(der, _validity_at(der))
    _, _, position = _element(der, start)  # notBefore
    tag, start, end = _element(der, position)
    form = "%y%m%d%H%M%SZ" if tag == 0x17 else "%Y%m%d%H%M%SZ"
    moment = datetime.strptime(der[start:end].decode("ascii"), form)
    return int(moment.replace(tzinfo=UTC).timestamp()) * 1000


def _validity_at(der: bytes) -> int:
    """Return where the field Validity of a certificate begins."""
    _, start, _ = _element(der, 0)  # Certificate
    _, position, _ = _element(der, start)  # TBSCertificate
    tag, _, end = _element(der, position)
    if tag == 0xA0:  # The version, which may be absent.
        position = end
    for _ in ("serial number", "signature", "issuer"):
        _, _, position = _element(der, position)
    return position


def _element(der: bytes, position: int) -> tuple[int, int, int]:
    """Return tag, start and end of the content of the DER element at `position`."""
    tag, length, start = der[position], der[position + 1], position + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(der[start : start + count]), start + count
    return tag, start, start + length
