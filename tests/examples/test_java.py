"""Which Java is found, and that tests without one are skipped with one sentence."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from examples.demo.java import java_problem

ROOT = Path(__file__).parents[2]
ADVICE = "install Java 17 or later (Debian, Ubuntu: sudo apt install default-jre-headless)"
TIME_LIMIT = 200.0
"""Seconds; Spark that is started without Java is waited for much longer."""


def java_that_says(folder: Path, said: str) -> Path:
    """A program `bin/java` in `folder` that reports this on standard error, as Java does; return its path."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n[ $1 = -version ] && printf '%s\\n' {shlex.quote(said)} >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    "said",
    [
        'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment',
        'java version "17" 2021-09-14 LTS',
        'Picked up JAVA_TOOL_OPTIONS: -Dname="8"\nopenjdk version "21.0.8" 2025-07-15',
        'openjdk version "25-ea" 2025-09-16',
    ],
)
def test_java_17_or_later_on_path_is_no_problem(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java_that_says(tmp_path, said).parent))
    assert java_problem() is None


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is version 11.0.2"),
        ('openjdk version "1.8.0_392"', "is version 1.8.0_392"),
        ("Error: could not find libjava.so", "does not say its version"),
    ],
)
def test_older_or_broken_java_is_named_with_what_to_install(
    said: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java = java_that_says(tmp_path, said)
    monkeypatch.setenv("PATH", str(java.parent))
    assert java_problem() == f"{java} {problem}; {ADVICE}"


def test_java_home_wins_over_path_unless_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = java_that_says(tmp_path / "old", 'openjdk version "11.0.2"')
    new = java_that_says(tmp_path / "new", 'openjdk version "21.0.8"')
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setenv("JAVA_HOME", str(new.parents[1]))
    assert java_problem() is None
    monkeypatch.setenv("JAVA_HOME", "")
    assert java_problem() == f"{old} is version 11.0.2; {ADVICE}"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(new.parent))
    assert (
        java_problem() == f"JAVA_HOME is {tmp_path}, which has no bin/java; correct it or unset it"
    )


@pytest.mark.slow
def test_spark_tests_without_java_are_skipped_with_one_sentence() -> None:
    files = ("spark/test_connect.py", "spark/test_guides.py", "examples/test_spark_jobs.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "spark"]
        + [f"tests/{name}" for name in files],
        cwd=ROOT,
        env={**os.environ, "PATH": str(Path(sys.executable).parent), "JAVA_HOME": ""},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert line.endswith(f": no Java was found; {ADVICE}")
    assert "passed" not in done.stdout
