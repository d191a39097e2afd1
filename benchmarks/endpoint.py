"""Endpoint against bare loop: delivered packets per second, unthrottled, all pairs at once; the ratio is the result.

    python -m benchmarks endpoint [--pairs 8] [--seconds 5] [--repeat 3] [--back-to-back]

Both run over the same three switches (T0, T1, T0, static uSID routes), whose forwarding is part of what a packet costs
on one machine, as in a fabric; `--back-to-back` leaves them out and compares the hosts alone. They alternate and use the
same raw sockets and packet sizes; the endpoint also places, checks, records and recovers. Absolute numbers belong to the
machine, the ratio to the code; `cpu_ratio` compares CPU time per packet and holds on a machine that does other work too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Rate:
    """Packets delivered per second over all hosts, and CPU us of the host processes (forwarding included) for each."""

    packets_per_s: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.packets_per_s:7.0f} packets/s {self.cpu_us:5.1f} us"


def main(arguments: list[str]) -> int:
    """Run it in a sandbox and print the result."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks endpoint", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--pairs", type=int, default=8, help="pairs of hosts at once (default 8)")
    parser.add_argument("--seconds", type=float, default=5, help="length of each measurement (default 5)")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each, alternating (default 3)")
    parser.add_argument("--back-to-back", action="store_true", help="no switches between the hosts")
    options = parser.parse_args(arguments)
    limit_s = 60 + 2 * options.repeat * (options.seconds + 20)
    way = "back-to-back" if options.back_to_back else "switched"
    settings = [str(options.pairs), str(options.seconds), str(options.repeat), way]
    done = inside(f"{__name__}:measure", *settings, timeout_s=limit_s)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def measure(pairs: str, seconds: str, repeat: str, way: str) -> int:
    """Inside the sandbox: alternate both and print packets per second and the ratio of the medians."""
    build(int(pairs), PLANES, switched=way == "switched")
    crude, ours = [], []
    for _ in range(int(repeat)):
        crude.append(crude_rate(int(pairs), float(seconds), way))
        ours.append(endpoint_rate(int(pairs), float(seconds), way))
        print(f"bare loop {crude[-1]}   endpoint {ours[-1]}", flush=True)
    bare, endpoint = _median(crude), _median(ours)
    result = {
        "benchmark": "endpoint",
        "pairs": int(pairs),
        "way": way,
        "bare_packets_per_s": round(bare.packets_per_s),
        "bare_cpu_us_per_packet": round(bare.cpu_us, 1),
        "endpoint_packets_per_s": round(endpoint.packets_per_s),
        "endpoint_cpu_us_per_packet": round(endpoint.cpu_us, 1),
        "ratio": round(endpoint.packets_per_s / bare.packets_per_s, 3),
        "cpu_ratio": round(bare.cpu_us / endpoint.cpu_us, 3),
    }
    print(json.dumps(result))
    return 0


def _median(rates: list[Rate]) -> Rate:
    return Rate(statistics.median(rate.packets_per_s for rate in rates), statistics.median(rate.cpu_us for rate in rates))


def crude_rate(pairs: int, seconds: float, way: str) -> Rate:
    """What the bare loop delivers."""
    begin = time.monotonic_ns() + int((LEAD_S + 0.1 * pairs) * 1e9)
    processes: list[subprocess.Popen[str]] = [
        subprocess.Popen(
            [
                *enter(side, pair),
                sys.executable,
                "-m",
                "benchmarks.crude_pair",
                side,
                str(PLANES),
                str(begin),
                str(seconds),
                way,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for pair in range(pairs)
        for side in SIDES
    ]
    total = spent = 0
    for process in processes:
        output, _ = process.communicate(timeout=seconds + 30)
        if process.returncode:
            raise RuntimeError(f"the bare loop ended with {process.returncode}")
        received, cpu = output.split()
        total += int(received)
        spent += int(cpu)
    return Rate(total / seconds, spent / 1000 / total)


def endpoint_rate(pairs: int, seconds: float, way: str) -> Rate:
    """What the endpoints deliver."""
    transport = {"window_bytes": WINDOW * PAYLOAD, "rtt_base_ns": RTT_BASE_NS}
    with tempfile.TemporaryDirectory() as directory:
        everyone: list[list[PairedHost]] = []
        for pair in range(pairs):
            where = Path(directory) / str(pair)
            settings = [
                plan(where, index, planes=PLANES, rate_bps=RATE_BPS, transport=transport, switched=way == "switched")
                for index in (0, 1)
            ]
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
    return Rate(packets / seconds, spent / 1000 / packets)


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
