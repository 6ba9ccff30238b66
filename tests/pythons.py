"""Run the quick tests of the client on each other Python that this machine has: `make pythons`.

    python -m tests.pythons             all of them
    python -m tests.pythons --newest    the newest one: `.ci/run` has a root of Debian 13 instead, where it can

A supported version is looked for on PATH, then among those of pyenv. Each that is found gets a virtual environment
under .cache/, which the next run uses again. `make fresh` runs more, on Debian's own Pythons.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CLASSIFIER: Final = "Programming Language :: Python :: 3."


def supported() -> list[str]:
    """Return the versions that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = (each.partition(CLASSIFIER)[2] for each in project["classifiers"])
    return [f"3.{minor}" for minor in found if minor]


def candidates(version: str) -> Iterator[Path]:
    """Yield where an interpreter of a version may be."""
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)
    of_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from sorted(of_pyenv.glob(f"{version}.*/bin/python"), reverse=True)


def works(python: Path, version: str) -> bool:
    """Whether it is of that version and can make environments: pyenv's shims and Debian's bare packages may not."""
    program = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


def main() -> int:
    """Test, and say at the end what was tested and what is not there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--newest", action="store_true", help="the newest one alone")
    only_newest = parser.parse_args().newest
    own = "{}.{}".format(*sys.version_info)
    results = [f"{own:5} runs all other tests"]
    failed = has_tested = False
    for version in reversed(supported()):
        if version == own:
            continue
        if only_newest and has_tested:
            results.append(f"{version:5} is left out")
            continue
        python = next((each for each in candidates(version) if works(each, version)), None)
        if python is None:
            results.append(f"{version:5} is not on this machine")
            continue
        has_tested = True
        print(f"pythons: {python}", flush=True)
        began = time.monotonic()
        words = ["make", "--no-print-directory", "clients", f"PYTHON={python}"]
        status = subprocess.run([*words, f"VENV=.cache/python{version}"], cwd=ROOT, check=False)
        failed = failed or status.returncode != 0
        result = "failed" if status.returncode else "passed"
        results.append(f"{version:5} {result} in {time.monotonic() - began:.0f} s: {python}")
    print("\n".join(results))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
