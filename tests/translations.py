"""Which Chinese sections are older than their English ones: `python -m tests.translations` lists them.

README.zh.md is the Chinese of README.md, docs/zh/NAME.md that of docs/NAME.md. The line after a Chinese heading names
the English section and a hash of the text that was translated; GitHub does not show it:

    ## 发送消息
    <!-- Send messages: 1f0c9a3e -->

To translate a section, translate it and put the line below its heading that this command prints. A new page has none of
these lines; the command prints all of them.

An author of an English change who does not know Chinese copies the blocks of code that changed and, with the hash
`english`, new sections. tests/test_translations.py fails if a section or its code is missing, or if a section that is
not older has other names, links or figures. What is only older is a warning there. docs/GLOSSARY.md has the Chinese
terms.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from tests.support.markdown import BLOCK, HIDDEN, LINK, SPAN, slug

ROOT: Final = Path(__file__).parent.parent
ENGLISH: Final = {
    ROOT / "README.zh.md": ROOT / "README.md",
    **{page: ROOT / "docs" / page.name for page in sorted((ROOT / "docs" / "zh").glob("*.md"))},
}
"""The English page of each Chinese one."""
HEAD: Final = re.compile(r"^(#+) (.+)\n(?:<!-- (.+): (\w+) -->\n)?", re.MULTILINE)
COMMENT: Final = re.compile(r" *#.*$", re.MULTILINE)
HAN: Final = "\u4e00-\u9fff"
ASCII_PUNCTUATION: Final = re.compile(rf"[{HAN}] *[,.:;!?()\"']|[,.:;!?()\"'][{HAN}]")
BREAK: Final = re.compile(rf"[{HAN}]\n *[{HAN}]")
"""A browser shows such a break as a space inside a sentence."""
EMPHASIS: Final = re.compile(r"(\w?)(\*\*?)([^*]+)\2(\w?)")
WORDS: Final = {
    "积压": "堆积",
    "消费者组|消费分组|消费者分组": "消费组",
    "再平衡|再均衡|重新平衡": "重平衡",
    "偏移量|位移": "位点",
    "死信消息": "死信",
    "主题": "topic",
    "延迟消息": "延时消息",
    "主库|主机器": "主节点",
    "从库|备机|备节点": "从节点",
    "您": "你",
}
"""Words for what has another word in docs/GLOSSARY.md."""


@attrs.frozen
class Section:
    """A heading and what follows up to the next heading of any level."""

    level: int
    heading: str
    text: str
    """What readers see, without the heading."""
    source: str | None
    """The heading of the English section, if this one is Chinese."""
    translated: str | None
    """The hash of the English text that was translated."""

    @property
    def digest(self) -> str:
        """The hash of this text, whatever its line breaks."""
        words = " ".join(f"{self.heading} {self.text}".split())
        return hashlib.sha256(words.encode()).hexdigest()[:8]

    @property
    def stamp(self) -> str:
        """The line that a translation of this text has."""
        return f"<!-- {self.heading}: {self.digest} -->"

    @property
    def code(self) -> list[str]:
        """The blocks of code, without their comments: those may be translated."""
        return [COMMENT.sub("", block) for block in BLOCK.findall(self.text)]

    @property
    def prose(self) -> str:
        return BLOCK.sub("", self.text)

    @property
    def numbers(self) -> set[str]:
        return set(re.findall(r"\d[\d,.]*(?<=\d)", self.prose))

    def shape(self, page: Path) -> Counter[str]:
        """Count what a translation has too: list items, rows of tables, code spans and links."""
        lines = re.findall(r"^ *(\||-|\d+\.) ", self.prose, re.MULTILINE)
        named = {f"`{' '.join(span.split())}`" for span in SPAN.findall(self.prose)}
        named |= {f"link to {target(page, link)}" for link in LINK.findall(self.prose)}
        kinds = ["row of a table" if line == "|" else "list item" for line in lines]
        return Counter([*kinds, *named])


def sections(page: Path) -> list[Section]:
    """Return the sections of a page. A line of code that begins with # is not a heading."""
    text = HIDDEN.sub("", page.read_text())
    heads = list(HEAD.finditer(BLOCK.sub(lambda block: "x" * len(block[0]), text)))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [
        Section(len(head[1]), head[2], text[head.end() : end], head[3], head[4])
        for head, end in zip(heads, ends, strict=True)
    ]


def target(page: Path, link: str) -> str:
    """Return where a link leads; to a Chinese section, that is its English one."""
    if "://" in link:
        return link
    path, _, anchor = link.partition("#")
    file = (page.parent / path).resolve() if path else page
    if anchor and file in ENGLISH:
        sources = {slug(section.heading): section.source for section in sections(file)}
        anchor = slug(sources.get(anchor) or anchor)
    return f"{ENGLISH.get(file, file).relative_to(ROOT)}#{anchor}".removesuffix("#")


def older_sections(page: Path) -> Iterator[str]:
    """Yield what is older than its English section, and the line that it gets once it is translated again."""
    translated = {section.source: section.translated for section in sections(page)}
    for section in sections(ENGLISH[page]):
        if translated.get(section.heading) != section.digest:
            yield f"{page.relative_to(ROOT)}: older than its English section: {section.stamp}"


def faults(page: Path) -> Iterator[str]:
    """Yield what is wrong in a Chinese page, beside its age."""
    english = {section.heading: section for section in sections(ENGLISH[page])}
    chinese = sections(page)
    sources = [section.source or section.heading for section in chinese]
    yield from differences(Counter(english.keys()), Counter(sources), "section ")
    if sources != list(english) and sorted(sources) == sorted(english):
        yield "the sections have another order than in English"
    for section in chinese:
        original = english.get(section.source or "")
        found = [
            *(section_faults(section, original, page) if original else ()),
            *prose_faults(section.prose),
        ]
        yield from (f"{section.heading}: {what}" for what in found)
        for link in LINK.findall(section.prose):
            linked = (page.parent / link.partition("#")[0]).resolve()
            if linked in ENGLISH.values() and linked != ENGLISH[page]:
                yield f"{section.heading}: {link} has a Chinese page"


def section_faults(section: Section, original: Section, page: Path) -> Iterator[str]:
    if section.level != original.level:
        yield f"a heading of level {section.level}, in English {original.level}"
    if section.code != original.code:
        yield "other blocks of code than in English"
    if section.translated == original.digest:  # Otherwise it cannot be expected to say the same.
        yield from differences(original.shape(ENGLISH[page]), section.shape(page))
        yield from (
            f"lacks the number {number}" for number in sorted(original.numbers - section.numbers)
        )


def differences(english: Counter[str], chinese: Counter[str], kind: str = "") -> Iterator[str]:
    yield from (
        f"lacks {count} x {kind}{what}" for what, count in sorted((english - chinese).items())
    )
    yield from (
        f"has {count} x {kind}{what} more" for what, count in sorted((chinese - english).items())
    )


def prose_faults(prose: str) -> Iterator[str]:
    """Yield what hosts of Markdown or readers of Chinese take amiss, whatever the page says in English."""
    for line in prose.splitlines():
        if re.search(f"[{HAN}]", line):
            plain = re.sub(r"<!--.*?-->", "", LINK.sub("文", SPAN.sub("文", line)))
            yield from (f"ASCII punctuation: {found}" for found in ASCII_PUNCTUATION.findall(plain))
    yield from (
        f"line break between Chinese characters: {found!r}" for found in BREAK.findall(prose)
    )
    for before, _, text, after in EMPHASIS.findall(SPAN.sub("``", prose)):
        if (before and not text[0].isalnum()) or (after and not text[-1].isalnum()):
            yield f"shown with its asterisks, as punctuation stands inside beside a character: {text}"
    for word, better in WORDS.items():
        yield from (f"{found} is {better} in docs/GLOSSARY.md" for found in re.findall(word, prose))


def main() -> None:
    for page in ENGLISH:
        for line in older_sections(page):
            print(line)


if __name__ == "__main__":
    main()
