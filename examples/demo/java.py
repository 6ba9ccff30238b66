"""Finds the Java that Spark would start, and says what is missing. The demonstration and the tests ask it."""

import os
import re
import shutil
import subprocess
from typing import Final

VERSION: Final = 17
"""The oldest that Spark 4 runs on."""
_ADVICE: Final = (
    f"install Java {VERSION} or later (Debian, Ubuntu: sudo apt install default-jre-headless)"
)


def java_problem() -> str | None:
    """Return why Spark cannot run here and what to install, or None.

    As Spark's own scripts do, take bin/java in JAVA_HOME if that is set, and otherwise `java` on PATH.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        if home:
            return f"JAVA_HOME is {home}, which has no bin/java; correct it or unset it"
        return f"no Java was found; {_ADVICE}"
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "((\d+)[^"]*)"', done.stderr)
    if version is None:
        return f"{java} does not say its version; {_ADVICE}"
    if int(version[2]) < VERSION:
        return f"{java} is version {version[1]}; {_ADVICE}"
    return None
