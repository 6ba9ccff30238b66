"""How a command connects (`cli/cluster_options.py`): plain, with TLS, or with TLS that checks nothing."""

import ssl
from pathlib import Path

import pytest
from tests.client.cli.given_options import given, options_of, run
from tests.support.tls import write_files

from rocketrio import TlsOptions


def test_options_say_how_to_use_tls_and_each_of_them_that_it_is_used(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    assert options_of().get("tls") is None
    assert options_of("--tls").get("tls") is True
    assert options_of("--tls-ca", files.authority).get("tls") == TlsOptions(files.authority)
    assert options_of(
        "--tls-cert", files.certificate, "--tls-key", files.key,
        ROCKETRIO_TLS_CA_FILE=str(files.authority),
    ).get("tls") == TlsOptions(files.authority, files.certificate, files.key)  # fmt: skip


def test_insecure_checks_no_certificate_and_warns_on_standard_error() -> None:
    done = run("--tls-insecure")
    assert "checks no certificate" in done.stderr
    assert done.stdout == ""
    context = given.pop().get("tls")
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname


@pytest.mark.parametrize(
    "arguments",
    [("--tls-ca", "/none"), ("--tls-key", __file__), ("--tls-insecure", "--tls-cert", __file__)],
)
def test_wrong_files_are_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.exit_code == 2, done.output
