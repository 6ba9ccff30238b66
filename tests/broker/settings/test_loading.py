from pathlib import Path

import pytest

from rocketrio.cluster import account
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.settings.loading import load_config, setting_paths
from rocketrio_protocol.errors import ConfigError


def load(
    toml: str | None = None,
    *,
    tmp_path: Path,
    given: dict[str, object] | None = None,
    environment: dict[str, str] | None = None,
) -> BrokerConfig:
    file = None
    if toml is not None:
        file = tmp_path / "broker.toml"
        file.write_text(toml)
    return load_config(file=file, given=given or {}, environment=environment or {})


def test_options_win_over_the_environment_that_over_the_file_that_over_the_defaults(
    tmp_path: Path,
) -> None:
    toml = 'broker_name = "file"\ncluster_name = "file"\nregion_id = "file"'
    environment = {"ROCKETRIO_BROKER_NAME": "env", "ROCKETRIO_CLUSTER_NAME": "env"}
    config = load(toml, tmp_path=tmp_path, given={"broker_name": "option"}, environment=environment)
    assert (config.broker_name, config.cluster_name, config.region_id) == ("option", "env", "file")
    assert config.listen == BrokerConfig().listen


def test_a_file_has_a_table_for_the_store(tmp_path: Path) -> None:
    config = load(
        'broker_id = 1\nrole = "slave"\n[store]\nflush_disk_type = "sync"\n'
        "access_message_in_memory_max_ratio = 0.5",
        tmp_path=tmp_path,
    )
    assert (config.broker_id, config.role) == (1, "slave")
    assert config.store.flush_disk_type == "sync"
    assert config.store.access_message_in_memory_max_ratio == 0.5


def test_text_of_options_and_environment_becomes_what_the_setting_is(tmp_path: Path) -> None:
    config = load(
        tmp_path=tmp_path,
        given={"store.access_message_in_memory_max_bytes": "1000", "slave_read_enable": "yes"},
        environment={
            "ROCKETRIO_STORE_FLUSH_DISK_TYPE": "sync",
            "ROCKETRIO_SHORT_POLLING_TIME": "0.5",
        },
    )
    assert config.store.access_message_in_memory_max_bytes == 1000
    assert config.store.flush_disk_type == "sync"
    assert config.slave_read_enable is True
    assert config.short_polling_time == 0.5


def test_rocketmqs_own_variable_names_the_name_servers_last(tmp_path: Path) -> None:
    environment = {"NAMESRV_ADDR": "a:1;b:2"}
    assert load(tmp_path=tmp_path, environment=environment).name_servers == ("a:1", "b:2")
    assert load('namesrv = "c:3"', tmp_path=tmp_path, environment=environment).namesrv == "c:3"


@pytest.mark.parametrize("place", ["NAMESRV_ADDR", "ROCKETRIO_NAMESRV", "file"])
def test_name_servers_are_read_as_clients_read_them(tmp_path: Path, place: str) -> None:
    def loaded(text: str) -> BrokerConfig:
        if place == "file":
            return load(f'namesrv = "{text}"', tmp_path=tmp_path)
        return load(tmp_path=tmp_path, environment={place: text})

    assert loaded("http://a:80/; ,b:2 ").name_servers == ("a:80", "b:2")
    with pytest.raises(ConfigError, match=r"name server 'http://b' is not HOST:PORT"):
        loaded("a:80;http://b")


def test_a_relative_directory_in_a_file_is_relative_to_the_file(tmp_path: Path) -> None:
    assert load('data = "store"', tmp_path=tmp_path).data == tmp_path / "store"


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ('broker_nam = "a"', "broker_nam, which is not a setting: did you mean broker_name"),
        ('[store]\nflush_disk_typ = "a"', "did you mean store.flush_disk_type?"),
        ('flush_disk_type = "sync"', "did you mean store.flush_disk_type"),
        ('[store]\nflushDiskType = "a"', "use store.flush_disk_type instead"),
        ('name = "a"', "use broker_name instead"),
        ("id = 1", "use broker_id instead"),
        ("brokerClusterName = 1", "use cluster_name instead"),
        (
            "xyzzy = 1",
            "xyzzy, which is not a setting: `rocketrio-broker settings` lists all settings",
        ),
        ('broker_id = "zero"', "broker_id is 'zero' in .*broker.toml"),
        ('role = "boss"', "role is 'boss' in .*async-master"),
        ("short_polling_time = 0", "'short_polling_time' must be > 0"),
        ('listen = "x"', "'x' is not an address"),
        ("a = ", "broker.toml cannot be read"),
        ("store = 3", "store, which is not a setting"),
        ("[store]\nmapped_file_size_consume_queue = 21", "multiple of 20"),
    ],
)
def test_a_wrong_file_is_refused_with_what_was_meant(tmp_path: Path, toml: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load(toml, tmp_path=tmp_path)


def test_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"broker.toml cannot be read"):
        load_config(file=file, given={}, environment={})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration file .*/none.toml"):
        load_config(file=tmp_path / "none.toml", given={}, environment={})


def test_a_misspelt_variable_is_refused_and_one_of_another_program_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean ROCKETRIO_BROKER_NAME"):
        load(tmp_path=tmp_path, environment={"ROCKETRIO_BROKER_NAM": "a"})
    load(tmp_path=tmp_path, environment={"ROCKETRIO_SPARK_HOME": "a", "HOME": "b"})


def test_variables_of_clients_are_not_taken_for_misspelt_settings(tmp_path: Path) -> None:
    variables = (
        account.ACCESS_KEY_VARIABLE,
        account.SECRET_KEY_VARIABLE,
        account.SECURITY_TOKEN_VARIABLE,
        account.CREDENTIALS_FILE_VARIABLE,
    )
    load(tmp_path=tmp_path, environment=dict.fromkeys(variables, "a"))


def test_a_misspelt_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the command line sets store\.flush_disk"):
        load(tmp_path=tmp_path, given={"store.flush_disk": "sync"})


def test_every_setting_has_a_path_and_a_meaning() -> None:
    paths = setting_paths()
    assert {"broker_name", "store.flush_disk_type"} <= set(paths)
    assert "store" not in paths
    assert all(paths.values())


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (
            "in_sync_slaves",
            "two",
            "in_sync_slaves is 'two' in the command line: it is a whole number",
        ),
        ("slave_read_enable", "maybe", "it is true or false"),
        ("ha_return_wait", "soon", "it is a number"),
        ("store.flush_disk_type", "fast", "use one of async, sync"),
    ],
)
def test_value_of_the_wrong_kind_is_refused_with_the_accepted_ones(
    path: str, value: str, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(file=None, given={path: value}, environment={})
    assert str(caught.value).endswith(told)


@pytest.mark.parametrize(
    "name",
    [
        "ROCKETRIO_ACCESS_KEY",
        "ROCKETRIO_SECRET_KEY",
        "ROCKETRIO_SECURITY_TOKEN",
        "ROCKETRIO_CREDENTIALS_FILE",
        "ROCKETRIO_TLS",
        "ROCKETRIO_TLS_CA_FILE",
    ],
)
def test_variable_of_clients_is_no_misspelt_setting(name: str) -> None:
    without = load_config(file=None, given={}, environment={})
    assert load_config(file=None, given={}, environment={name: "x"}) == without


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("tls_mode", "one of disabled, permissive, enforcing"),
        ("peer_tls", "it is true or false"),
    ],
)
def test_wrong_value_of_an_optional_setting_is_refused_with_the_right_ones(
    setting: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(file=None, given={setting: "maybe"}, environment={})


def test_properties_in_place_of_toml_are_answered_with_the_toml(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# Apache\nbrokerName = broker-a\nbrokerRole=ASYNC_MASTER\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file=file, given={}, environment={})
    said, _, toml = str(caught.value).partition("\n\n")
    assert str(file) in said
    assert "It must be TOML" in said
    assert load(toml, tmp_path=tmp_path).broker_name == "broker-a"
    file.write_text("nothing = of it")
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        load_config(file=file, given={}, environment={})
    assert "must be TOML" not in str(caught.value)
