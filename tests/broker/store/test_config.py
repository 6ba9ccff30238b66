import attrs
import pytest

from rocketrio_broker.store.config import StoreConfig
from rocketrio_protocol.errors import ConfigError


def test_every_field_is_documented() -> None:
    for field in attrs.fields(StoreConfig):
        assert field.metadata["help"].endswith("."), field.name


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"mapped_file_size_consume_queue": 6001}, "multiple of 20"),
        ({"delete_when": "25"}, "delete_when"),
        ({"delete_when": "x"}, "delete_when"),
        ({"message_delay_level": ""}, "message_delay_level"),
        ({"message_delay_level": "1s 5"}, "message_delay_level"),
        ({"message_delay_level": "0s 5s"}, "message_delay_level"),
        ({"disk_max_used_space_ratio": 95.0}, "disk_max_used_space_ratio"),
    ],
)
def test_values_that_cannot_be_are_refused(values: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        StoreConfig(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mapped_file_size_commit_log", 100),
        ("flush_disk_type", "never"),
        ("flush_interval_commit_log", 0.0),
        ("max_index_num", 1),
        ("max_topic_length", 128),
    ],
)
def test_values_outside_their_range_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        StoreConfig(**{name: value})  # type: ignore[arg-type]
