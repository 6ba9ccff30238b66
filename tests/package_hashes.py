"""Write `requirements-hashes.txt`: hashes of the packages that rocketrio needs, in the versions of constraints.txt.

    python -m tests.package_hashes

pip is asked what it would install, for each Python and each platform of `PLATFORMS`; it installs nothing. The file then
holds the hash of every package file that it would take from the public index.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "requirements-hashes.txt"
CONSTRAINTS: Final = ROOT / "constraints.txt"
EXTRAS: Final = ("codecs", "columns", "metrics", "otel", "pandas", "polars")
"""All that a client or a server uses. Spark's packages come with Spark."""
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Final = ("x86_64", "aarch64")
"""Linux with glibc 2.28 or later on these processors."""
HEAD: Final = f"""\
# SHA-256 of the files of the public index for rocketrio[{",".join(EXTRAS)}] in the versions of
# constraints.txt, for Linux on {" and ".join(PLATFORMS)} and Python {PYTHONS[0]} to {PYTHONS[-1]}.
# `python -m tests.package_hashes` makes it.
#
#     pip install --require-hashes --only-binary :all: -r requirements-hashes.txt
#     pip install --no-deps rocketrio-*.whl
"""


@attrs.frozen(order=True)
class Package:
    """One version of a package."""

    name: str
    version: str


def requirements() -> list[str]:
    """Return what rocketrio itself asks for, with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    return [each for each in wanted if not each.startswith("rocketrio[")]


def hashes_for(python: str, platform: str) -> dict[Package, str]:
    """Ask pip which files it would install there. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
        ]
        command += ["--only-binary", ":all:", "--target", folder, "--report", str(report)]
        command += ["--python-version", python, "--implementation", "cp"]
        for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014"):
            command += ["--platform", f"{tag}_{platform}"]
        environ = {name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS"}
        subprocess.run([*command, "-c", str(CONSTRAINTS), *requirements()], check=True, env=environ)
        installed = json.loads(report.read_text())["install"]
    return {
        Package(one["metadata"]["name"], one["metadata"]["version"]): one["download_info"][
            "archive_info"
        ]["hashes"]["sha256"]
        for one in installed
    }


def page(hashes: dict[Package, set[str]]) -> str:
    """Return the file."""
    lines = [HEAD]
    for package in sorted(hashes, key=lambda each: each.name.lower()):
        parts = [f"{package.name}=={package.version}"]
        parts += [f"    --hash=sha256:{each}" for each in sorted(hashes[package])]
        lines.append(" \\\n".join(parts) + "\n")
    return "".join(lines)


def main() -> None:
    """Write the file."""
    found: dict[Package, set[str]] = {}
    for python in PYTHONS:
        for platform in PLATFORMS:
            print(f"Python {python} on {platform}", flush=True)
            for package, sha256 in hashes_for(python, platform).items():
                found.setdefault(package, set()).add(sha256)
    FILE.write_text(page(found))


if __name__ == "__main__":
    main()
