"""Writes a file whole, in the place of the one that is there."""

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write a file whole, beside its place, and move it there."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
