from pathlib import Path
from typing import Any

import attrs
import click
import pytest
from tests.support.clocks import SettableClock

from rocketrio_broker.cli import run
from rocketrio_broker.settings.config import SETTINGS, BrokerConfig, LiveConfig
from rocketrio_protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"role": "slave"}, "a master has id 0"),
        ({"broker_id": 1}, "a master has id 0"),
        ({"cluster_name": "a b"}, "cluster_name"),
        ({"broker_name": ""}, "broker_name"),
        ({"listen": "10911"}, "host:port"),
        ({"namesrv": "127.0.0.1:9876;nowhere"}, "nowhere"),
        ({"ha_listen": "x:99999"}, "host:port"),
    ],
)
def test_settings_that_cannot_go_together_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        BrokerConfig(**settings)


@pytest.mark.parametrize(
    "settings",
    [{"role": "boss"}, {"tls_mode": "on"}, {"broker_id": -1}, {"short_polling_time": 0}],
)
def test_values_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ValueError, match=name):
        BrokerConfig(**settings)


def test_every_setting_says_what_it_is_for() -> None:
    for kind in (BrokerConfig, type(BrokerConfig().store)):
        for field in attrs.fields(kind):
            assert field.metadata["help"].endswith("."), field.name


def test_settings_without_words_of_their_own_may_be_none() -> None:
    config = BrokerConfig(tls_mode=None, tls_client_auth=None)
    assert config.server_tls.effective_mode == "disabled"


def test_every_flag_that_a_setting_declares_is_an_option_of_run() -> None:
    flags = {
        path: field.metadata["flag"] for path, field in SETTINGS.items() if field.metadata["flag"]
    }
    options = {param.name: param for param in run.params if isinstance(param, click.Option)}
    assert len(flags) == 8
    for path, flag in flags.items():
        assert (options[path].opts, options[path].help) == ([flag.name], flag.help)


def test_name_servers_are_separated_by_semicolons() -> None:
    assert BrokerConfig(namesrv="a:1; b:2;").name_servers == ("a:1", "b:2")
    assert BrokerConfig().name_servers == ()


def test_slaves_are_served_on_the_next_port_unless_ports_are_free() -> None:
    assert BrokerConfig(listen="h:10911").ha_listen_for("h:10911") == "h:10912"
    assert BrokerConfig(listen="h:0").ha_listen_for("h:40000") == "h:0"
    assert BrokerConfig(ha_listen="h:7").ha_listen_for("h:10911") == "h:7"


def test_files_of_a_broker_lie_under_its_data() -> None:
    assert BrokerConfig(data=Path("/d")).config_directory == Path("/d/config")


def test_only_a_real_change_is_one() -> None:
    live = LiveConfig(BrokerConfig(), wall_clock=SettableClock())
    version = live.data_version
    live.replace(BrokerConfig())
    assert (live.data_version, live.changes.value) == (version, 0)
    live.replace(BrokerConfig(slave_read_enable=True))
    assert live.data_version.counter == version.counter + 1
    assert live.changes.value == 1


@pytest.mark.parametrize(
    ("listen", "address"),
    [("", None), (":5557", "127.0.0.1:5557"), ("0.0.0.0:5557", "0.0.0.0:5557")],
)
def test_metrics_are_on_loopback_unless_a_host_is_named(listen: str, address: str | None) -> None:
    assert BrokerConfig(metrics_listen=listen).metrics_address == address


@pytest.mark.parametrize("text", ["zone-a:b", "cluster:x", ":x"])
def test_label_that_prometheus_or_the_page_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="metrics_label"):
        BrokerConfig(metrics_label=text)


def test_further_labels_of_metrics_are_separated_by_commas() -> None:
    assert BrokerConfig(metrics_label="zone:a:1, rack:7,").metrics_labels == {
        "zone": "a:1",
        "rack": "7",
    }
