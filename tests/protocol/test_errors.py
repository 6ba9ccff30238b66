"""Errors: what their text says."""

import pytest

from rocketrio_protocol.errors import (
    REMARK_SHOWN,
    BrokerSystemError,
    Error,
    NoPermissionError,
    NotAuthenticatedError,
    NotAuthorizedError,
    broker_error,
)


def test_a_monstrous_remark_is_kept_whole_and_shown_in_part() -> None:
    error = broker_error("not stored", code=1, remark="x" * 1_000_000)
    assert error.remark == "x" * 1_000_000
    assert "x" * REMARK_SHOWN + "..." in str(error)
    assert len(str(error)) < REMARK_SHOWN + 200


APACHE_4 = (
    "org.apache.rocketmq.acl.common.AclException: {}, org.apache.rocketmq.acl.plain.Plain.validate"
)


@pytest.mark.parametrize(
    ("code", "remark", "expected"),
    [
        (1, APACHE_4.format("No accessKey is configured"), NotAuthenticatedError),
        (1, APACHE_4.format("No acl config for K"), NotAuthenticatedError),
        (1, APACHE_4.format("Check signature failed for accessKey=K"), NotAuthenticatedError),
        (1, APACHE_4.format("No default permission for topic:T"), NotAuthorizedError),
        (1, APACHE_4.format("Need admin permission for request code=17"), NotAuthorizedError),
        (1, "java.lang.NullPointerException", BrokerSystemError),
        (16, "username cannot be null.", NotAuthenticatedError),
        (16, "User:U is not found.", NotAuthenticatedError),
        (16, "User:U is disabled.", NotAuthenticatedError),
        (16, "check signature failed.", NotAuthenticatedError),
        (
            16,
            "User:U has no permission to access Topic:T from 1.2.3.4, no matched policies.",
            NotAuthorizedError,
        ),
        (16, "the broker[10.0.0.1:10911] sending message is forbidden", NoPermissionError),
        (16, None, NoPermissionError),
    ],
)
def test_answer_of_access_control_is_distinguished_from_other_failures(
    code: int, remark: str | None, expected: type[Error]
) -> None:
    error = broker_error("not stored", code=code, remark=remark)
    assert type(error) is expected
    if expected in (NotAuthenticatedError, NotAuthorizedError):
        assert not error.retryable
        assert not error.stale_route
