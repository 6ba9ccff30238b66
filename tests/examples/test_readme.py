"""README, typed from its top to its bottom on one machine, and its Chinese page, which has the same code."""

import re
from pathlib import Path

import pytest
from tests.examples.documents import ROOT, Tutorial
from tests.support.processes import free_port
from tests.support.quick_start import quick_home

INSTALLS = re.compile(r"^(git clone|pip install|sudo apt)", re.MULTILINE)
"""Blocks with such a line are omitted: a test changes neither its machine nor its own environment."""
PAGES = ("README.md", "README.zh.md")
COMMENT = re.compile(r" *#.*$", re.MULTILINE)
CODE_SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^]]*\]\(([^)]+)\)")
HAN = "\u4e00-\u9fff"
ASCII_PUNCTUATION = re.compile(rf"[{HAN}] *[,.:;!?()\"']|[,.:;!?()\"'][{HAN}]")


@pytest.mark.spark
@pytest.mark.slow
def test_readme_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name_server = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    quick_home(tmp_path / "spark")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # README sets what Spark needs.
        monkeypatch.delenv(name)
    with Tutorial("README.md", tmp_path, {"127.0.0.1:9876": name_server}) as readme:
        readme.run(only=lambda source: not INSTALLS.search(source))
        paid = readme.shell("rocketrio consume paid-orders --group check --until-caught-up")
    assert readme.printed[0].startswith("SEND_OK orders@broker-a:")
    assert readme.printed[1] == "billed 500,500.00"
    assert "| true|  25050250|" in readme.printed
    assert len(paid.splitlines()) == 500 + 1


def blocks(page: str) -> list[str]:
    """The code that readers see, without its comments."""
    found = re.findall(r"^```(\w+\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [COMMENT.sub("", block) for block in found]


def prose(page: str) -> str:
    """What is not a block of code; each line of it."""
    return re.sub(r"^```.*?^```$|<!--.*?-->", "", page, flags=re.MULTILINE | re.DOTALL)


def named(kind: re.Pattern[str], page: str) -> set[str]:
    """The code spans or the targets of links in a page, but for the pages themselves."""
    return {" ".join(found.split()) for found in kind.findall(prose(page))} - {*PAGES}


def test_chinese_readme_has_the_code_the_commands_and_the_links_of_the_english_one() -> None:
    english, chinese = ((ROOT / page).read_text() for page in PAGES)
    assert blocks(english) == blocks(chinese)
    assert named(CODE_SPAN, english) == named(CODE_SPAN, chinese)
    assert named(LINK, english) == named(LINK, chinese)
    assert prose(english).count("\n#") == prose(chinese).count("\n#")


def ascii_punctuation(text: str) -> list[str]:
    """Return ASCII punctuation next to Chinese characters, and after code and links in a line that has some."""
    lines = [line for line in text.splitlines() if re.search(f"[{HAN}]", line)]
    plain = (LINK.sub("文", CODE_SPAN.sub("文", line)) for line in lines)
    return [found for line in plain for found in ASCII_PUNCTUATION.findall(line)]


def test_chinese_prose_has_chinese_punctuation() -> None:
    assert ascii_punctuation(prose((ROOT / "README.zh.md").read_text())) == []


@pytest.mark.parametrize("line", ["见 `x`, 再见", "[见](x.md): 一", "再见(一)", "见."])
def test_ascii_punctuation_beside_chinese_is_found(line: str) -> None:
    assert ascii_punctuation(line)


@pytest.mark.parametrize(
    "line", ["Python 3.11 版、`a, b`。", "English: [x](x.md)", "有 336,776 条"]
)
def test_ascii_punctuation_of_numbers_code_and_english_is_left(line: str) -> None:
    assert not ascii_punctuation(line)
