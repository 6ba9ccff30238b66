"""The table of options: complete, and what is said of names that are not in it."""

from pathlib import Path

from tests.spark.option_rows import option_rows

from rocketrio.spark.options import known_texts
from rocketrio.spark.reading.options import BATCH_ONLY_OPTIONS, READ_OPTIONS

ROOT = Path(__file__).parents[2]


def test_every_option_has_its_own_name() -> None:
    assert len({name.lower() for name in READ_OPTIONS}) == len(READ_OPTIONS)
    assert set(BATCH_ONLY_OPTIONS) < set(READ_OPTIONS)


def test_the_table_in_the_documentation_is_the_one_here() -> None:
    rows = option_rows(READ_OPTIONS, "reading")
    assert "\n".join(rows.values()) in (ROOT / "docs" / "spark.md").read_text()


def test_names_come_out_as_they_are_documented() -> None:
    texts = known_texts({"FAILONDATALOSS": "x"}, known=READ_OPTIONS, what="a read")
    assert texts == {"failOnDataLoss": "x"}
