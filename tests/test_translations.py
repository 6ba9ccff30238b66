"""Check the Chinese pages: sections, code, names, links, figures and punctuation; name the sections that are older."""

import warnings
from pathlib import Path

import pytest

from tests import translations
from tests.translations import ENGLISH, ROOT, faults, older_sections, prose_faults, sections

EACH_PAGE = pytest.mark.parametrize("page", ENGLISH, ids=lambda page: str(page.relative_to(ROOT)))
ENGLISH_PAGE = """# Orders

[zh/orders.md](zh/orders.md)

Send `a` within 30 s: see [below](#keep-order).

## Keep order

```python
# not a heading
send()  # twice
```

- first
- second
"""
CHINESE_PAGE = """# 订单
{0}

English: [orders.md](../orders.md)

在 30 秒内发送 `a`。[下文](#保持顺序)有说明。

## 保持顺序
{1}

```python
# 不是标题
send()  # 两次
```

- 第一
- 第二
"""


class OlderThanEnglishWarning(UserWarning):
    """A Chinese section whose English section has changed; who changed it may not know Chinese."""


@EACH_PAGE
def test_chinese_page_has_the_code_names_links_and_figures_of_the_english_one(page: Path) -> None:
    found = list(faults(page))
    assert not found, "\n".join(found)


@pytest.mark.filterwarnings("default::tests.test_translations.OlderThanEnglishWarning")
@EACH_PAGE
def test_sections_that_are_older_than_the_english_ones_are_named(page: Path) -> None:
    for line in older_sections(page):
        warnings.warn(line, OlderThanEnglishWarning, stacklevel=1)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Chinese page without a fault."""
    (tmp_path / "zh").mkdir()
    english, chinese = tmp_path / "orders.md", tmp_path / "zh/orders.md"
    monkeypatch.setattr(translations, "ROOT", tmp_path)
    monkeypatch.setitem(ENGLISH, chinese, english)
    english.write_text(ENGLISH_PAGE)
    chinese.write_text(CHINESE_PAGE.format(*(section.stamp for section in sections(english))))
    assert [*faults(chinese), *older_sections(chinese)] == []
    return chinese


def test_changed_english_section_is_named_with_its_new_hash_and_is_no_fault(page: Path) -> None:
    ENGLISH[page].write_text(ENGLISH_PAGE.replace("- second", "- second\n- third, `b`"))
    stamp = sections(ENGLISH[page])[1].stamp
    assert list(older_sections(page)) == [f"zh/orders.md: older than its English section: {stamp}"]
    assert list(faults(page)) == []


def test_english_lines_that_are_broken_elsewhere_are_the_same_text(page: Path) -> None:
    ENGLISH[page].write_text(ENGLISH_PAGE.replace("30 s: see", "30 s:\nsee"))
    assert list(older_sections(page)) == []


@pytest.mark.parametrize(
    ("text", "instead", "fault"),
    [
        pytest.param(
            "## 保持", "### 保持", "保持顺序: a heading of level 3, in English 2", id="level"
        ),
        pytest.param(
            "send()", "receive()", "保持顺序: other blocks of code than in English", id="code"
        ),
        pytest.param("`a`", "`b`", "订单: lacks 1 x `a`", id="name"),
        pytest.param("- 第二\n", "", "保持顺序: lacks 1 x list item", id="item"),
        pytest.param("30", "20", "订单: lacks the number 30", id="number"),
        pytest.param(
            "](#保持顺序)", "](#订单)", "订单: lacks 1 x link to orders.md#keep-order", id="link"
        ),
        pytest.param(
            "内发送",
            "内\n发送",
            "订单: line break between Chinese characters: '内\\n发'",
            id="break",
        ),
        pytest.param("第一", "积压", "保持顺序: 积压 is 堆积 in docs/GLOSSARY.md", id="term"),
        pytest.param("<!-- Keep order", "<!-- Order", "lacks 1 x section Keep order", id="section"),
    ],
)
def test_fault_of_a_chinese_page_is_found(page: Path, text: str, instead: str, fault: str) -> None:
    page.write_text(page.read_text().replace(text, instead))
    assert fault in list(faults(page))


def test_sections_in_another_order_are_found(page: Path) -> None:
    head, _, rest = page.read_text().partition("\n## ")
    page.write_text(f"## {rest}\n{head}\n")
    assert "the sections have another order than in English" in list(faults(page))


def test_link_to_an_english_page_that_has_a_chinese_one_is_found(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGLISH, page.with_name("other.md"), page.parent.parent / "other.md")
    page.write_text(page.read_text() + "\n见 [other](../other.md)。\n")
    assert "保持顺序: ../other.md has a Chinese page" in list(faults(page))


@pytest.mark.parametrize("line", ["见 `x`, 再见", "[见](x.md): 一", "再见(一)", "见."])
def test_ascii_punctuation_beside_chinese_is_found(line: str) -> None:
    assert list(prose_faults(line))


@pytest.mark.parametrize("line", ["**保存。**一个", "是**`a`**的", "一**。二**"])
def test_emphasis_that_ends_in_punctuation_before_a_character_is_found(line: str) -> None:
    assert list(prose_faults(line))


@pytest.mark.parametrize(
    "line", ["**保存**了*吗*。", "**保存了。** 一个", "**`a`**。", "见 `*`、`*`"]
)
def test_emphasis_that_ends_beside_a_character_or_a_space_is_left(line: str) -> None:
    assert not list(prose_faults(line))


@pytest.mark.parametrize(
    "line", ["Python 3.11 版、`a, b`。", "English: [x](x.md)", "有 336,776 条", "![图](x.svg)"]
)
def test_ascii_punctuation_of_numbers_code_english_and_pictures_is_left(line: str) -> None:
    assert not list(prose_faults(line))
