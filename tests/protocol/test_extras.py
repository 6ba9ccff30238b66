"""How to install an extra, for each way in which rocketrio can have been installed; and what texts say of it."""

import json
import re
import shlex
from pathlib import Path

import pytest

from rocketrio_protocol import extras
from rocketrio_protocol.extras import how_to_install

ROOT = Path(__file__).parents[2]
COMMIT = "3956236203ad"


def test_extra_of_this_checkout_is_installed_from_this_checkout() -> None:
    *command, wanted = shlex.split(how_to_install("metrics"))
    assert command == ["pip", "install", "-e"]
    assert wanted == f"{ROOT}[metrics]"


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        (None, "'rocketrio[codecs]'"),
        ({"url": "file:///nowhere/x", "dir_info": {}}, "'.[codecs]' in a checkout of rocketrio"),
        ({"url": ROOT.as_uri(), "dir_info": {}}, f"'{ROOT}[codecs]'"),
        (
            {"url": "https://h/r.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"'rocketrio[codecs] @ git+https://h/r.git@{COMMIT}'",
        ),
        (
            {"url": "https://h/rocketrio-0.1-py3-none-any.whl", "archive_info": {}},
            "'rocketrio[codecs] @ https://h/rocketrio-0.1-py3-none-any.whl'",
        ),
    ],
    ids=["index", "folder that is gone", "folder", "git", "wheel"],
)
def test_extra_comes_from_where_rocketrio_came_from(
    origin: dict[str, object] | None, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(extras, "_origin", lambda: noted)
    assert how_to_install("codecs") == f"pip install {wanted}"


def test_no_text_sends_a_user_to_an_index() -> None:
    on_an_index = re.compile(
        r"((pip3?|pipx|uv tool) install( -\S+)*|uvx) ['\"]?rocketrio(?![-\w/.])|install ['\"]?rocketrio\["
    )
    texts = [
        path
        for folder in ("client", "broker", "protocol", "examples", "docs", "deploy", "monitoring")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".ipynb", ".toml", ".yaml", "")
        and path.is_file()
        # What an index will show, and what is done once it does.
        and path.name not in ("index-page.md", "releasing.md")
    ]
    assert len(texts) > 300
    said = [
        path
        for path in [*texts, *ROOT.glob("*.md")]
        for text in [path.read_text().lower()]
        if ("install" in text or "uvx" in text) and on_an_index.search(text)
    ]
    assert not said
