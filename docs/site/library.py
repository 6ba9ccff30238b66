"""The pages of the public modules: autodoc writes what their docstrings say, in the order of a reader's need."""

import inspect
import sys
from importlib import import_module
from typing import Any, Final

from markup import body, indented, inline, title, tree
from sphinx.pycode import ModuleAnalyzer
from tests.test_rooms import PUBLIC

_SECTIONS: Final = ("Functions", "Classes", "Errors", "Values")


def library_pages() -> dict[str, str]:
    """Return the page of each public module, and the list of them."""
    pages = {f"library/{name}": _module_page(name) for name in PUBLIC}
    rows = [f"- :py:mod:`{name}`: {inline(_purpose(name))}\n" for name in PUBLIC]
    intro = inline("The names on these pages are public; `help(rocketrio)` shows the same texts.")
    pages["library"] = f"{title('Library')}{intro}\n\n{''.join(rows)}{tree(list(pages))}"
    return pages


def _purpose(module: str) -> str:
    text = inspect.getdoc(import_module(module)) or ""
    return " ".join(text.partition("\n\n")[0].split()).rstrip(".:") + "."


def _module_page(name: str) -> str:
    sections: dict[str, list[str]] = {section: [] for section in _SECTIONS}
    for each in import_module(name).__all__:
        section, text = _entry(name, each)
        sections[section].append(text)
    parts = [title(name), f".. automodule:: {name}\n\n"]
    for section, texts in sections.items():
        if texts:
            parts += [title(section, "-"), *texts, "\n"]
    return "".join(parts)


def _entry(module: str, name: str) -> tuple[str, str]:
    """Return the section of a name, and its text; a name of two modules is explained by the first."""
    value = getattr(import_module(module), name)
    if inspect.isclass(value):
        is_error = issubclass(value, Exception)
        section, kind = ("Errors", "exception") if is_error else ("Classes", "class")
    elif inspect.isfunction(value):
        section, kind = "Functions", "function"
    else:
        section, kind = "Values", "data"
    first = next(one for one in PUBLIC if name in import_module(one).__all__)
    if first != module:
        return section, f":py:obj:`{first}.{name}`\n\n"
    if kind == "data":
        text = indented(body(_text_below(name, value)))
        return section, f".. py:data:: {name}\n\n{text}\n"
    options = {
        "function": "",
        "class": "   :members:\n   :undoc-members:\n",
        "exception": "   :members:\n   :show-inheritance:\n",
    }
    return section, f".. auto{kind}:: {name}\n{options[kind]}\n"


def _text_below(name: str, value: Any) -> str:
    """Return the text below the line that makes a value, in the module that makes it."""
    for module in [*sys.modules]:
        if module.startswith("rocketrio") and vars(sys.modules[module]).get(name) is value:
            texts = ModuleAnalyzer.for_module(module).find_attr_docs()
            if ("", name) in texts:
                return "\n".join(texts["", name])
    return ""
