"""Which files TLS uses, and which it refuses (`remoting/tls_files.py`)."""

import ssl
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from tests.support.private_files import private_file
from tests.support.replication import write_private
from tests.support.tls import authority, write_files

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.tls_files import (
    ServerTlsFiles,
    TlsIdentity,
    TlsOptions,
    days_left,
)


@pytest.fixture
def pair(tmp_path: Path) -> TlsIdentity:
    """Write a certificate and its key, in two files."""
    return write_files(tmp_path).identity


def test_server_and_client_contexts_check_what_is_configured(
    pair: TlsIdentity, tmp_path: Path
) -> None:
    files = ServerTlsFiles(
        identity=pair, client_authority_file=tmp_path / "ca.pem", client_auth="require"
    )
    assert files.context().verify_mode is ssl.CERT_REQUIRED
    assert set(files.files()) == {tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem")}
    client = TlsOptions(tmp_path / "ca.pem", pair.certificate_file, pair.key_file).context()
    assert client.verify_mode is ssl.CERT_REQUIRED
    assert client.check_hostname
    assert not TlsOptions(check_host_name=False).context().check_hostname
    assert TlsOptions(check_host_name=False).context().verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("mode", [0o604, 0o640])
def test_key_that_others_can_read_is_refused_with_the_command_that_mends_it(
    pair: TlsIdentity, mode: int
) -> None:
    assert pair.key_file is not None
    pair.key_file.chmod(mode)
    with pytest.raises(ConfigError, match=rf"open to others \(mode {mode:04o}\).*chmod 600"):
        ServerTlsFiles(identity=pair).context()


def test_missing_files_are_named(pair: TlsIdentity, tmp_path: Path) -> None:
    for certificate, key in (("none", "key.pem"), ("cert.pem", "none")):
        identity = TlsIdentity(certificate_file=tmp_path / certificate, key_file=tmp_path / key)
        with pytest.raises(ConfigError, match=r"none.*No such file"):
            ServerTlsFiles(identity=identity).context()
    with pytest.raises(ConfigError, match=r"authority_file .*none cannot be used: No such file"):
        TlsOptions(tmp_path / "none").context()


def test_key_of_another_certificate_is_named_as_that(pair: TlsIdentity, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    write_private(authority().issue_cert("other"), other)
    with pytest.raises(ConfigError, match=r"key values mismatch.*belongs to another certificate"):
        ServerTlsFiles(
            identity=TlsIdentity(certificate_file=pair.certificate_file, key_file=other)
        ).context()


def encrypted(pair: TlsIdentity) -> Path:
    """Return the key with the password `marker`."""
    assert pair.key_file is not None
    path = private_file(pair.key_file.with_name("encrypted.pem"), "")
    argv = ["openssl", "pkey", "-in", pair.key_file, "-aes256", "-passout", "pass:marker", "-out"]
    subprocess.run([*argv, path], check=True)
    return path


def test_encrypted_key_is_opened_with_the_password_of_a_file_or_an_option(
    pair: TlsIdentity, tmp_path: Path
) -> None:
    password = private_file(tmp_path / "password", "marker\n")
    key = encrypted(pair)
    TlsIdentity(certificate_file=pair.certificate_file, key_file=key, password_file=password)
    options = TlsOptions(None, pair.certificate_file, key, "marker")
    options.context()
    assert "marker" not in repr(options)
    TlsOptions(None, pair.certificate_file, key, key_password_file=password).context()
    password.chmod(0o644)
    with pytest.raises(ConfigError, match="open to others"):
        TlsOptions(None, pair.certificate_file, key, key_password_file=password).context()


def test_encrypted_key_without_or_with_a_wrong_password_is_refused_and_never_prompts(
    pair: TlsIdentity,
) -> None:
    key = encrypted(pair)
    with pytest.raises(ConfigError, match=r"is encrypted.*openssl pkey"):
        TlsOptions(None, pair.certificate_file, key).context()
    with pytest.raises(ConfigError, match="cannot be used with the key") as raised:
        TlsOptions(None, pair.certificate_file, key, "not marker").context()
    assert "not marker" not in str(raised.value)


def test_client_certificates_need_an_authority(pair: TlsIdentity) -> None:
    with pytest.raises(ConfigError, match=r"no authority.*tls_client_authority_file"):
        ServerTlsFiles(identity=pair, client_auth="optional")


def test_key_without_certificate_is_refused(pair: TlsIdentity) -> None:
    with pytest.raises(ConfigError, match="without certificate_file"):
        TlsOptions(key_file=pair.key_file)


@pytest.mark.parametrize("key_type", [trustme.KeyType.RSA, trustme.KeyType.ECDSA])
@pytest.mark.parametrize("days", [-3, 5, 20_000])
def test_days_left_are_those_of_the_certificate_that_ends_first(
    tmp_path: Path, key_type: trustme.KeyType, days: int
) -> None:
    ca = trustme.CA(key_type=key_type)
    end = datetime.now(UTC) + timedelta(days=days, minutes=1)
    begin = datetime.now(UTC) - timedelta(days=100)
    path = tmp_path / "chain.pem"
    ca.issue_cert("a", not_before=begin, not_after=end).cert_chain_pems[0].write_to_path(path)
    later = ca.issue_cert("b", not_before=begin, not_after=end + timedelta(days=9))
    later.cert_chain_pems[0].write_to_path(path, append=True)
    assert days_left(path, int(time.time() * 1000)) == days


def test_days_left_of_what_is_no_certificate_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "text"
    assert days_left(path, 0) is None
    for text in ("", "words", "-----BEGIN CERTIFICATE-----\nMAMBAgM=\n-----END CERTIFICATE-----\n"):
        path.write_text(text)
        assert days_left(path, 0) is None
