"""The options of reads and writes that say with which account a cluster is used, and whether over TLS.

`credentialsFile` is the safest: the driver and the executors read the file, so that no plan of Spark holds a secret. A
key that is changed there is used soon. `secretKey` travels with the query to its tasks.

Invariant: no text that Python makes of these values has a secret in it, and no error shows one.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from rocketrio.cluster.account import file_provider
from rocketrio.connect import ClientOptions
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import truth
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.tls_files import TlsOptions

_ACCOUNT: Final = ("accessKey", "secretKey", "securityToken", "credentialsFile")
_TLS_FILES: Final = {
    "tls.caFile": "tls_ca_file",
    "tls.certFile": "tls_cert_file",
    "tls.keyFile": "tls_key_file",
    "tls.keyPasswordFile": "tls_key_password_file",
}
_TLS: Final = ("tls", *_TLS_FILES, "tls.checkHostName")
ACCESS_OPTION_NAMES: Final = (*_ACCOUNT, *_TLS)


@attrs.frozen
class ClusterAccess:
    """An account and TLS, as they travel from the driver to executors; what is not given, the environment says."""

    access_key: str | None = None
    secret_key: str | None = attrs.field(default=None, repr=False)
    security_token: str | None = attrs.field(default=None, repr=False)
    credentials_file: str | None = None
    tls: bool | None = None
    """None means the environment."""
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_key_password_file: str | None = None
    tls_check_host_name: bool = True

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
        return (
            True if chosen == TlsOptions() else chosen
        )  # With True the environment may name the authority.


OF_THE_ENVIRONMENT: Final = ClusterAccess()


def access_of(texts: Mapping[str, str]) -> ClusterAccess:
    """Return the account and the use of TLS that options name. Raises OptionError, which shows no secret."""
    given = {name: texts[name].strip() for name in ACCESS_OPTION_NAMES if name in texts}
    for name, text in given.items():
        if not text:
            raise OptionError(f"{name} is blank; leave it out")
    return attrs.evolve(_account_of(given), **_tls_of(given))


def _account_of(given: Mapping[str, str]) -> ClusterAccess:
    fields = {name: given[name] for name in _ACCOUNT if name in given}
    access_key, secret_key, token, path = map(fields.get, _ACCOUNT)
    if path is not None and len(fields) > 1:
        others = ", ".join(name for name in fields if name != "credentialsFile")
        raise OptionError(f"credentialsFile holds the whole account; leave out {others}")
    if path is None and fields and (access_key is None or secret_key is None):
        missing = [name for name in _ACCOUNT[:2] if name not in fields]
        raise OptionError(f"{' and '.join(fields)} needs {' and '.join(missing)} too")
    if access_key is not None and secret_key is not None:
        try:
            Credentials(access_key, secret_key, token)
        except ConfigError as error:
            raise OptionError(error.what) from None
    return ClusterAccess(access_key, secret_key, token, path)


def _tls_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields about TLS; an option about it means that it is used."""
    fields: dict[str, Any] = {
        field: given[name] for name, field in _TLS_FILES.items() if name in given
    }
    if "tls.checkHostName" in given:
        fields["tls_check_host_name"] = truth(
            given["tls.checkHostName"], option="tls.checkHostName"
        )
    others = [name for name in _TLS[1:] if name in given]
    if "tls" in given:
        fields["tls"] = truth(given["tls"], option="tls")
        if others and not fields["tls"]:
            raise OptionError(f"{others[0]} has no effect with tls=false")
    elif others:
        fields["tls"] = True
    if "tls.certFile" not in given:
        for name in ("tls.keyFile", "tls.keyPasswordFile"):
            if name in given:
                raise OptionError(f"{name} is given without tls.certFile")
    return fields
