"""The table of options: complete, and what is said of names that are not in it."""

from pathlib import Path

from rocketrio.spark.reading.option_names import (
    BATCH_ONLY_OPTIONS,
    OPTION_HELP,
    READ_OPTION_TABLE,
    known_texts,
)

ROOT = Path(__file__).parents[3]


def test_every_option_has_a_meaning_and_its_own_name() -> None:
    assert all(help_.meaning for help_ in READ_OPTION_TABLE.values())
    assert len({name.lower() for name in READ_OPTION_TABLE}) == len(READ_OPTION_TABLE)
    assert set(BATCH_ONLY_OPTIONS) < set(READ_OPTION_TABLE)


def test_help_shows_what_counts_without_the_option() -> None:
    assert OPTION_HELP["readRetries"] == "how often a failed pull is repeated (default 5)"
    assert OPTION_HELP["topic"] == "the same as `subscribe`"


def test_the_table_in_the_documentation_is_the_one_here() -> None:
    rows = [
        f"| `{name}` | {help_.default} | {help_.meaning} |"
        for name, help_ in READ_OPTION_TABLE.items()
    ]
    assert "\n".join(rows) in (ROOT / "docs" / "spark.md").read_text()


def test_names_come_out_as_they_are_documented() -> None:
    texts = known_texts({"FAILONDATALOSS": "x"}, known=OPTION_HELP, what="a read")
    assert texts == {"failOnDataLoss": "x"}
