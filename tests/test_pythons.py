"""Which Pythons `make pythons` tests."""

import sys
from pathlib import Path

import pytest

from tests.package_hashes import PYTHONS
from tests.pythons import candidates, supported, works

OWN = "{}.{}".format(*sys.version_info)


def test_supported_versions_are_those_whose_packages_have_hashes() -> None:
    assert supported() == list(PYTHONS)


def test_python_is_looked_for_on_path_and_then_among_those_of_pyenv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = tmp_path / "bin" / "python3.99"
    of_pyenv = tmp_path / "pyenv" / "versions" / "3.99.1" / "bin" / "python"
    for python in (on_path, of_pyenv):
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\nexit 127\n")
        python.chmod(0o755)
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert list(candidates("3.99")) == [on_path, of_pyenv]


def test_python_that_fails_or_is_another_version_is_not_taken(tmp_path: Path) -> None:
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.99: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    assert not works(shim, "3.99")
    assert not works(Path(sys.executable), "3.99")
    assert works(Path(sys.executable), OWN)
