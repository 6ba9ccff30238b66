"""A store on a full tmpfs refuses and goes on; the kernel ends (SIGBUS) a process that touches a hole there."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("full_tmpfs.py")
MOUNTED = 'mount -t tmpfs -o size=6m tmpfs "$0" && exec "$@"'

pytestmark = [pytest.mark.real]


def in_tmpfs(directory: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program that alone sees a small tmpfs at this directory."""
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", MOUNTED, str(directory), *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_full_tmpfs_ends_no_store(tmp_path: Path) -> None:
    try:
        if in_tmpfs(tmp_path, "true").returncode:
            pytest.skip("no mount namespace can be made here")
    except FileNotFoundError:
        pytest.skip("no unshare here")
    done = in_tmpfs(tmp_path, sys.executable, str(SCRIPT), str(tmp_path))
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-2000:])
    assert "stored on a full disk" in done.stdout
    assert done.stdout.endswith("done\n")
