"""Errors: what their text says."""

from rocketrio_protocol.errors import REMARK_SHOWN, broker_error


def test_a_monstrous_remark_is_kept_whole_and_shown_in_part() -> None:
    error = broker_error("not stored", code=1, remark="x" * 1_000_000)
    assert error.remark == "x" * 1_000_000
    assert "x" * REMARK_SHOWN + "..." in str(error)
    assert len(str(error)) < REMARK_SHOWN + 200
