"""Java programs of this repository: compiled at first use, kept beside Apache's jars by the hash of their sources."""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.interop.jars import cache_folder

_LOGBACK = '<configuration><root level="OFF"/></configuration>\n'


class NotCompiledError(Exception):
    """What the compiler said."""


def compiled(name: str, sources: Sequence[Path], class_path: str) -> Path:
    """The folder with the classes of these files."""
    digest = hashlib.sha256(class_path.encode())
    for source in sources:
        digest.update(b"\0" + source.name.encode() + b"\0" + source.read_bytes())
    classes = cache_folder() / f"{name}-{digest.hexdigest()[:16]}"
    if classes.exists():
        return classes
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f".{name}-") as work:
        output = Path(work) / "classes"
        command: list[str | Path] = ["javac", "-nowarn", "-d", output, "-cp", class_path, *sources]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise NotCompiledError(f"javac: {done.stderr}")
        (output / "logback.xml").write_text(_LOGBACK)
        if not classes.exists():  # Another run may have been quicker.
            shutil.move(output, classes)
    return classes
