"""Runs the README's two commands on a stranger's machine: a minimal Debian with the packages that the README names.

    python3 -m tests.fresh                            Debian 12, 13 and sid: `make demo`, then `make test`
    python3 -m tests.fresh trixie -- demo quick       one of them, and other targets of the Makefile

Each root is made by debootstrap and kept under `--roots` for the next run, because that takes minutes. The clone of
the last commit, its virtual environment and the home of the ordinary user in it are new for each run. Mounts and
processes live in namespaces of their own, so nothing of them outlives a run.

It needs root, debootstrap and an ordinary Python, and none of the project's packages.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
PACKAGES = "ca-certificates,default-jre-headless,git,make,python3,python3-venv"
SUITES = (
    "bookworm",  # Python 3.11.2, Java 17
    "trixie",  # Python 3.13, Java 21
    "sid",  # Python 3.14, Java 25
)
USER = "stranger"
LIMIT_S = 75 * 60
"""Seconds for one command in one root; more means that it hangs."""

AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
"""What this machine trusts, the root trusts too: a company's proxy may stand between pip and its index."""

PASSED_ON = (
    "PIP_CERT",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_INDEX_URL",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "CI",
)

# Runs in new namespaces, with the root as $1 and a command of the user as $2.
INSIDE = """
set -eu
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
mount --bind "$1/dev/pts/ptmx" "$1/dev/ptmx"
mount -t tmpfs tmpfs "$1/dev/shm"
exec chroot "$1" su --login --whitelist-environment="$3" "$4" --command "$2"
"""


@dataclass(frozen=True)
class Outcome:
    suite: str
    target: str
    status: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("suites", nargs="*", metavar="suite", help="all if none is named")
    parser.add_argument("--roots", type=Path, default=Path("/var/tmp/rocketrio-roots"))
    arguments, targets = _split(sys.argv[1:])
    options = parser.parse_args(arguments)
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        parser.exit(2, "Fresh roots need debootstrap (`apt-get install debootstrap`) and root.\n")
    outcomes: list[Outcome] = []
    for suite in options.suites or SUITES:
        root = options.roots / suite
        _build(root, suite)
        _clone(root)
        for target in targets or ["demo", "test"]:
            outcomes.append(_make(root, suite, target))
    for one in outcomes:
        result = "passed" if one.status == 0 else f"failed with {one.status}"
        print(f"{one.suite:10} make {one.target:8} {result} in {one.seconds:.0f} s")
    return int(any(one.status for one in outcomes))


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _build(root: Path, suite: str) -> None:
    """Make the root if there is none; one that was interrupted is made again."""
    if root.exists():
        return
    unfinished = root.with_name(f"{suite}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    print(f"fresh: debootstrap makes {root}", flush=True)
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(unfinished)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    unfinished.rename(root)


def _clone(root: Path) -> None:
    """Give the root a new user with a new clone, and this machine's names and authorities."""
    for path in (Path("/etc/resolv.conf"), Path("/etc/hosts"), AUTHORITIES):
        if path.exists():
            shutil.copyfile(path, root / path.relative_to("/"))
    home = root / "home" / USER
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run(["chroot", root, "userdel", USER], stderr=subprocess.DEVNULL)
    subprocess.run(
        ["chroot", root, "useradd", "--create-home", "--shell", "/bin/bash", USER], check=True
    )
    clone = home / "rocketrio"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", CHECKOUT, clone], check=True)
    subprocess.run(
        ["chroot", root, "chown", "-R", f"{USER}:", f"/home/{USER}/rocketrio"], check=True
    )


def _make(root: Path, suite: str, target: str) -> Outcome:
    print(f"fresh: make {target} on {suite}", flush=True)
    began = time.monotonic()
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    command = f"cd rocketrio && make {target}"
    try:
        status = subprocess.run(
            [*namespaces, "sh", "-c", INSIDE, "sh", root, command, ",".join(PASSED_ON), USER],
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_S,
        ).returncode
    except subprocess.TimeoutExpired:
        status = 124
    return Outcome(suite, target, status, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
