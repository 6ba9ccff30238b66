"""Credentials: the account that a client signs its requests with, and the files that hold it.

    tools.yml, as Apache's tools read it        key, as Apache's clients read it
    accessKey: producer1                        AccessKey=producer1
    secretKey: "12345678"                       SecretKey=12345678

Invariant: the secret key and the security token appear in no text that Python makes of the object, and in no pickle.
Answers to: SessionCredentials, AclUtils.getAclRPCHook.
Unlike Java: a file without an account is an error, and so is one that others may read.
"""

from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import attrs
from attrs import validators

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import read_private

CREDENTIALS_FILE_SIZE_MAX: Final = 64 * 1024
"""Bytes of a file with credentials; a security token has a few KiB at most."""

_FIELDS: Final = {
    "accesskey": "access_key",
    "secretkey": "secret_key",
    "securitytoken": "security_token",
}
_QUOTES: Final = ("'", '"')


def _key(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check a key; the error says nothing of a wrong value, which is perhaps a secret."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{attribute.name} must be text that is not empty")
    if not value.isprintable() or value != value.strip():
        raise ConfigError(f"{attribute.name} has spaces around it, or characters that do not print")


@attrs.frozen
class Credentials:
    """An access key, which is a user name, and the secret key that belongs to it.

    `security_token` is sent and signed too; it accompanies temporary keys of a cloud (STS).
    """

    access_key: str = attrs.field(validator=_key)
    secret_key: str = attrs.field(validator=_key, repr=False)
    security_token: str | None = attrs.field(
        default=None, validator=validators.optional(_key), repr=False
    )

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Read credentials from a `tools.yml` or a `key` file; blocks.

        Raises ConfigError naming the file and line that is wrong, and for a file that other users may read.
        """
        path = Path(path)
        what = f"credentials file {path}"
        content = read_private(path, what, size_max=CREDENTIALS_FILE_SIZE_MAX)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{what} is not UTF-8 text") from error
        return cls(**_fields(text, what))

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError("Credentials are not made part of a text: format their access_key")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Credentials are not pickled, because the secret would be readable wherever the pickle goes:"
            " pass the path of a file, and call Credentials.from_file there"
        )


def _fields(text: str, what: str) -> dict[str, str]:
    """Return the fields of a file: lines of `key: value` or `key=value`, and comments."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(("#", "!", "---")):
            continue
        ends = [end for end in (line.find(":"), line.find("=")) if end > 0]
        if not ends:
            raise ConfigError(f"{what} line {number} is neither `key: value` nor `key=value`")
        end = min(ends)
        name = _FIELDS.get(line[:end].strip().strip("\"'").lower())
        if name is None:
            raise ConfigError(
                f"{what} line {number} is not one of accessKey, secretKey, securityToken"
            )
        if name in found:
            raise ConfigError(f"{what} line {number} gives a key a second time")
        value = _value(line[end + 1 :].strip(), f"{what} line {number}", yaml=line[end] == ":")
        if value or name != "security_token":
            found[name] = value
    for field, name in (("access_key", "accessKey"), ("secret_key", "secretKey")):
        if not found.get(field):
            raise ConfigError(
                f"{what} has no {name}", remedy="It needs the lines accessKey: and secretKey:"
            )
    return found


def _value(text: str, where: str, *, yaml: bool) -> str:
    if not yaml:
        return text
    if text.startswith(_QUOTES):
        end = text.find(text[0], 1)
        rest = text[end + 1 :].strip()
        if end < 0 or (rest and not rest.startswith("#")):
            raise ConfigError(f"{where}: the quotes are not closed, or stand in the value too")
        if text[0] == '"' and "\\" in text[:end]:
            raise ConfigError(f"{where} uses an escape", remedy="Use single quotes")
        return text[1:end]
    return text.split(" #", 1)[0].strip()
