"""Messages: completion times of those posted in the window, and the fate of every message of the run.

`messages_completed`, `_incomplete`, `_corrupt` and `bytes_lost` count the whole run, warm-up and drain included: a message lost
outside the window is lost all the same.
"""

from __future__ import annotations

import numpy as np

from analysis.arrays import ints, is_text, percentile
from analysis.view import View
from testbed.model.scenario import FaultAction


def measure(view: View) -> dict[str, float]:
    return {**_messages(view), **_bytes_lost(view), **_kernels(view)}


def _kernels(view: View) -> dict[str, float]:
    """Flows that iperf3 could not bring to a sound end; those of a host that a fault killed do not count."""
    flows = view.run.manifest.get("kernel_flows", ())
    if not view.run.scenario.transport.kind.is_kernels or not flows:
        return {}
    dead = set(killed(view))
    return {"flows_failed": float(sum(bool(one["failure"]) and not {one["host"], one["peer"]} & dead for one in flows))}


def _messages(view: View) -> dict[str, float]:
    table = view.run.messages
    if not len(table):  # a run without a single message proves nothing about messages
        return {}
    posted, completed = ints(table, "post_ns"), ints(table, "complete_ns")
    good = is_text(table, "verdict", "ok")
    corrupt = is_text(table, "verdict", "corrupt")
    done = good & (completed > 0)
    abandoned = ~done & ~corrupt & (is_text(table, "host", *killed(view)) | is_text(table, "peer", *killed(view)))
    found = {
        "messages_completed": float(np.sum(done)),
        "messages_incomplete": float(np.sum(~done & ~corrupt & ~abandoned)),
        "messages_corrupt": float(np.sum(corrupt) + np.sum(is_text(view.run.steps, "verdict", "corrupt"))),
    }
    if killed(view):
        found["messages_abandoned"] = float(np.sum(abandoned))
    timed = done & (posted >= view.start_ns) & (posted < view.end_ns)
    if np.any(timed):
        took = (completed[timed] - posted[timed]) / 1e6
        found |= {
            "message_ms_p50": percentile(took, 0.5),
            "message_ms_p99": percentile(took, 0.99),
            "message_ms_max": float(np.max(took)),
        }
    return found


def killed(view: View) -> tuple[str, ...]:
    """The hosts that a fault killed: their messages are abandoned, not incomplete."""
    return tuple(fault.places[0] for fault in view.faults if fault.action == FaultAction.KILL)


def _bytes_lost(view: View) -> dict[str, float]:
    """Payload of PSNs that were sent and that no transmission ever placed. Flows of a host that a fault killed do not count."""
    packets = view.packets
    dead = [at for at in range(len(view.flows)) if {view.sender(at), view.receiver(at)} & set(killed(view))]
    if "packets" in view.run.missing or not len(packets.psn):
        return {}
    counted = ~np.isin(packets.flow, dead)
    if not np.any(counted):
        return {}
    number = (packets.flow << 48 | packets.qp << 24 | packets.psn)[counted]  # QP numbers and PSNs have 24 bits
    unique, first, inverse = np.unique(number, return_index=True, return_inverse=True)
    arrived = np.zeros(len(unique), np.bool_)
    arrived[inverse.reshape(-1)[packets.placed_ns[counted] > 0]] = True
    return {"bytes_lost": float(np.sum(packets.size[counted][first][~arrived]))}
