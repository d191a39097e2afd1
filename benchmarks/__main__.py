"""`python -m benchmarks NAME [options]` runs one benchmark; without a name it lists them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

BENCHMARKS = {
    "congestion": "incast, permutation and two flows on one path, under the virtual clock",
    "endpoint": "delivered packets per second of the endpoint against a bare windowed loop",
    "probes": "what the interval and the count of background probes cost and bring, under the virtual clock",
}


def main(arguments: list[str]) -> int:
    """Dispatch by name."""
    if not arguments or arguments[0] not in BENCHMARKS:
        print("usage: python -m benchmarks NAME [options]", file=sys.stderr)
        for name, what in BENCHMARKS.items():
            print(f"  {name:12} {what}", file=sys.stderr)
        return 0 if not arguments else 2
    run: Callable[[list[str]], int] = import_module(f"benchmarks.{arguments[0]}").main
    return run(arguments[1:])


sys.exit(main(sys.argv[1:]))
