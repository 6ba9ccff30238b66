"""How a command connects (`cli/cluster_options.py`): plain, with TLS, or with TLS that checks nothing."""

import ssl
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.support.tls import write_files

from rocketrio import TlsOptions
from rocketrio.cli.cluster_options import client_options
from rocketrio.cluster.tls import GivenTls
from rocketrio.connect import ClientOptions

given: list[ClientOptions] = []


@click.command()
@client_options
def command(client: ClientOptions, verbose: int) -> None:
    given.append(client)


def run(*arguments: object, **environ: str) -> Result:
    return CliRunner().invoke(command, [str(each) for each in arguments], env=environ)


def tls_of(*arguments: object, **environ: str) -> GivenTls:
    done = run(*arguments, **environ)
    assert done.exit_code == 0, done.output
    return given.pop().get("tls")


def test_options_say_how_to_use_tls_and_each_of_them_that_it_is_used(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    assert tls_of() is None
    assert tls_of("--tls") is True
    assert tls_of("--tls-ca", files.authority) == TlsOptions(files.authority)
    assert tls_of(
        "--tls-cert", files.certificate, "--tls-key", files.key,
        ROCKETRIO_TLS_CA_FILE=str(files.authority),
    ) == TlsOptions(files.authority, files.certificate, files.key)  # fmt: skip


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
