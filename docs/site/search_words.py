"""What counts as a word in the search: Sphinx's English words, and pairs of Chinese characters.

Chinese has no spaces, and a list of its words (jieba) has none of this manual's. A query is divided in the same way.
"""

import re
from itertools import pairwise
from typing import Any, Final

from sphinx.search.en import SearchEnglish

_HAN: Final = "[\u3400-\u4dbf\u4e00-\u9fff]"


class Words(SearchEnglish):
    """English words, and pairs of Chinese characters; of the pages here, and of a query in the browser."""

    js_splitter_code = r"""
var splitQuery = (query) =>
  (query.match(/\p{Script=Han}+|(?:(?!\p{Script=Han})[\p{Letter}\p{Number}_])+/gu) || []).flatMap(
    (word) =>
      /^\p{Script=Han}{2}/u.test(word)
        ? [...word].slice(1).map((character, index) => [...word][index] + character)
        : [word],
  );
"""

    def split(self, input: str) -> list[str]:  # noqa: A002 - as in the class above
        """Return the words of a text."""
        words = re.findall(rf"{_HAN}+|(?:(?!{_HAN})\w)+", input)
        return [part for word in words for part in _pairs(word)]


def _pairs(word: str) -> list[str]:
    if len(word) > 1 and re.match(_HAN, word):
        return [first + second for first, second in pairwise(word)]
    return [word]


def setup(app: Any) -> dict[str, bool]:
    """Use it for the whole site."""
    app.add_search_language(Words)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
