"""FRR in the switches: converges before the fabric counts as up, withdraws what is gone, and a daemon that dies is named."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from ipaddress import IPv6Network
from pathlib import Path

import pytest

from testbed.errors import RunError
from testbed.fabric.bgp import DAEMONS, learned
from testbed.fabric.netlink import Netlink
from testbed.fabric.network import Fabric
from testbed.fabric.verify import verify
from testbed.model.scenario import FaultAction, Routing, RoutingSpec
from tests.netns import kit

pytestmark = pytest.mark.netns
Sandbox = Callable[[Callable[[], None]], None]
FAR = IPv6Network("5f00:0:4001::/48")
S = 10**9


@pytest.mark.skipif(not (DAEMONS / "bgpd").exists(), reason="needs FRR")
def test_bgp_converges_withdraws_and_a_dead_daemon_is_named(sandbox: Sandbox) -> None:
    def body() -> None:
        routing = RoutingSpec(Routing.BGP, hash_seed=7, keepalive_ns=S, hold_ns=3 * S)
        with kit.fabric((1, 2, 2, 1), routing=routing) as net:
            assert net.routes_missing() == []
            assert verify(net, net.topology).problems == []
            link = net.topology.link("p0t0-0", "p0t1-0")
            net.apply_fault(link, FaultAction.DOWN)
            wait_for(lambda: ways(net, "p0t0-0") == 1 and ways(net, "p0t1-0") == 1)
            net.undo_fault(link, FaultAction.DOWN)
            wait_for(lambda: net.routes_missing() == [])  # the side that lost its carrier takes the link back too
            net.reboot("p0t1-1")
            net.boot("p0t1-1")
            net.check_routing()  # what was ended on purpose is no failure
            wait_for(lambda: net.routes_missing() == [])
            victim = daemon("bgpd", "p0t0-1")
            os.kill(victim, signal.SIGKILL)
            with pytest.raises(RunError, match=r"bgpd of p0t0-1 was ended by SIGKILL; the end of its log:\n(.*\n)*.*BGP"):
                wait_for(lambda: dead(net))
        assert not Path("/var/tmp/frr").exists()

    sandbox(body)


def ways(net: Fabric, switch: str) -> int:
    with Netlink(net.namespaces, switch) as link:
        return learned(link).get(FAR, 0)


def dead(net: Fabric) -> bool:
    net.check_routing()
    return False


def daemon(name: str, switch: str) -> int:
    found = subprocess.run(["pgrep", "-f", f"{name} -f .*/{switch}/"], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])


def wait_for(holds: Callable[[], bool], limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
