"""Sphinx's configuration. `make docs` runs `build.py`, which writes the pages that Sphinx reads."""

import re
from typing import Any

from tests.test_rooms import PUBLIC

import rocketrio

project = "rocketrio"
release = rocketrio.__version__
version = release
html_title = f"rocketrio {release}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "docstrings",
    "search_words",
]
exclude_patterns = ["README.md", "decisions/README.md"]  # The trees include them.
needs_sphinx = "9.0"
default_role = "py:obj"
# A name in a docstring may be an argument, and a type may be of another package; those of the library must exist.
_PUBLIC = "|".join(re.escape(name) for name in PUBLIC)
nitpick_ignore_regex = [("py:.*", rf"(?!({_PUBLIC})\.[A-Z]\w\w+$).*")]

# Pages are what they are on GitHub.
myst_disable_syntax = ["myst_block_break", "myst_line_comment", "myst_role", "myst_target"]
myst_enable_extensions = ["strikethrough", "tasklist"]
myst_heading_anchors = 6
# What a page links to has a page, but no place in the tree: `build.py` checks that the others have one. Headings of an
# included page begin below the title.
suppress_warnings = ["toc.not_included", "myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
pygments_dark_style = (
    "github-dark"  # furo's own underlines names of modules, which look like links then.
)
html_static_path = ["static"]
html_css_files = ["style.css"]
smartquotes = False  # `--all` is an option.
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_last_updated_fmt = None
copybutton_exclude = ".linenos, .gp, .go"


def setup(app: Any) -> None:
    """Give metrics a place in the index, as settings and options have."""
    app.add_object_type("metric", "metric", "single: %s")
