"""Runs the benchmarks beside this file and passes their JSON lines on: `python benchmarks/run.py [NAME ...]`.

Without names all but two: `peers`, which runs other people's brokers and takes half an hour, and `heal`, which breaks
ours for ten minutes.

A line is one figure: `{"name": ..., "value": ..., "unit": ..., ...}`. What goes wrong stands on standard error, and the
exit code is then 1.
"""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
TIME_LIMIT = 600
"""Seconds one benchmark may take; it is killed then, and what it has started dies with it."""
BY_NAME_ONLY = {"peers": 3600, "heal": 1800}
"""Those that do not run unasked, and their own limits."""


def main() -> int:
    """Run those named (`codec` for `bench_codec.py`), or all."""
    chosen = sys.argv[1:]
    known = {path.stem.removeprefix("bench_"): path for path in sorted(FOLDER.glob("bench_*.py"))}
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        print(
            f"no benchmark named {', '.join(unknown)}; there are {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    failed = []
    for name in chosen or sorted(known.keys() - BY_NAME_ONLY.keys()):
        print(f"# {name}", file=sys.stderr)
        limit = BY_NAME_ONLY.get(name, TIME_LIMIT)
        try:
            done = subprocess.run([sys.executable, known[name]], timeout=limit, check=False)
            is_done = not done.returncode
        except subprocess.TimeoutExpired:
            print(f"{name} took over {limit} s", file=sys.stderr)
            is_done = False
        if not is_done:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
