import pytest

from rocketrio_protocol.access.white_addresses import AddressPattern
from rocketrio_protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("*", ["1.2.3.4", "::1", "host"], []),
        ("*.*.*.*", ["1.2.3.4"], []),
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.30", "::1", "host"]),
        ("10.1.2.3, 10.1.2.5", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.2.{3,5}", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.1"]),
        ("10.1.*.*", ["10.1.9.9"], ["10.2.0.0"]),
        ("10.1.2.4-20", ["10.1.2.4", "10.1.2.20"], ["10.1.2.3", "10.1.2.21"]),
        ("10.1.1-2.*", ["10.1.1.7", "10.1.2.7"], ["10.1.3.7"]),
        ("2001:db8::1", ["2001:DB8:0:0::1"], ["2001:db8::2", "10.1.2.3"]),
        ("2001:db8:0:0:0:0:0:*", ["2001:db8::ffff"], ["2001:db8::1:0"]),
        ("2001:db8::{1,f}", ["2001:db8::f"], ["2001:db8::2"]),
        ("2001:db8::1-af", ["2001:db8::a0"], ["2001:db8::b0"]),
    ],
)
def test_pattern_matches_its_addresses_alone(
    text: str, inside: list[str], outside: list[str]
) -> None:
    patterns = AddressPattern.parse_all(text)
    assert [host for host in inside if not any(each.matches(host) for each in patterns)] == []
    assert [host for host in outside if any(each.matches(host) for each in patterns)] == []


@pytest.mark.parametrize(
    "text",
    ["", "10.1.2", "10.1.2.256", "10.1.2.20-4", "10.1.2.{}", "10.1.2.{3", "host", "10.1.2.3/8", "1:2:3", "::1::2",
     "10.1.2.-4", "10.1.2.+4", "1.2.3.4," , "x" * 1001],
)  # fmt: skip
def test_pattern_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        AddressPattern.parse_all(text)
