"""`python -m tests.histories [COUNT]`: many histories of unit/test_hostile.py, on the compiled transport and on every core.

Batches of 1,000, each with a seed of its own, so that memory stays small and a failing batch can be run again alone:
`python -m tests.histories 1000 SEED`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testbed.host import compiled

ROOT = Path(__file__).resolve().parents[1]
BATCH = 1000
RUN = f"""
import sys
from testbed.host import compiled
compiled.use({{}})
import pytest
options = ["-q", "-p", "no:cacheprovider", "-o", "timeout=0", "{ROOT}/tests/unit/test_hostile.py"]
sys.exit(pytest.main(options))
"""


def batch(seed: int, count: int) -> subprocess.CompletedProcess[str]:
    """`count` histories drawn from `seed`."""
    environment = os.environ | {"HISTORIES": str(count), "HISTORIES_SEED": str(seed)}
    return subprocess.run([sys.executable, "-c", RUN], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def main(arguments: list[str]) -> int:
    """Run them all; stop at the first batch that fails and print what it found."""
    count = int(arguments[0]) if arguments else 50_000
    first = int(arguments[1]) if len(arguments) > 1 else 1
    if compiled.main():
        return 1
    sizes = [min(BATCH, count - begin) for begin in range(0, count, BATCH)]
    done = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for index, result in enumerate(pool.map(batch, range(first, first + len(sizes)), sizes)):
            if result.returncode:
                print(f"batch with seed {first + index} failed\n{result.stdout[-6000:]}{result.stderr[-2000:]}")
                pool.shutdown(cancel_futures=True)
                return 1
            done += sizes[index]
            print(f"{done} histories, seed {first + index}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
