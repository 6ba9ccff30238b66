"""Fuzzes everything that a peer's bytes reach, led by coverage: `python -m tests.fuzz`, or `make fuzz`.

    --minutes M     for how long in all (default 10); each target has its share
    --target NAME   this one alone
    --corpus DIR    where inputs that reach something new are kept, for the next run too (default .cache/fuzz)
    --keep          afterwards keep the smallest set that reaches all of it beside this file, in corpora/

What breaks a target is written to DIR/found, with its traceback; the exit status is 1 then. `make test` has a short
form of it (test_short.py) that needs no fuzzer.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.fuzz.target import SEED_LIMIT, Target
from tests.fuzz.targets import BY_NAME

INPUT_TIME_LIMIT: Final = 120
"""Seconds until an input that does not end counts as found. One that is slow is found by its CPU (one.py): on a busy
machine a process may have no turn for long."""
MEMORY_LIMIT_MB: Final = 2048
KEPT_SIZE_LIMIT: Final = 4096
"""Bytes of an input that is kept beside this file."""
KEPT_LIMIT: Final = 400
PROGRAM_KEPT_LIMIT: Final = 120
"""Inputs of one target that are kept: each test run takes them all."""


def main(arguments: list[str]) -> int:
    """Fuzz what was chosen, and say what was found."""
    options = _options(arguments)
    chosen = [BY_NAME[options.target]] if options.target else list(BY_NAME.values())
    broken = []
    for number, target in enumerate(chosen):
        seconds = int(options.minutes * 60 / len(chosen))
        print(f"# {number + 1} of {len(chosen)}: {target.name}, {seconds} s", flush=True)
        if not _fuzz(target, options.corpus, seconds):
            broken.append(target.name)
        if options.keep:
            _keep(target, options.corpus)
    print(f"targets={len(chosen)} broken={','.join(broken) or 'none'}")
    return 1 if broken else 0


def _fuzz(target: Target, folder: Path, seconds: int) -> bool:
    """Whether nothing broke."""
    corpus, seeds, found = (folder / kind / target.name for kind in ("corpus", "seeds", "found"))
    for place in (corpus, seeds, found):
        place.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.corpus()):
        (seeds / str(number)).write_bytes(data)
    words = folder / f"{target.name}.dict"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    begin = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.one", target.name),
            f"-max_total_time={seconds}",
            f"-max_len={SEED_LIMIT}",
            f"-timeout={INPUT_TIME_LIMIT}",
            f"-rss_limit_mb={MEMORY_LIMIT_MB}",
            f"-dict={words}",
            f"-artifact_prefix={found}/",
            *("-print_final_stats=1", "-verbosity=0"),
            *(str(corpus), str(seeds)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    (found / "last.log").write_text(done.stdout)
    runs = next(
        (
            line.split()[-1]
            for line in done.stdout.splitlines()
            if "number_of_executed_units" in line
        ),
        "?",
    )
    print(
        f"runs={runs} corpus={len(list(corpus.iterdir()))} seconds={time.monotonic() - begin:.0f}"
        f" {'clean' if not done.returncode else f'BROKEN: see {found}'}",
        flush=True,
    )
    if done.returncode:
        print(done.stdout[-4000:], flush=True)
    return not done.returncode


def _keep(target: Target, folder: Path) -> None:
    """Keep the smallest set of small inputs that reaches what all inputs do; the smallest ones if they are many."""
    small, least = folder / "small" / target.name, folder / "least" / target.name
    for place in (small, least):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
    found = [path.read_bytes() for path in (folder / "corpus" / target.name).iterdir()]
    for number, data in enumerate([*target.kept(), *found]):
        if len(data) <= KEPT_SIZE_LIMIT:
            (small / str(number)).write_bytes(data)
    subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.one", target.name),
            *("-merge=1", "-verbosity=0", f"-max_len={KEPT_SIZE_LIMIT}", str(least), str(small)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    kept = sorted((path.read_bytes() for path in least.iterdir()), key=len)
    assert kept or not found, "nothing was merged"
    target.keep(kept[: PROGRAM_KEPT_LIMIT if target.is_program else KEPT_LIMIT])
    print(f"kept={len(target.kept())} of {len(kept)}", flush=True)


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long in all")
    parser.add_argument("--target", choices=sorted(BY_NAME), help="this one alone")
    parser.add_argument(
        "--corpus", type=Path, default=Path(".cache/fuzz"), help="where inputs are kept"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the smallest corpus beside the code"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
