"""The wheel has every module of the packages and works away from the checkout; the source archive is what builds it.

The packages that rocketrio needs are borrowed from this environment, so that nothing is downloaded; `make dist`
installs them (`distribution.py`).
"""

import subprocess
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from rocketrio import __version__
from tests import distribution

EPOCH = "1700000000"
PROJECT = tomllib.loads((distribution.ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
NAME = f"rocketrio-{__version__}"

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return distribution.build(distribution.ROOT, tmp_path_factory.mktemp("built"), EPOCH)


def files_of_packages() -> set[str]:
    """Name each file of the packages, as a path from the folder that holds the package."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    listed = subprocess.run(
        [*command, *PACKAGES], cwd=distribution.ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {file.partition("/")[2] for file in listed if (distribution.ROOT / file).exists()}


def test_wheel_has_the_files_of_the_packages_and_the_licence(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(f"{NAME}.dist-info/METADATA").decode()
    own = {name for name in names if not name.startswith(NAME)}
    assert own == files_of_packages()
    assert {f"{Path(package).name}/py.typed" for package in PACKAGES} <= own
    assert f"{NAME}.dist-info/licenses/LICENSE" in names
    assert "# rocketrio" in metadata


def test_source_archive_has_what_users_read_and_no_tests(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert {name.partition("/")[0] for name in names} >= {
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "deploy",
        "docs",
        "examples",
        "monitoring",
    }
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


def test_wheel_works_away_from_the_checkout(built: tuple[Path, Path], tmp_path: Path) -> None:
    python = distribution.new_environment(tmp_path / "new")
    (packages,) = (tmp_path / "new").glob("lib/*/site-packages")
    # Only the folder: files in it such as this checkout's .pth are not followed from here.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    distribution.install(python, "--no-deps", "--no-index", built[0])
    distribution.try_out(python)
