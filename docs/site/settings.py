"""The page of the broker's settings, made from their classes."""

import json
from operator import attrgetter

from markup import indented, inline, title

from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.settings.loading import setting_paths

INTRO = """\
Every setting of a broker, as `rocketrio-broker settings` lists them. Write them in the file of `rocketrio-broker run
--config`, where those that begin with `store.` stand in the table `[store]`, or give one as `--set NAME=VALUE`. Times
are in seconds and sizes in bytes, unless the name says otherwise."""


def settings_page() -> str:
    """Return the page."""
    defaults = BrokerConfig()
    parts: dict[str, list[str]] = {"The broker": [], "The store": []}
    for path, meaning in setting_paths().items():
        default = attrgetter(path)(defaults)
        shown = "" if default is None else f"   :default: ``{json.dumps(default, default=str)}``\n"
        part = "The store" if path.startswith("store.") else "The broker"
        parts[part].append(f".. confval:: {path}\n{shown}\n{indented(inline(meaning))}\n")
    sections = [title(part, "-") + "".join(texts) for part, texts in parts.items()]
    return title("Settings of a broker") + inline(INTRO) + "\n\n" + "".join(sections)
