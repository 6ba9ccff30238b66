"""The Spark tests on the other PySpark versions that we declare: `python -m tests.spark.versions`; `make soak` does so.

    --only VERSION   one of them (may be repeated); any version that the package index has
    ARGUMENTS        go to pytest, as in `-- -k stream`

Each version lies in a folder of its own (450 MB, downloaded once) under ~/.cache/rocketrio/spark or
ROCKETRIO_SPARK_CACHE, put before everything else on PYTHONPATH: Spark hands that to its Python workers too.
The exit status is 1 when a version failed, and the last lines say which.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

VERSIONS: Final = ("4.0.5", "4.1.4", "4.3.0")
"""The newest of each minor version; the suite itself runs on the one in constraints.txt, a 4.2."""

_OPEN_SOCKETS: Final = (
    # Their collect() leaves sockets to the garbage collector.
    "-Wignore::ResourceWarning",
    "-Wignore::pytest.PytestUnraisableExceptionWarning",
)
LACKS: Final = {
    "4.0": (*_OPEN_SOCKETS, "--ignore=tests/spark/reading/test_pushdown.py"),
    "4.1": _OPEN_SOCKETS,
}
"""What is left out for a minor version: tests of filters that are pushed down."""

ROOT: Final = Path(__file__).parents[2]


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    results = {version: _run(version, options.pytest) for version in options.only or VERSIONS}
    for version, status in results.items():
        print(f"pyspark={version} {'passed' if status == 0 else f'failed status={status}'}")
    return int(any(results.values()))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.versions")
    parser.add_argument("--only", action="append", metavar="VERSION", help="this version")
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="for pytest")
    return parser.parse_args(arguments)


def _run(version: str, arguments: list[str]) -> int:
    print(f"pyspark={version}", flush=True)
    environment = {**os.environ, "PYTHONPATH": str(_package(version))}
    # A Spark of the surroundings would win over the one that is imported.
    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not interop", "tests/spark"]
    command += LACKS.get(version.rpartition(".")[0], ())
    done = subprocess.run([*command, *arguments], cwd=ROOT, env=environment, check=False)
    return done.returncode


def _package(version: str) -> Path:
    """The folder with that version, downloaded where it is missing."""
    default = Path.home() / ".cache" / "rocketrio" / "spark"
    folder = Path(os.environ.get("ROCKETRIO_SPARK_CACHE", default)) / version
    if folder.exists():
        return folder
    unfinished = folder.with_name(f"{version}.unfinished-{os.getpid()}")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run([*install, "--target", str(unfinished), f"pyspark=={version}"], check=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
