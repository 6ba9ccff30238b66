"""How to install an extra of rocketrio, in the way in which rocketrio itself was installed.

pip notes where a package came from (direct_url.json, PEP 610) unless that was an index: naming the package alone would
then look for it on an index that does not have it, or has another one.

Every program imports this file, and few call it: the functions import what is slow to import.
"""

import json
from pathlib import Path
from urllib.parse import urlsplit


def how_to_install(extra: str) -> str:
    """Return the command that adds an extra to this installation."""
    return f"pip install {_wanted(extra, _origin())}"


def _origin() -> str | None:
    """Return what pip noted about the place that rocketrio came from; None if that was an index."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution("rocketrio").read_text("direct_url.json")
    except PackageNotFoundError:  # Imported from a folder of the path.
        return None


def _wanted(extra: str, origin: str | None) -> str:
    """Return what to name to pip."""
    if origin is None:
        return f"'rocketrio[{extra}]'"
    noted = json.loads(origin)
    url = noted["url"]
    if "dir_info" in noted:
        from urllib.request import url2pathname

        folder = Path(url2pathname(urlsplit(url).path))
        if not folder.is_dir():  # An image keeps no checkout.
            return f"'.[{extra}]' in a checkout of rocketrio"
        return f"{'-e ' if noted['dir_info'].get('editable') else ''}'{folder}[{extra}]'"
    vcs = noted.get("vcs_info")
    source = url if vcs is None else f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"'rocketrio[{extra}] @ {source}'"
