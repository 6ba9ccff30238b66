"""Build what is published into dist/, and try it as a user gets it: `make dist`.

    python -m tests.distribution

The last commit is built twice, and both builds must be the same to the byte. The wheel is installed with the packages
of requirements-hashes.txt, which are then listed as an SBOM in CycloneDX; the source archive is installed as pip does
it. Both are tried outside of the checkout. docs/releasing.md has the steps before and after.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any, Final

from tests.support.processes import Process, free_port

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
HASHES: Final = ROOT / "requirements-hashes.txt"
PIP: Final = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
IMPORT_ALL: Final = """
import importlib, importlib.metadata, sys
for file in importlib.metadata.files("rocketrio"):
    name = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
    if file.suffix == ".py" and not name.endswith("__main__"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in sys.argv[1:]:
                raise
        else:
            assert module.__file__ == str(file.locate()), module.__file__
"""


def build(source: Path, folder: Path, epoch: str) -> tuple[Path, Path]:
    """Build the source archive, and the wheel from that; return the wheel and the archive."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source]
    _run(command, cwd=folder, env={"SOURCE_DATE_EPOCH": epoch})
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive


def new_environment(folder: Path) -> Path:
    """Make a virtual environment without any package, pip included; return its Python."""
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


def install(python: Path, *arguments: str | Path) -> None:
    """Install packages into an environment."""
    _run([*PIP, "--python", python, "install", *arguments], cwd=python.parent)


def try_out(python: Path, *, lacks: tuple[str, ...] = ()) -> None:
    """Use the installed commands as a new user does, and import all modules but those that need what `lacks` names."""
    tools = python.parent
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        assert "rocketrio" in _run([tools / "rocketrio", "--version"], cwd=here)
        assert "namesrv" in _run([tools / "rocketrio-broker", "--help"], cwd=here)
        _run([python, "-c", IMPORT_ALL, *lacks], cwd=here)
        name_server = f"127.0.0.1:{free_port()}"
        found = {"NAMESRV_ADDR": name_server}
        cluster = Process.start(
            "cluster",
            [tools / "rocketrio-broker", "cluster", "--listen", name_server, "--data", here / "d"],
            log=here / "cluster.log",
            cwd=here,
        )
        try:
            cluster.wait_until(lambda: cluster.has_said("ready role=master"), "ready")
            _run([tools / "rocketrio", "produce", "orders"], cwd=here, env=found, text="one\n")
            command = ["consume", "orders", "--group", "billing", "--from", "first"]
            command += ["--until-caught-up"]
            assert _run([tools / "rocketrio", *command], cwd=here, env=found) == "one\n"
        finally:
            cluster.stop()


def list_packages(python: Path, wheel: Path, epoch: str) -> dict[str, Any]:
    """Return an SBOM of an environment: what it describes is the wheel, by its hash, with all that it needs."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    command = [tool, "environment", "--output-reproducible", python]
    found = _run(command, cwd=python.parent, env={"SOURCE_DATE_EPOCH": epoch})
    bom: dict[str, Any] = json.loads(found)
    (described,) = (each for each in bom["components"] if each["name"] == "rocketrio")
    bom["components"].remove(described)
    described["hashes"] = [{"alg": "SHA-256", "content": _sha256(wheel)}]
    bom["metadata"]["component"] = described
    return bom


def main() -> None:
    """Fill dist/."""
    commit, epoch = _run(["git", "log", "-1", "--format=%h %ct"], cwd=ROOT).split()
    if _run(["git", "status", "--porcelain"], cwd=ROOT):
        print(f"what is not committed is not built: this is {commit}")
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls")
    if not urls:
        print("pyproject.toml has no [project.urls]: add them before a release (docs/releasing.md)")
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        wheel, archive = _build_twice(here, epoch)
        print("both builds are the same")
        _run([sys.executable, "-m", "twine", "check", "--strict", wheel, archive], cwd=here)
        sbom = _try_wheel(wheel, here / "wheel", epoch)
        print("the wheel works with the packages of requirements-hashes.txt")
        _try_archive(archive, here / "archive")
        print("the source archive works")
        DIST.mkdir(exist_ok=True)
        for old in DIST.iterdir():
            old.unlink()
        for file in (wheel, archive, sbom):
            shutil.copy(file, DIST)
            print(f"{_sha256(file)}  dist/{file.name}")


def _build_twice(folder: Path, epoch: str) -> tuple[Path, Path]:
    """Build the last commit in two places; return the wheel and the archive."""
    tar = folder / "commit.tar"
    _run(["git", "archive", "--output", tar, "HEAD"], cwd=ROOT)
    built = []
    for number in ("1", "2"):
        source, made = folder / f"source-{number}", folder / f"made-{number}"
        source.mkdir()
        made.mkdir()
        _run(["tar", "--extract", "--file", tar], cwd=source)
        built.append(build(source, made, epoch))
    files, again = built
    for one, other in zip(files, again, strict=True):
        if one.read_bytes() != other.read_bytes():
            sys.exit(f"two builds of {one.name} differ")
    return files


def _try_wheel(wheel: Path, folder: Path, epoch: str) -> Path:
    """Try the wheel with all packages whose hashes are known; return the SBOM of that environment."""
    python = new_environment(folder)
    install(python, "--require-hashes", "--only-binary", ":all:", "-r", HASHES)
    # By its name: pip would note the path of a file, and the SBOM repeat it.
    install(python, "--no-deps", "--no-index", "--find-links", wheel.parent, "rocketrio")
    try_out(python, lacks=("pyspark", "pytest"))
    bom = list_packages(python, wheel, epoch)
    sbom = wheel.parent / f"rocketrio-{bom['metadata']['component']['version']}.cdx.json"
    sbom.write_text(json.dumps(bom, indent=2) + "\n")
    return sbom


def _try_archive(archive: Path, folder: Path) -> None:
    """Try what pip builds from the archive, with fewer extras than the wheel had."""
    python = new_environment(folder)
    install(python, "-c", ROOT / "constraints.txt", f"{archive}[codecs,metrics,otel,polars]")
    try_out(python, lacks=("pandas", "pyspark", "pytest"))


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _run(
    command: list[str | Path] | tuple[str | Path, ...],
    *,
    cwd: Path,
    env: dict[str, str] | None = None,
    text: str = "",
) -> str:
    """Run a program that finds nothing of this checkout, and return what it prints. Ends this one with its errors."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **(env or {})},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"{words}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
