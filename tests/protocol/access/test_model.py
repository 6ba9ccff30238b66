import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.access.model import (
    AccessDecision,
    AccessTable,
    Action,
    Entry,
    Resource,
    ResourceKind,
    Source,
    User,
    secret_problem,
    user_name_problem,
)
from rocketrio_protocol.errors import ConfigError

HOST = "10.1.2.3"


def entry(
    resource: str, actions: Action = Action.PUB, *, allow: bool = True, source: str = ""
) -> Entry:
    sources = (Source.parse(source),) if source else ()
    return Entry(Resource.parse(resource), actions, allow, sources)


def user(*custom: Entry, default: tuple[Entry, ...] = (), **settings: bool) -> User:
    return User("u", (b"secret",), custom=custom, default=default, **settings)


def verdict(someone: User, topic: str = "orders", actions: Action = Action.PUB) -> AccessDecision:
    return someone.verdict(ResourceKind.TOPIC, topic, actions, HOST)


def test_user_without_entries_is_refused() -> None:
    assert verdict(user()) is AccessDecision.UNMATCHED


def test_super_user_may_do_everything() -> None:
    assert (
        verdict(user(entry("*", Action.ALL, allow=False), is_super=True)) is AccessDecision.ALLOWED
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Topic:orders", "Topic:orders*"),
        ("Topic:order*", "Topic:ord*"),
        ("Topic:o*", "Topic:*"),
        ("Topic:*", "*"),
    ],
)
@pytest.mark.parametrize("allow", [True, False])
def test_more_precise_entry_decides_in_any_order(first: str, second: str, *, allow: bool) -> None:
    entries = entry(first, allow=allow), entry(second, allow=not allow)
    wanted = AccessDecision.ALLOWED if allow else AccessDecision.DENIED
    assert verdict(user(*entries)) is verdict(user(*reversed(entries))) is wanted


def test_deny_decides_before_allow_for_the_same_resource() -> None:
    assert verdict(user(entry("Topic:*"), entry("Topic:*", allow=False))) is AccessDecision.DENIED


def test_custom_entry_decides_before_a_more_precise_default_one() -> None:
    someone = user(entry("*"), default=(entry("Topic:orders", allow=False),))
    assert verdict(someone) is AccessDecision.ALLOWED


def test_default_entry_decides_if_no_custom_one_matches() -> None:
    someone = user(entry("Topic:other", allow=False), default=(entry("Topic:*"),))
    assert verdict(someone) is AccessDecision.ALLOWED


def test_one_of_the_asked_actions_suffices() -> None:
    someone = user(entry("Topic:orders", Action.GET), entry("Topic:*", Action.SUB, allow=False))
    assert verdict(someone, actions=Action.SUB | Action.GET) is AccessDecision.ALLOWED
    assert verdict(someone, actions=Action.SUB) is AccessDecision.DENIED
    assert verdict(someone, actions=Action.PUB) is AccessDecision.UNMATCHED


def test_entry_of_another_kind_does_not_match() -> None:
    assert verdict(user(entry("Group:orders"), entry("Cluster:orders"))) is AccessDecision.UNMATCHED


@pytest.mark.parametrize(
    ("source", "host", "matches"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.0.0/16", "10.1.200.4", True),
        ("10.1.0.0/16", "::ffff:10.1.200.4", True),
        ("2001:db8::/32", "2001:db8::1", True),
        ("2001:db8::/32", "10.1.2.3", False),
        ("0.0.0.0/0", "a-name", False),
    ],
)
def test_entry_with_sources_matches_their_addresses_alone(
    source: str, host: str, *, matches: bool
) -> None:
    someone = user(entry("Topic:*", source=source))
    wanted = AccessDecision.ALLOWED if matches else AccessDecision.UNMATCHED
    assert someone.verdict(ResourceKind.TOPIC, "t", Action.PUB, host) is wanted


names = st.text("abc", min_size=1, max_size=4)
resources = st.one_of(
    st.just("*"),
    st.builds(
        "{}:{}{}".format, st.sampled_from(["Topic", "Group"]), names, st.sampled_from(["", "*"])
    ),
    st.sampled_from(["Topic:*", "Group:*"]),
)
entries = st.builds(
    lambda resource, actions, allow: entry(resource, Action(actions), allow=allow),
    resources,
    st.integers(1, 127),
    st.booleans(),
)


def expected(someone: User, kind: ResourceKind, name: str, action: Action) -> AccessDecision:
    """The rule of the specification, written another way: by the text of each resource."""

    def place(text: str) -> int:
        return [
            f"{kind}:{name}",
            *(f"{kind}:{name[:end]}*" for end in range(len(name), -1, -1)),
            "*",
        ].index(text)

    def is_about(text: str) -> bool:
        try:
            place(text)
        except ValueError:
            return False
        return True

    for some in (someone.custom, someone.default):
        matching = [each for each in some if each.actions & action and is_about(str(each.resource))]
        if matching:
            first = min(place(str(each.resource)) for each in matching)
            deciding = [each for each in matching if place(str(each.resource)) == first]
            return (
                AccessDecision.ALLOWED
                if all(each.is_allowed for each in deciding)
                else AccessDecision.DENIED
            )
    return AccessDecision.UNMATCHED


@given(
    st.lists(entries, max_size=6),
    st.lists(entries, max_size=4),
    names,
    st.sampled_from(list(Action)),
)
def test_verdict_follows_the_order_of_the_specification(
    custom: list[Entry], default: list[Entry], name: str, action: Action
) -> None:
    someone = user(*custom, default=tuple(default))
    assert someone.verdict(ResourceKind.TOPIC, name, action, HOST) is expected(
        someone, ResourceKind.TOPIC, name, action
    )


def test_decision_looks_at_the_entries_that_match_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many entries a user has: a request may name a thousand topics."""
    looked_at: list[Entry] = []
    real = Entry.is_from

    def is_from(self: Entry, host: str) -> bool:
        looked_at.append(self)
        return real(self, host)

    monkeypatch.setattr(Entry, "is_from", is_from)
    some = [entry(f"Topic:t{number}") for number in range(500)]
    some += [entry(f"Topic:p{number}*", allow=False) for number in range(500)]
    someone = user(*some)
    assert verdict(someone, "t7") is AccessDecision.ALLOWED
    assert verdict(someone, "p7-orders") is AccessDecision.DENIED
    assert verdict(someone, "other") is AccessDecision.UNMATCHED
    assert [str(each.resource) for each in looked_at] == ["Topic:t7", "Topic:p7*"]


@given(st.lists(entries, max_size=6), st.lists(st.tuples(names, st.integers(1, 127)), max_size=8))
def test_table_remembers_what_the_user_would_decide(
    custom: list[Entry], asked: list[tuple[str, int]]
) -> None:
    someone = user(*custom)
    table = AccessTable({"u": someone})
    for name, actions in (*asked, *asked):
        remembered = table.verdict(someone, ResourceKind.TOPIC, name, actions, HOST)
        assert remembered is someone.verdict(ResourceKind.TOPIC, name, actions, HOST)


def test_table_remembers_decisions_of_each_address_apart() -> None:
    someone = user(entry("Topic:*", source=HOST))
    table = AccessTable({"u": someone})
    assert (
        table.verdict(someone, ResourceKind.TOPIC, "t", Action.PUB, HOST) is AccessDecision.ALLOWED
    )
    assert (
        table.verdict(someone, ResourceKind.TOPIC, "t", Action.PUB, "10.9.9.9")
        is AccessDecision.UNMATCHED
    )


def test_new_table_forgets_the_decisions_of_the_old_one() -> None:
    table = AccessTable({"u": user(entry("Topic:*"))})
    assert (
        table.verdict(table.users["u"], ResourceKind.TOPIC, "t", Action.PUB, HOST)
        is AccessDecision.ALLOWED
    )
    after = table.with_user(user())
    assert (
        after.verdict(after.users["u"], ResourceKind.TOPIC, "t", Action.PUB, HOST)
        is AccessDecision.UNMATCHED
    )
    assert not after.without_user("u").users


@pytest.mark.parametrize(
    "text", ["*", "Topic:*", "Topic:a", "Group:a*", "Cluster:C", "Namespace:n"]
)
def test_resource_is_written_as_it_is_parsed(text: str) -> None:
    assert str(Resource.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "Topic", "Topic:", "topic:a", "*:a", "Topic:a*b", "Any:a", "Topic:a\n"]
)
def test_resource_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Resource.parse(text)


@pytest.mark.parametrize("text", ["", "10.0.0", "10.0.0.0/33", "host"])
def test_source_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Source.parse(text)


def test_names_and_secrets_that_a_line_of_a_log_could_not_show_are_refused() -> None:
    assert user_name_problem("svc-1@x") is None
    assert secret_problem("geheim: ß") is None
    for text in ("", " ", "a\nb", " a", "x" * 256):
        assert user_name_problem(text)
        assert secret_problem(text)
    assert user_name_problem("a:b")


def test_secret_is_in_no_text_of_a_user() -> None:
    someone = attrs.evolve(user(), secrets=(b"marker-secret",))
    assert "marker" not in f"{someone!r} {AccessTable({'u': someone})!r} {someone}"
