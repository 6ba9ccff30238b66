"""Which secrets, keys and certificates are used (`ha/link_files.py`)."""

import subprocess
from pathlib import Path

import pytest
import trustme
from tests.support.replication import secret_file, write_private

from rocketrio_broker.ha.link_files import (
    SECRET_SIZE_MAX,
    SECRET_SIZE_MIN,
    SECRET_VARIETY_MIN,
    load_link_security,
)
from rocketrio_broker.ha.link_security import LinkSecurity
from rocketrio_protocol.errors import ConfigError


def with_tls(authority: trustme.CA, folder: Path) -> LinkSecurity:
    """A broker's settings, with a certificate of this authority, and its file as it is if there is one."""
    authority.cert_pem.write_to_path(folder / "authority.pem")
    if not (folder / "broker.pem").exists():
        write_private(authority.issue_cert("broker-a"), folder / "broker.pem")
    return load_link_security(
        certificate_file=folder / "broker.pem", authority_file=folder / "authority.pem"
    )


def test_files_that_are_missing_or_wrong_are_named(tmp_path: Path, authority: trustme.CA) -> None:
    with pytest.raises(ConfigError, match=r"ha_secret_file .*none cannot be read"):
        load_link_security(secret_file=tmp_path / "none")
    secret_file(tmp_path / "text", "no certificate")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with pytest.raises(ConfigError, match=r"ha_tls_certificate_file .*text cannot be used"):
        load_link_security(
            certificate_file=tmp_path / "text", authority_file=tmp_path / "authority.pem"
        )
    with pytest.raises(ConfigError, match="ha_tls_authority_file"):
        load_link_security(certificate_file=tmp_path / "text")


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param("0123456789abcdef"[: SECRET_SIZE_MIN - 1], id="short"),
        pytest.param(f"  {'0123456789abcdef'[: SECRET_SIZE_MIN - 1]}\n", id="short but for blanks"),
        pytest.param("abcdefgh"[: SECRET_VARIETY_MIN - 1] * 8, id="pattern"),
        pytest.param("0123456789abcdef" * (SECRET_SIZE_MAX // 16 + 1), id="another file"),
        pytest.param("", id="empty"),
    ],
)
def test_weak_secret_is_refused_with_the_command_that_makes_a_good_one(
    tmp_path: Path, secret: str
) -> None:
    path = secret_file(tmp_path / "secret", secret)
    with pytest.raises(ConfigError, match=f"openssl rand -base64 32 > {path}"):
        load_link_security(secret_file=path)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o644])
def test_secret_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = secret_file(tmp_path / "secret")
    for name in ("secret", "link"):
        if name == "link":
            (tmp_path / name).symlink_to(path)
        path.chmod(mode)
        with pytest.raises(ConfigError, match=rf"open to others \(mode {mode:04o}\).*chmod 600"):
            load_link_security(secret_file=tmp_path / name)
        path.chmod(0o400)
        assert load_link_security(secret_file=tmp_path / name).is_proof_asked


@pytest.mark.parametrize("mode", [0o604, 0o640])
def test_key_that_others_can_read_is_refused(
    authority: trustme.CA, tmp_path: Path, mode: int
) -> None:
    with_tls(authority, tmp_path)
    (tmp_path / "broker.pem").chmod(mode)
    with pytest.raises(ConfigError, match=rf"key in .*broker.pem is open .*{mode:04o}.*chmod 600"):
        with_tls(authority, tmp_path)


def test_key_with_a_password_is_refused_without_a_prompt(
    authority: trustme.CA, tmp_path: Path
) -> None:
    with_tls(authority, tmp_path)
    key = tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "pkey", "-in", tmp_path / "broker.pem", "-aes256", "-passout", "pass:x", "-out", key],
        check=True,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="is encrypted"):
        load_link_security(
            certificate_file=tmp_path / "broker.pem",
            key_file=key,
            authority_file=tmp_path / "authority.pem",
        )
