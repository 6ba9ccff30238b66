"""A Spark that starts sooner: what the tests need of it is over before Java's better compiler has paid for itself.

A session and its first query cost 25 s of CPU time as Spark comes, and 15 s so. And Spark's Python processes import it
from a zip file, compiling it anew each time, which on a busy machine takes longer than the ten seconds that Spark gives
them: a home without that file has them import the package that is installed.
"""

import os
from pathlib import Path
from typing import Final

import pyspark

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For spark.driver.extraJavaOptions."""

_PARTS: Final = ("bin", "data", "jars", "sbin")


def quick_home(folder: Path) -> None:
    """Make that home in `folder`, once, and have this process and its children use it."""
    folder.mkdir(parents=True, exist_ok=True)
    package = Path(pyspark.__file__).parent
    for name in _PARTS:
        if not (folder / name).exists():
            (folder / name).symlink_to(package / name)
    os.environ["SPARK_HOME"] = str(folder)
