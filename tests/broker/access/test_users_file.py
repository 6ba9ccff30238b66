from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketrio_broker.access.files import (
    UsersCount,
    acl_paths,
    fingerprint,
    parse_acl_files,
    read_acl_files,
)
from rocketrio_broker.access.users_file import VersionedUsers, decode_users, encode_users
from rocketrio_protocol.access.model import AccessTable, Action, Entry, Resource, Source, User
from rocketrio_protocol.access.white_addresses import AddressPattern
from rocketrio_protocol.bodies.topics import DataVersion
from rocketrio_protocol.errors import ConfigError

WHERE = "config/rocketrioUsers.json"

names = st.text("abcdef-1", min_size=1, max_size=6)
entries = st.lists(
    st.builds(
        Entry,
        st.builds(Resource.parse, st.sampled_from(["*", "Topic:a*", "Topic:a", "Group:*", "Cluster:c"])),
        st.builds(Action, st.integers(1, 127)),
        st.booleans(),
        st.sampled_from([(), (Source.parse("10.0.0.0/8"), Source.parse("::1"))]),
    ),
    max_size=4,
    unique_by=lambda entry: entry.resource,
)  # fmt: skip
users = st.builds(
    User,
    names,
    st.lists(names.map(str.encode), min_size=1, max_size=2, unique=True).map(tuple),
    st.booleans(),
    st.booleans(),
    entries,
    entries,
    st.sampled_from([(), AddressPattern.parse_all("10.1.2.{3,4}")]),
)
tables = st.builds(
    lambda each, white: AccessTable({user.name: user for user in each}, white),
    st.lists(users, max_size=4),
    st.sampled_from([(), AddressPattern.parse_all("10.1.2.*")]),
)


@pytest.mark.slow
@settings(max_examples=40)
@given(tables)
def test_file_holds_what_was_written(table: AccessTable) -> None:
    written = VersionedUsers(table, DataVersion(timestamp=7, counter=3))
    assert decode_users(encode_users(written), WHERE) == written


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "cannot be read"),
        (b'{"user":[]}', "unknown field"),
        (b'{"users":[{"username":"u"}]}', "secretKeys"),
        (b'{"users":[{"username":"u","secretKeys":[]}]}', "0 secretKeys"),
        (b'{"users":[{"username":"u","secretKeys":["marker1","marker2","marker3"]}]}', "3 secretKeys"),
        (b'{"users":[{"username":"u","secretKeys":[" marker1"]}]}', "password"),
        (b'{"users":[{"username":"","secretKeys":["marker1"]}]}', "blank"),
        (b'{"users":[{"username":"u","secretKeys":["marker1"],"userType":"root"}]}', "userType"),
        (b'{"users":[{"username":"u","secretKeys":["marker1"]},{"username":"u","secretKeys":["marker1"]}]}', "second"),
        (b'{"users":[],"acls":[{"subject":"User:u","policies":[]}]}', "User:u belong to no user"),
        (b'{"users":[{"username":"u","secretKeys":["marker1"]}],"acls":[{"subject":"User:u","policies":[{"entries":['
         b'{"resource":"Topic:t","actions":["Any"],"decision":"Allow"}]}]}]}', "Any"),
        (b'{"users":[],"globalWhiteRemoteAddresses":["x"]}', "pattern"),
    ],
)  # fmt: skip
def test_wrong_file_is_refused_by_name_without_secrets(content: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=WHERE) as caught:
        decode_users(content, WHERE)
    assert problem in str(caught.value)
    assert "marker" not in str(caught.value)


def private(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def account(name: str, **fields: str) -> str:
    lines = [
        f"- accessKey: {name}",
        "  secretKey: 'secret-1'",
        *(f"  {key}: {value}" for key, value in fields.items()),
    ]
    return "\n".join(lines) + "\n"


def test_files_of_a_folder_and_single_files_make_one_table(tmp_path: Path) -> None:
    private(
        tmp_path / "acl" / "b.yml",
        "accounts:\n" + account("twice-1", admin="true") + account("onlyinb"),
    )
    private(tmp_path / "acl" / "a.yaml", "accounts:\n" + account("twice-1"))
    private(tmp_path / "acl" / "notes.txt", "no accounts")
    private(tmp_path / "acl" / "..2026", "")
    stored = encode_users(VersionedUsers(AccessTable({"u": User("u", (b"s",))})))
    ours = private(tmp_path / "ours.json", stored.decode())
    contents = read_acl_files(acl_paths(f"{tmp_path / 'acl'}; {ours}"))
    table = parse_acl_files(contents)
    assert set(table.users) == {"twice-1", "onlyinb", "u"}
    assert not table.users["twice-1"].is_super
    assert str(UsersCount.of(table)) == "users=3 super=0 disabled=0 entries=0 white_addresses=0"


def test_changed_content_has_another_fingerprint(tmp_path: Path) -> None:
    file = private(tmp_path / "plain_acl.yml", "accounts: []")
    before = fingerprint(read_acl_files([file]))
    assert fingerprint(read_acl_files([file])) == before
    private(file, "accounts: []\n")
    assert fingerprint(read_acl_files([file])) != before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_file_that_others_may_read_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    file = private(tmp_path / "plain_acl.yml", "accounts: []")
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {file}"):
        read_acl_files([file])


def test_missing_file_and_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_acl_files([tmp_path / "plain_acl.yml"])
    with pytest.raises(ConfigError, match="has no file"):
        read_acl_files([tmp_path])


def test_secret_is_in_no_text_of_the_table() -> None:
    table = AccessTable({"u": User("u", (b"marker-1", b"marker-2"))})
    shown = VersionedUsers(attrs.evolve(table))
    assert "marker" not in f"{shown!r} {UsersCount.of(table)}"
