"""What each standing allows, and where each event leads from it, as docs/life-of-a-broker-name.md has them."""

from itertools import product
from pathlib import Path

import pytest

from rocketrio_broker.role.standing import (
    ASIDE,
    FOLLOWING,
    HANDING_OVER,
    LEADERS,
    LEADING,
    LOOKING,
    NEXT,
    NOT_TAKEN_OVER,
    STANDINGS,
    CurrentStanding,
    Event,
    Followers,
    IllegalEventError,
    Listing,
    Standing,
    after,
)

PAGE = (Path(__file__).parents[3] / "docs" / "life-of-a-broker-name.md").read_text()
EVERY = list(product(STANDINGS, Event))
BY_NAME = {one.name: one for one in STANDINGS}


def table(heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading of the page, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    text = "|" + section.split("\n|", 1)[1].split("\n\n")[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines()[2:]]


@pytest.mark.parametrize(("standing", "event"), EVERY, ids=lambda one: getattr(one, "name", ""))
def test_event_leads_to_the_standing_of_the_page_or_raises(
    standing: Standing, event: Event
) -> None:
    """Of several rows the first one counts that names the standing, or all."""
    rows = [row for row in table("What happens") if row[0] == f"`{event.name}`"]
    assert rows, f"the page has no row of {event.name}"
    said = {}
    for _, before, then, _ in rows:
        for name in BY_NAME if before == "any" else before.split(", "):
            said.setdefault(name, then)
    if standing.name in said:
        assert after(standing, event).name == said[standing.name]
    else:
        with pytest.raises(IllegalEventError, match=f"a broker that is {standing} cannot have"):
            after(standing, event)


def test_page_names_no_event_and_no_standing_that_does_not_exist() -> None:
    for event, before, then, _ in table("What happens"):
        assert event.strip("`") in Event.__members__
        names = set() if before == "any" else set(before.split(", "))
        assert names | {then} <= BY_NAME.keys()


def test_page_says_what_each_standing_allows() -> None:
    followers = {
        Followers.NONE: "none",
        Followers.IF_FOLLOWING: "if it follows",
        Followers.ANY: "any",
    }
    listing = {
        Listing.HELD: "no",
        Listing.ONCE_IT_SERVES: "yes",
        Listing.ASKED_FOR: "asks",
        Listing.KEPT: "yes",
    }

    def yes(allowed: bool) -> str:
        return "yes" if allowed else "no"

    assert table("Standings") == [
        [
            one.name,
            one.label,
            "its master" if one.copies else "itself",
            yes(one.writes),
            followers[one.followers],
            listing[one.listing],
            yes(one.claims),
            yes(one.locks),
            yes(one.serves),
        ]
        for one in STANDINGS
    ]


def test_only_one_standing_takes_writes_and_those_that_copy_decide_nothing() -> None:
    assert [one for one in STANDINGS if one.writes] == [LEADING]
    for one in STANDINGS:
        assert not (one.copies and (one.claims or one.locks or one.writes))
        assert one.locks == (one.label == "leads")
        assert one.serves or one.followers is Followers.NONE
    assert not HANDING_OVER.claims


def test_every_standing_is_reached_from_the_first_one_and_left_again() -> None:
    reached, ahead = set(), [LOOKING]
    while ahead:
        one = ahead.pop()
        if one not in reached:
            reached.add(one)
            ahead += [row[one] for row in NEXT.values() if one in row]
    assert reached == set(STANDINGS)


def test_a_broker_can_be_made_a_slave_in_every_standing() -> None:
    for one in STANDINGS:
        assert after(one, Event.FOLLOWS) is FOLLOWING
        if one in LEADERS:
            assert after(after(one, Event.STEPS_DOWN), Event.FOLLOWS) is FOLLOWING


def test_a_broker_begins_to_lead_by_two_events_alone() -> None:
    """One that stands aside and becomes a slave must not be taken for a leader on the way."""
    begins = {
        event
        for event, row in NEXT.items()
        for before, then in row.items()
        if then in LEADERS and before not in LEADERS
    }
    assert begins == {Event.HAS_NO_ROOM, Event.TAKES_OVER}


def test_illegal_event_changes_nothing_and_changes_are_counted() -> None:
    current = CurrentStanding()
    with pytest.raises(IllegalEventError):
        current.note(Event.REMAINS)
    assert (current.now, current.reason, current.changes.value) == (LOOKING, NOT_TAKEN_OVER, 0)
    current.note(Event.YIELDS, "there is another one", other="10.0.0.1:10911")
    assert current.now is ASIDE
    assert (current.reason, current.other) == ("there is another one", "10.0.0.1:10911")
    assert current.changes.value == 1
    current.note(Event.IS_ALONE, NOT_TAKEN_OVER)
    assert current.other is None
    assert current.changes.value == 2
    current.note(Event.CLAIMS, NOT_TAKEN_OVER)  # It stands aside as before, for clients.
    assert current.changes.value == 2
