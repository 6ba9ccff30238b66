"""Whether a client uses TLS (`cluster/tls.py`): arguments, environment and options of the command line."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from rocketrio import ConfigError, TlsOptions
from rocketrio.cluster.tls import given_tls

CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.mark.parametrize(
    ("given", "environment", "wanted"),
    [
        (None, {}, None),
        (None, {"ROCKETRIO_TLS": "false"}, None),
        (None, {"ROCKETRIO_TLS": "true"}, TlsOptions()),
        (None, {"ROCKETRIO_TLS": "1", "ROCKETRIO_TLS_CA_FILE": "ca.pem"}, TlsOptions("ca.pem")),
        (None, {"ROCKETRIO_TLS_CA_FILE": "ca.pem"}, TlsOptions("ca.pem")),
        (None, {"ROCKETRIO_TLS": "no", "ROCKETRIO_TLS_CA_FILE": "ca.pem"}, None),
        (True, {"ROCKETRIO_TLS_CA_FILE": "ca.pem"}, TlsOptions("ca.pem")),
        (False, {"ROCKETRIO_TLS": "true"}, None),
        (TlsOptions("other.pem"), {"ROCKETRIO_TLS_CA_FILE": "ca.pem"}, TlsOptions("other.pem")),
        (CONTEXT, {"ROCKETRIO_TLS": "true"}, CONTEXT),
    ],
)
def test_argument_wins_over_environment(
    given: Any, environment: dict[str, str], wanted: Any
) -> None:
    assert given_tls(given, environ=environment) == wanted


def test_context_may_be_given_under_both_names_but_once() -> None:
    assert given_tls(None, CONTEXT, {}) is CONTEXT
    with pytest.raises(ConfigError, match="not both"):
        given_tls(CONTEXT, CONTEXT, {})


@pytest.mark.parametrize(
    ("given", "context"), [("ca.pem", None), (1.5, None), (None, "ca.pem"), (Path("x"), None)]
)
def test_other_types_are_refused_with_what_to_write(given: Any, context: Any) -> None:
    with pytest.raises(ConfigError, match="TlsOptions"):
        given_tls(given, context, {})


def test_environment_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(ConfigError, match="ROCKETRIO_TLS is 'maybe'"):
        given_tls(None, environ={"ROCKETRIO_TLS": "maybe"})
