"""The options of reads and writes that say which cluster is used, with which account, and whether over TLS.

`credentialsFile` is the safest: the driver and the executors read the file, so that no plan of Spark holds a secret. A
key that is changed there is used soon. `secretKey` travels with the query to its tasks.

Invariant: no text that Python makes of these values has a secret in it, and no error shows one.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from rocketrio.cluster.account import file_provider
from rocketrio.cluster.name_servers import name_server_addresses
from rocketrio.cluster.variables import (
    ACCESS_KEY_VARIABLE,
    CREDENTIALS_FILE_VARIABLE,
    DEFAULT_NAME_SERVER,
    NAME_SERVERS_VARIABLE,
    SECRET_KEY_VARIABLE,
    TLS_CA_FILE_VARIABLE,
    TLS_VARIABLE,
)
from rocketrio.connect import ClientOptions
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_kinds import FILE, SECRET, SERVERS, TEXT
from rocketrio.spark.options import declared, option, values_of
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.tls_files import TlsOptions

_ACCOUNT: Final = ("accessKey", "secretKey", "securityToken", "credentialsFile")


@attrs.frozen
class Servers:
    """The name servers, which reads and writes declare at their beginning."""

    name_servers: tuple[str, ...] = option(
        "nameServer",
        (),
        SERVERS,
        argument="name_servers",
        shown=f"`{NAME_SERVERS_VARIABLE}`, else `{DEFAULT_NAME_SERVER}`",
    )
    """host:port, several separated by semicolons"""


@attrs.frozen
class ClusterAccess:
    """An account and TLS, as they travel from the driver to executors; what is not given, the environment says."""

    access_key: str | None = option("accessKey", None, TEXT, shown=f"`{ACCESS_KEY_VARIABLE}`")
    """the account that signs requests"""
    secret_key: str | None = option("secretKey", None, SECRET, shown=f"`{SECRET_KEY_VARIABLE}`")
    """its secret, which travels with the query; `credentialsFile` avoids that"""
    security_token: str | None = option("securityToken", None, SECRET)
    """the token that accompanies temporary keys of a cloud"""
    credentials_file: str | None = option(
        "credentialsFile", None, FILE, shown=f"`{CREDENTIALS_FILE_VARIABLE}`"
    )
    """a file with `accessKey` and `secretKey` instead, at the same path on the driver and all executors"""
    tls: bool | None = option("tls", None, shown=f"`{TLS_VARIABLE}`, else `false`")
    """`true`: connections use TLS; the next options mean it too; driver and executors read their files"""
    tls_ca_file: str | None = option(
        "tls.caFile", None, FILE, shown=f"`{TLS_CA_FILE_VARIABLE}`, else this machine's"
    )
    """the authority that signs the certificates of servers"""
    tls_cert_file: str | None = option("tls.certFile", None, FILE)
    """the client's own certificate, for servers that ask for one"""
    tls_key_file: str | None = option("tls.keyFile", None, FILE)
    """its key, if it is in another file"""
    tls_key_password_file: str | None = option("tls.keyPasswordFile", None, FILE)
    """a file with the password of the key"""
    tls_check_host_name: bool = option("tls.checkHostName", True)
    """`false`: a certificate may name another host, if the authority has signed it"""

    def client_options(self, name_servers: tuple[str, ...]) -> ClientOptions:
        """Return the arguments of `open_client`."""
        options = ClientOptions(name_servers=name_servers)
        if self.credentials_file is not None:
            options["credentials"] = file_provider(self.credentials_file)
        elif self.access_key is not None and self.secret_key is not None:
            options["credentials"] = Credentials(
                self.access_key, self.secret_key, self.security_token
            )
        if self.tls is not None:
            options["tls"] = self._tls_options() if self.tls else False
        return options

    def _tls_options(self) -> TlsOptions | bool:
        chosen = TlsOptions(
            self.tls_ca_file,
            self.tls_cert_file,
            self.tls_key_file,
            check_host_name=self.tls_check_host_name,
            key_password_file=self.tls_key_password_file,
        )
        # With True the environment may name the authority.
        return True if chosen == TlsOptions() else chosen


OF_THE_ENVIRONMENT: Final = ClusterAccess()
ACCESS_OPTIONS: Final = declared(ClusterAccess)


def name_servers_of(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses in `nameServer`, or in the environment if the option is not given."""
    try:
        return name_server_addresses(texts.get("nameServer"))
    except ConfigError as error:
        if "nameServer" not in texts:
            raise OptionError(
                f"{NAME_SERVERS_VARIABLE} in the environment: {error.what}"
            ) from error
        raise OptionError(
            f"nameServer={texts['nameServer']!r} is not host:port;host:port"
        ) from error


def access_of(texts: Mapping[str, str]) -> ClusterAccess:
    """Return the account and the use of TLS that options name. Raises OptionError, which shows no secret."""
    given = {name: texts[name].strip() for name in ACCESS_OPTIONS if name in texts}
    for name, text in given.items():
        if not text:
            raise OptionError(f"{name} is blank; leave it out")
    _check_account(given)
    fields = values_of(ClusterAccess, given)
    if others := [name for name in given if name.startswith("tls.")]:
        if not fields.setdefault("tls", True):  # An option about TLS means that it is used.
            raise OptionError(f"{others[0]} has no effect with tls=false")
        if "tls.certFile" not in given:
            for name in ("tls.keyFile", "tls.keyPasswordFile"):
                if name in given:
                    raise OptionError(f"{name} is given without tls.certFile")
    return ClusterAccess(**fields)


def _check_account(given: Mapping[str, str]) -> None:
    """Raise OptionError for an account that is not whole, or given in two ways."""
    names = [name for name in _ACCOUNT if name in given]
    access_key, secret_key, token, path = map(given.get, _ACCOUNT)
    if path is not None and len(names) > 1:
        others = ", ".join(name for name in names if name != "credentialsFile")
        raise OptionError(f"credentialsFile holds the whole account; leave out {others}")
    if path is None and names and (access_key is None or secret_key is None):
        missing = [name for name in _ACCOUNT[:2] if name not in names]
        raise OptionError(f"{' and '.join(names)} needs {' and '.join(missing)} too")
    if access_key is not None and secret_key is not None:
        try:
            Credentials(access_key, secret_key, token)
        except ConfigError as error:
            raise OptionError(error.what) from None
