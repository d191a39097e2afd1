"""How full a port stays, and how much it trims, at each trim threshold: a bare sender at twice the rate, full-size frames.

    python -m benchmarks.thresholds

`used` is delivered over configured rate while the sender sends, `dry` the share of that time in which the virtual queue was
empty. No endpoint and no congestion control: what a threshold does to goodput and message times is not measured here.
"""

from __future__ import annotations

import time

from testbed.fabric.queues import full_frame
from testbed.fabric.sandbox import run_in_sandbox
from testbed.model.codepoints import Dscp
from tests.netns import kit
from tests.netns.overload import overload

HOP = ("p0t0-0", "p0t1-0")
HOST_RATE, RATE = 100_000_000, 50_000_000
FRAMES = (1, 2, 3, 4, 6, 8, 12, 24)
PACKETS = 5000


def measure(frames: int) -> str:
    """One line of the table."""
    with kit.fabric((1, 2, 1, 2), HOST_RATE, RATE, spec=kit.switch(trimming=True)) as net:
        kit.settings(net).set(kit.ifindex_of(net, HOP), "trim", frames * full_frame(net.links))
        samples: list[tuple[int, int, int]] = []

        def glance() -> None:
            count = kit.counters(net)[HOP]
            samples.append((count.t_ns, count.delivered_bytes, kit.program_counter(net, HOP, "idle_ns")))

        found = overload(net, (kit.MTU - kit.OUTER,), PACKETS, Dscp.TRIMMABLE, meanwhile=glance)
        count = kit.counters(net)[HOP]
    (start, first, dry), (end, last, later) = samples[0], samples[-1]
    used, empty = (last - first) * 8e9 / (end - start) / RATE, (later - dry) / (end - start)
    cut = count.trimmed / sum(found.sent.values())
    return f"{frames:>6}  {used:6.4f}  {empty:6.4f}  {cut:7.3f}"


def main() -> int:
    print("frames    used     dry  trimmed", flush=True)
    for frames in FRAMES:
        print(measure(frames), flush=True)
        time.sleep(0.1)
    return 0


if __name__ == "__main__":
    raise SystemExit(run_in_sandbox(main))
