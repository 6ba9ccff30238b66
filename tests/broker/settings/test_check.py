"""What `rocketrio-broker check` finds."""

import resource
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.support.private_files import private_file
from tests.support.tls import authority, write_files

from rocketrio_broker.cli import main

ACCOUNTS = (
    "accounts:\n- {accessKey: producer1, secretKey: marker-secret, topicPerms: [t=PUB, u=SUB]}\n"
    "- {accessKey: manager-1, secretKey: marker-secret, admin: true}\n"
)


def checked(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["check", *arguments], env={"NAMESRV_ADDR": None})
    assert "marker" not in result.output
    return result.exit_code, result.output


def test_users_are_counted(tmp_path: Path) -> None:
    accounts = private_file(tmp_path / "plain_acl.yml", ACCOUNTS)
    inner = private_file(tmp_path / "inner.yml", "accessKey: inner-1\nsecretKey: marker-inner\n")
    code, output = checked("--acl-file", str(accounts), "--inner-credentials", str(inner))
    assert code == 0
    assert "access control: users=3 super=2 disabled=0 entries=2 white_addresses=0" in output
    assert "inner credentials: user inner-1" in output
    assert "replication: off" in output


def test_everything_off_is_no_error(tmp_path: Path) -> None:
    code, output = checked("--set", f"data={tmp_path / 'none'}")
    assert code == 0
    assert "access control: off" in output


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (ACCOUNTS + "- {accessKey: x}\n", 0o600, "plain_acl.yml line 4: accessKey cannot be used"),
        ("accounts: [\n", 0o600, "plain_acl.yml line 2: not YAML"),
        (ACCOUNTS, 0o644, "chmod 600"),
        ("accounts: []\nglobalWhiteRemoteAddresses: ['*']\n", 0o600, "acl_white_addresses"),
    ],
)
def test_file_that_cannot_be_used_is_an_error_with_file_and_line(
    tmp_path: Path, text: str, mode: int, problem: str
) -> None:
    accounts = private_file(tmp_path / "plain_acl.yml", text, mode)
    code, output = checked("--acl-file", str(accounts))
    assert code == 1
    assert problem in output


def test_access_control_without_any_user_is_an_error(tmp_path: Path) -> None:
    code, output = checked("--set", "acl_enable=true", "--set", f"data={tmp_path}")
    assert code == 1
    assert "inner_credentials_file" in output


def test_data_that_others_may_read_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for folder in (data, data / "config", data / "commitlog"):
        folder.mkdir(0o700)
    private_file(data / "config" / "topics.json", "{}", 0o644)
    (data / "commitlog").chmod(0o755)
    code, output = checked("--set", f"data={data}")
    assert code == 0
    assert f"open to others: {data / 'config' / 'topics.json'}" in output
    assert f"open to others: {data / 'commitlog'}" in output
    assert f"open to others: {data};" not in output


def test_days_of_a_certificate_are_counted_and_an_expired_one_is_an_error(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    options = (
        "--set",
        f"tls_certificate_file={files.certificate}",
        "--set",
        f"tls_key_file={files.key}",
    )
    code, output = checked(*options)
    assert code == 0
    assert f"TLS: enforcing certificate={files.certificate} days_left=" in output
    expired = authority().issue_cert("localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    expired.cert_chain_pems[0].write_to_path(files.certificate)
    expired.private_key_pem.write_to_path(files.key)
    code, output = checked(*options)
    assert code == 1
    assert f"the certificate {files.certificate} expired" in output


def test_key_that_others_may_read_is_an_error(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    files.key.chmod(0o644)
    code, output = checked(
        "--set", f"tls_certificate_file={files.certificate}", "--set", f"tls_key_file={files.key}"
    )
    assert code == 1
    assert f"chmod 600 {files.key}" in output


@pytest.mark.parametrize("allowed", [4096, 20_000])
def test_descriptors_are_counted_and_few_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, allowed))
    code, output = checked("--set", f"data={tmp_path / 'none'}")
    assert code == 0
    assert f"file descriptors: {allowed}, {allowed - 512} of them for connections" in output
    assert ("LimitNOFILE=" in output) == (allowed == 4096)


@pytest.mark.parametrize(("bits", "is_costly"), [(2048, False), (3072, True), (None, False)])
def test_key_with_which_handshakes_are_slow_is_named(
    tmp_path: Path, bits: int | None, is_costly: bool
) -> None:
    key = (
        ec.generate_private_key(ec.SECP256R1())
        if bits is None
        else rsa.generate_private_key(65537, bits)
    )
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    both = tmp_path / "both.pem"
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    private_file(both, (key.private_bytes(pem, *form) + certificate.public_bytes(pem)).decode())
    code, output = checked(
        "--set", f"tls_certificate_file={both}", "--set", f"data={tmp_path / 'd'}"
    )
    assert code == 0
    assert (f"RSA of {bits} bits, handshakes are slow: use" in output) == is_costly
