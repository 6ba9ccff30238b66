"""Apache RocketMQ's jars from Maven Central, kept in a cache folder outside the repository."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

VERSIONS = ("4.9.7", "5.3.3")
CACHE_VARIABLE = "ROCKETRIO_APACHE_CACHE"
DOWNLOAD_TIMEOUT = 300.0
"""Seconds for one version; 134 jars, 83 MB, take 20 to 50."""

_ARTIFACTS = ("namesrv", "broker", "client", "tools")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rocketrio</groupId><artifactId>interop</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = (
    "    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version>{but}</dependency>"
)
_BUT_THE_REST = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class UnavailableError(Exception):
    """The real Apache RocketMQ cannot be had here; the message says why."""


def cache_folder() -> Path:
    """Where the jars of all versions lie."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache/rocketrio/apache")


def require_java() -> None:
    """Raise `UnavailableError` without a JDK."""
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            raise UnavailableError(
                f"no `{program}` on PATH (install a JDK, 17 or later: default-jdk-headless on Debian)"
            )


def apache_jars(version: str) -> Path:
    """The folder with the jars of one version, downloaded at first use.

    Raises `UnavailableError` without Java, or without Maven while the cache is empty, or when Maven
    Central does not answer.
    """
    require_java()
    folder = cache_folder() / version
    # A folder is moved here whole, so what exists is complete.
    if not (folder / f"rocketmq-broker-{version}.jar").exists():
        _download(version, folder)
    return folder


def _download(version: str, folder: Path) -> None:
    wanted = [f"org.apache.rocketmq:rocketmq-{artifact}:{version}" for artifact in _ARTIFACTS]
    fetch_jars(wanted, folder)


def fetch_jars(wanted: Sequence[str], folder: Path, *, alone: bool = False) -> None:
    """Put `group:artifact:version` and all they need (`alone`: nothing else) into a new folder.

    Raises `UnavailableError` without Maven, or when Maven Central does not answer or lacks one.
    """
    names = ", ".join(wanted)
    if shutil.which("mvn") is None:
        raise UnavailableError(f"no `mvn` on PATH and nothing in {folder} (install maven): {names}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as work:
        pom, lib = Path(work) / "pom.xml", Path(work) / "lib"
        pom.write_text(_POM.format(dependencies="\n".join(_dependency(w, alone) for w in wanted)))
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={lib}"]
        try:
            done = subprocess.run(
                ["mvn", "-q", "-B", "-f", str(pom), *goal],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=DOWNLOAD_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(
                f"Maven Central did not deliver {names} within {DOWNLOAD_TIMEOUT:.0f} s"
            ) from error
        if done.returncode != 0:
            said = [line for line in done.stdout.splitlines() if "ERROR" in line]
            first = said[0].split("] ", 1)[-1] if said else done.stderr
            raise UnavailableError(f"Maven could not fetch {names}: {first[:300]}")
        # Another run may have been quicker: its copy is as good as this one.
        if not folder.exists():
            lib.rename(folder)


def _dependency(coordinates: str, alone: bool) -> str:
    group, artifact, version = coordinates.split(":")
    return _DEPENDENCY.format(
        group=group, artifact=artifact, version=version, but=_BUT_THE_REST if alone else ""
    )
