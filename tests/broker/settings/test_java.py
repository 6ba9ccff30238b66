import tomllib

import pytest

from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.settings.java import (
    CHANGEABLE,
    changed_config,
    java_properties,
    path_of,
    toml_of,
)
from rocketrio_broker.settings.loading import setting_paths
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import BrokerError, ConfigError

SHOWN = {"configured": BrokerConfig(), "broker_addr": "10.0.0.1:10911", "ha_addr": "10.0.0.2:10912"}


def test_every_setting_that_can_change_exists() -> None:
    assert set(setting_paths()) >= CHANGEABLE


def test_what_is_shown_can_be_written_back() -> None:
    config = BrokerConfig()
    shown = java_properties(config, **SHOWN)
    changeable = {name: text for name, text in shown.items() if path_of(name) in CHANGEABLE}
    assert len(changeable) > 15
    assert changed_config(config, changeable) == config


def test_milliseconds_there_are_seconds_here() -> None:
    config = BrokerConfig(short_polling_time=0.25)
    assert java_properties(config, **SHOWN)["shortPollingTimeMills"] == "250"
    changed = changed_config(config, {"shortPollingTimeMills": "1500"})
    assert changed.short_polling_time == 1.5


def test_java_settings_have_host_and_port_apart() -> None:
    shown = java_properties(BrokerConfig(), **SHOWN)
    assert (shown["brokerIP1"], shown["listenPort"]) == ("10.0.0.1", "10911")
    assert (shown["brokerIP2"], shown["haListenPort"]) == ("10.0.0.2", "10912")


def test_java_settings_have_javas_words_for_roles_and_flushes() -> None:
    shown = java_properties(BrokerConfig(role="slave", broker_id=1), **SHOWN)
    assert (shown["brokerRole"], shown["flushDiskType"]) == ("SLAVE", "ASYNC_FLUSH")
    assert shown["accessMessageInMemoryMaxRatio"] == "40"
    assert "accessMessageInMemoryMaxBytes" not in shown


def test_settings_of_the_store_change_too() -> None:
    changed = changed_config(BrokerConfig(), {"accessMessageInMemoryMaxRatio": "0.5"})
    assert changed.store.access_message_in_memory_max_ratio == 0.5


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000, "nan", "inf", "1e300", "soon", "²"])
@pytest.mark.parametrize("name", ["transactionTimeOut", "fileReservedTime", "transactionCheckMax"])
def test_number_beyond_64_bits_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        changed_config(BrokerConfig(), {name: text})


def test_when_old_files_go_can_change() -> None:
    changed = changed_config(BrokerConfig(), {"deleteWhen": "04;16", "fileReservedTime": "24"})
    assert (changed.store.delete_when, changed.store.file_reserved_time) == ("04;16", 24.0)
    with pytest.raises(ConfigError, match="delete_when"):
        changed_config(BrokerConfig(), {"deleteWhen": "noon"})
    with pytest.raises(ConfigError, match="delete_when"):
        changed_config(BrokerConfig(), {"deleteWhen": "²"})


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("mappedFileSizeCommitLog", ResponseCode.NO_PERMISSION),
        ("brokerRole", ResponseCode.NO_PERMISSION),
        ("slaveReadEnabled", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_cannot_change_is_refused(name: str, code: ResponseCode) -> None:
    with pytest.raises(BrokerError, match=name) as caught:
        changed_config(BrokerConfig(), {name: "1"})
    assert caught.value.code == code


def test_a_wrong_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="slaveReadEnable is 'ture', neither true nor false"):
        changed_config(BrokerConfig(), {"slaveReadEnable": "ture"})
    with pytest.raises(ConfigError, match="shortPollingTimeMills is 'x'"):
        changed_config(BrokerConfig(), {"shortPollingTimeMills": "x"})
    with pytest.raises(ConfigError, match="must be > 0"):
        changed_config(BrokerConfig(), {"shortPollingTimeMills": "0"})


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("haDivergentTail", "cut", "ha_divergent_tail", "cut"),
        ("haMissingHistory", "restart", "ha_missing_history", "restart"),
        ("haReturn", "wait", "ha_return", "wait"),
        ("haReturnWait", "2500", "ha_return_wait", 2.5),
    ],
)
def test_what_replication_may_give_up_changes_while_it_runs(
    name: str, text: str, field: str, value: object
) -> None:
    assert getattr(changed_config(BrokerConfig(), {name: text}), field) == value


def test_choice_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="not one of refuse, cut"):
        changed_config(BrokerConfig(), {"haDivergentTail": "burn"})


def test_settings_that_the_4_9_tools_export_are_complete() -> None:
    """`mqadmin exportConfigs` of 4.9.7 ends with a NullPointerException where one is missing (ExportConfigsCommand)."""
    shown = java_properties(BrokerConfig(), **SHOWN)
    exported = """brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums flushDiskType
        maxMessageSize messageDelayLevel msgTraceTopicName slaveReadEnable traceOn traceTopicEnable useTLS
        autoCreateTopicEnable autoCreateSubscriptionGroup"""
    assert set(exported.split()) <= shown.keys()


def test_page_of_metrics_is_shown_under_the_names_of_rocketmq() -> None:
    off = java_properties(BrokerConfig(), **SHOWN)
    assert off["metricsExporterType"] == "DISABLE"
    assert "metricsPromExporterPort" not in off
    config = BrokerConfig(metrics_listen=":5557", metrics_label="zone:a")
    shown = java_properties(config, **SHOWN)
    assert shown["metricsExporterType"] == "PROM"
    assert shown["metricsPromExporterHost"] == "127.0.0.1"
    assert shown["metricsPromExporterPort"] == "5557"
    assert shown["metricsLabel"] == "zone:a"
    assert shown["metricsOtelCardinalityLimit"] == "50000"


def test_page_of_metrics_is_not_opened_from_afar() -> None:
    with pytest.raises(BrokerError, match="set metrics_listen and restart"):
        changed_config(BrokerConfig(), {"metricsExporterType": "PROM"})


def test_settings_file_of_apaches_broker_is_converted_to_toml() -> None:
    text = toml_of(
        {
            "brokerName": "broker-a",
            "brokerRole": "SYNC_MASTER",
            "brokerIP1": "10.0.0.5",
            "listenPort": "10921",
            "storePathRootDir": "/data/store",
            "autoCreateTopicEnable": "false",
            "flushDiskType": "ASYNC_FLUSH",
            "flushIntervalCommitLog": "1500",
            "deleteWhen": "04",
            "useEpollNativeSelector": "true",
            "brokerId": "zero",
        }
    )
    assert text is not None
    settings = tomllib.loads(text)
    assert settings == {
        "broker_name": "broker-a",
        "role": "sync-master",
        "listen": "10.0.0.5:10921",
        "data": "/data/store",
        "auto_create_topic_enable": False,
        "store": {
            "flush_disk_type": "async",
            "flush_interval_commit_log": 1.5,
            "delete_when": "04",
        },
    }
    assert "# useEpollNativeSelector=true\n" in text
    assert "# brokerId is 'zero', which is not a number" in text
    assert toml_of({"a": "b"}) is None
