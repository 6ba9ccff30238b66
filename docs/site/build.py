"""Build the manual as a site of HTML files: `make docs`, or `python docs/site/build.py [FOLDER]`.

Sphinx reads FOLDER-source, where this puts the pages of the repository (`pages.py`) and those that are made from the
code (the other files). A warning is an error.
"""

import os
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

SITE = Path(__file__).parent
ROOT = SITE.parents[1]
sys.path[:0] = [str(SITE), str(ROOT)]  # Figures come from the support of tests, too.

from commands import command_pages  # noqa: E402
from library import library_pages  # noqa: E402
from metrics import metrics_page  # noqa: E402
from pages import Files, files_of_pages, pages_without_a_place, write  # noqa: E402
from settings import settings_page  # noqa: E402


def reference_pages() -> Files:
    """Return the pages that are made from the code."""
    pages = {
        **library_pages(),
        **command_pages(),
        "settings": settings_page(),
        "metrics": metrics_page(),
    }
    return {f"reference/{name}.rst": text.encode() for name, text in pages.items()}


def main() -> int:
    """Build into the folder that the command line names."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/docs"
    if missing := pages_without_a_place():
        print("\n".join(missing), file=sys.stderr)
        return 1
    source = folder.with_name(f"{folder.name}-source")
    write({**files_of_pages(), **reference_pages()}, source)
    options = ["-q", "-W", "--keep-going", "-n", "-j", "auto", "-b", "html"]
    cache = folder.with_name(f"{folder.name}-cache")
    done = build_main([*options, "-c", str(SITE), "-d", str(cache), str(source), str(folder)])
    if done == 0:
        print(f"open {os.path.relpath(folder / 'index.html')}")
    return done


if __name__ == "__main__":
    sys.exit(main())
