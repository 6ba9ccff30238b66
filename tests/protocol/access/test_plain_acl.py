from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.access.model import AccessDecision, AccessTable, Action, ResourceKind
from rocketrio_protocol.access.plain_acl import parse_plain_acl
from rocketrio_protocol.errors import ConfigError

APACHES = Path(__file__).parent / "plain_acl.yml"
"""The file that comes with Apache's 4.9.7, with other addresses and keys."""

MINIMAL = "accounts:\n- accessKey: producer1\n  secretKey: 'secret-1'\n"


def table(text: str) -> AccessTable:
    return parse_plain_acl(text.encode(), "plain_acl.yml")


def may(users: AccessTable, name: str, kind: ResourceKind, resource: str, action: Action) -> bool:
    user = users.users[name]
    return users.verdict(user, kind, resource, action, "10.9.9.9") is AccessDecision.ALLOWED


def test_file_of_apache_becomes_users_and_policies() -> None:
    users = parse_plain_acl(APACHES.read_bytes(), APACHES)
    assert list(users.users) == ["RocketMQ", "rocketmq2"]
    assert [each.text for each in users.white] == ["10.10.103.*", "192.168.0.*"]
    assert users.users["RocketMQ"].secrets == (b"12345678",)
    assert users.users["rocketmq2"].is_super
    assert not users.users["RocketMQ"].is_super
    for kind, resource, allowed in (
        (ResourceKind.TOPIC, "topicA", Action(0)),
        (ResourceKind.TOPIC, "topicB", Action.PUB | Action.SUB | Action.GET),
        (ResourceKind.TOPIC, "topicC", Action.SUB | Action.GET),
        (ResourceKind.TOPIC, "other", Action(0)),
        (ResourceKind.GROUP, "groupA", Action(0)),
        (ResourceKind.GROUP, "groupB", Action.PUB | Action.SUB | Action.GET),
        (ResourceKind.GROUP, "other", Action.SUB | Action.GET),
        (ResourceKind.CLUSTER, "DefaultCluster", Action(0)),
    ):
        found = [each for each in Action if may(users, "RocketMQ", kind, resource, each)]
        assert sum(found) == allowed, resource


def test_retry_topic_is_a_permission_of_its_group() -> None:
    users = table(MINIMAL + "  topicPerms: ['%RETRY%g=SUB']\n")
    assert may(users, "producer1", ResourceKind.GROUP, "g", Action.SUB)


def test_unknown_permission_is_deny() -> None:
    users = table(MINIMAL + "  topicPerms: ['t = ANYTHING']\n  defaultTopicPerm: PUB\n")
    user = users.users["producer1"]
    assert user.verdict(ResourceKind.TOPIC, "t", Action.PUB, "h") is AccessDecision.DENIED
    assert user.verdict(ResourceKind.TOPIC, "u", Action.PUB, "h") is AccessDecision.ALLOWED


def test_file_with_an_empty_list_has_no_users() -> None:
    assert table("accounts: []\n").users == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "---\n",
        "accounts:\n",
        "accounts: {}\n",
        "globalWhiteRemoteAddresses: []\n",
    ],
)
def test_file_without_the_list_of_accounts_cannot_be_used(text: str) -> None:
    with pytest.raises(ConfigError, match=r"plain_acl.yml.*`accounts: \[\]`"):
        table(text)


def test_secret_of_digits_may_stand_without_quotes_if_yaml_keeps_them() -> None:
    users = table("accounts:\n- accessKey: 1234567\n  secretKey: 12345678\n")
    assert users.users["1234567"].secrets == (b"12345678",)


@pytest.mark.parametrize(
    "secret",
    [
        "0123456789",
        "1_000_000",
        "1234567e8",
        "0x12345678",
        "2024-01-01",
        "1234567:30",
        "12345678.0",
    ],
)
def test_secret_that_yaml_would_change_must_be_quoted(secret: str) -> None:
    with pytest.raises(ConfigError, match=r"plain_acl.yml line 3: .*put it in quotes") as caught:
        table(f"accounts:\n- accessKey: producer1\n  secretKey: {secret}\n")
    assert secret not in str(caught.value)
    quoted = table(f"accounts:\n- accessKey: producer1\n  secretKey: '{secret}'\n")
    assert quoted.users["producer1"].secrets == (secret.encode(),)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- a\n", 1),
        ("accounts: [\n", 2),
        ("accounts:\n\t- x\n", 2),
        ("accounts: {}\n", 1),
        ("accounts:\n- producer1\n", 2),
        ("acounts: []\n", 1),
        (MINIMAL + "  topicPerm: [a=PUB]\n", 4),
        (MINIMAL + "  admin: maybe\n", 4),
        (MINIMAL + "  topicPerms: [a=PUB,\n    b]\n", 5),
        (MINIMAL + "  topicPerms: [a=PUB=SUB]\n", 4),
        (MINIMAL + "  topicPerms:\n  - a=PUB\n  - a=SUB\n", 6),
        (MINIMAL + "  topicPerms: ['a*=PUB']\n", 2),
        (MINIMAL + "  secretKey: again\n", 4),
        (MINIMAL + "- accessKey: producer1\n  secretKey: 'secret-2'\n", 4),
        (MINIMAL + "  whiteRemoteAddress: somewhere\n", 2),
        ("accounts:\n- accessKey: short\n  secretKey: 'secret-1'\n", 2),
        ("accounts:\n- accessKey: producer1\n  secretKey: short\n", 2),
        ("accounts:\n- accessKey: producer1\n", 2),
        ("globalWhiteRemoteAddresses:\n- 10.0.0.1\n- 10.0.0\n", 3),
        ("a: &x [1]\nb: *x\n", 1),
        ("accounts: !!python/object:os.system []\n", 1),
        ("accounts: !!set {}\n", 1),
        ("accounts: []\n---\naccounts: []\n", 2),
        ("accounts: " + "[" * 100_000, 1),
    ],
)  # fmt: skip
def test_wrong_file_does_not_load_and_its_error_names_the_line(text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=rf"^plain_acl.yml line {line}: ") as caught:
        table(text)
    assert "secret-" not in str(caught.value)


def test_file_beyond_its_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(ConfigError, match="bytes"):
        parse_plain_acl(b"#" * ((1 << 20) + 1), "plain_acl.yml")


def test_file_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"plain_acl.yml"):
        parse_plain_acl(b"accounts: [\xff\xfe]\n", "plain_acl.yml")


@given(st.text(max_size=200))
def test_any_text_loads_or_is_refused_by_name(text: str) -> None:
    problem = ""
    try:
        table(MINIMAL + text)
    except ConfigError as error:
        problem = str(error)
    assert not problem or problem.startswith("plain_acl.yml")
