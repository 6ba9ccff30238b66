import pytest

from rocketrio_protocol.codes import PROTOCOL_VERSION, PROTOCOL_VERSION_NAME
from rocketrio_protocol.versions import version_name, version_number


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (PROTOCOL_VERSION, PROTOCOL_VERSION_NAME),
        (0, "BEFORE_V4"),
        (211, "BEFORE_V4"),
        (212, "V4_0_0_SNAPSHOT"),
        (213, "V4_0_0"),
        (353, "V4_7_0"),
        (413, "V5_0_0"),
        (479, "V5_3_3"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (99_999, "HIGHER_VERSION"),
    ],
)
def test_number_of_a_version_has_the_name_of_mq_version(number: int, name: str) -> None:
    assert version_name(number) == name


@pytest.mark.parametrize(
    ("name", "number"),
    [("4.9.7", 407), ("V5_3_3", 479), ("v5.3.3_snapshot", 478), ("4.9", None), ("x", None)],
)
def test_number_of_a_version_by_its_name(name: str, number: int | None) -> None:
    assert version_number(name) == number
