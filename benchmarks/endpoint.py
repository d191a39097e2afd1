"""Endpoint against bare loop: delivered packets per second, unthrottled, all pairs at once; the ratio is the result.

    python -m benchmarks endpoint [--pairs 8] [--seconds 5] [--repeat 3]

Both sides run back to back in the same namespaces, alternating, and use the same raw sockets and packet sizes; the
endpoint also places, checks, records and recovers. Absolute numbers belong to the machine, the ratio to the code.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.crude_pair import PAYLOAD, WINDOW
from benchmarks.host_pair import PairedHost, connect, plan, start
from benchmarks.pair_network import SIDES, build, enter, inside

PLANES = 4
LEAD_S = 0.3
FLUSHED_S = 1.0  # a host writes its records at least this often
DUPLICATE, TRIMMED = 2, 8
# Far above what a core can do: the endpoint's own port clocks never hold it back.
RATE_BPS = 100_000_000_000
# Sixteen processes on two cores answer when their turn comes: a round trip is scheduling, and loss must not be read into it.
RTT_BASE_NS = 200_000_000


def main(arguments: list[str]) -> int:
    """Run it in a sandbox and print the result."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks endpoint", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--pairs", type=int, default=8, help="pairs of hosts at once (default 8)")
    parser.add_argument("--seconds", type=float, default=5, help="length of each measurement (default 5)")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each, alternating (default 3)")
    options = parser.parse_args(arguments)
    limit_s = 60 + 2 * options.repeat * (options.seconds + 20)
    done = inside(f"{__name__}:measure", str(options.pairs), str(options.seconds), str(options.repeat), timeout_s=limit_s)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def measure(pairs: str, seconds: str, repeat: str) -> int:
    """Inside the sandbox: alternate both and print packets per second and the ratio of the medians."""
    build(int(pairs), PLANES)
    crude, ours = [], []
    for _ in range(int(repeat)):
        crude.append(crude_rate(int(pairs), float(seconds)))
        ours.append(endpoint_rate(int(pairs), float(seconds)))
        print(f"bare loop {crude[-1]:8.0f} packets/s   endpoint {ours[-1][0]:8.0f} packets/s", flush=True)
    rates = [rate for rate, _ in ours]
    result = {
        "benchmark": "endpoint",
        "pairs": int(pairs),
        "bare_packets_per_s": round(statistics.median(crude)),
        "endpoint_packets_per_s": round(statistics.median(rates)),
        "endpoint_cpu_us_per_packet": round(statistics.median(cpu for _, cpu in ours), 1),
        "ratio": round(statistics.median(rates) / statistics.median(crude), 3),
    }
    print(json.dumps(result))
    return 0


def crude_rate(pairs: int, seconds: float) -> float:
    """Packets per second delivered by the bare loop, over all hosts."""
    begin = time.monotonic_ns() + int((LEAD_S + 0.1 * pairs) * 1e9)
    processes: list[subprocess.Popen[str]] = [
        subprocess.Popen(
            [*enter(side, pair), sys.executable, "-m", "benchmarks.crude_pair", side, str(PLANES), str(begin), str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for pair in range(pairs)
        for side in SIDES
    ]
    total = 0
    for process in processes:
        output, _ = process.communicate(timeout=seconds + 30)
        if process.returncode:
            raise RuntimeError(f"the bare loop ended with {process.returncode}")
        total += int(output.split()[-1])
    return total / seconds


def endpoint_rate(pairs: int, seconds: float) -> tuple[float, float]:
    """(packets per second delivered by the endpoints over all hosts, CPU us of the host processes per packet)."""
    transport = {"window_bytes": WINDOW * PAYLOAD, "rtt_base_ns": RTT_BASE_NS}
    with tempfile.TemporaryDirectory() as directory:
        everyone: list[list[PairedHost]] = []
        for pair in range(pairs):
            where = Path(directory) / str(pair)
            settings = [plan(where, index, planes=PLANES, rate_bps=RATE_BPS, transport=transport) for index in (0, 1)]
            everyone.append([PairedHost(where, index, settings[index], pair) for index in (0, 1)])
        for hosts in everyone:
            connect(hosts)
        flat = [host for hosts in everyone for host in hosts]
        begin = start(flat, LEAD_S)
        time.sleep(LEAD_S)
        spent = sum(cpu_ns(host) for host in flat)
        time.sleep(seconds)
        spent = sum(cpu_ns(host) for host in flat) - spent
        time.sleep(FLUSHED_S)
        for host in flat:
            host.process.kill()
            host.process.wait()
            host.channel.close()
        packets = sum(placed(host.records / "received.rec", begin, begin + int(seconds * 1e9)) for host in flat)
    return packets / seconds, spent / 1000 / packets


def placed(path: Path, begin: int, end: int) -> int:
    """Packets placed for the first time between two moments, from the raw records."""
    header, _, body = path.read_bytes().partition(b"\n")
    dtype = np.dtype([(name, kind) for name, kind in json.loads(header)["fields"]])
    rows = np.frombuffer(body[: len(body) // dtype.itemsize * dtype.itemsize], dtype)
    fresh = rows["flags"] & (DUPLICATE | TRIMMED) == 0
    return int(np.count_nonzero(fresh & (rows["placed_ns"] >= begin) & (rows["placed_ns"] < end)))


def cpu_ns(host: PairedHost) -> int:
    """CPU time the host process has used."""
    return int(Path(f"/proc/{host.process.pid}/schedstat").read_text().split()[0])
