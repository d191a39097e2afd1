"""Messages: completion times of those posted in the window, and the fate of every message of the run.

`messages_completed`, `_incomplete`, `_corrupt` and `bytes_lost` count the whole run, warm-up and drain included: a message lost
outside the window is lost all the same.
"""

from __future__ import annotations

import numpy as np

from analysis.arrays import ints, is_text, percentile
from analysis.view import View


def measure(view: View) -> dict[str, float]:
    return {**_messages(view), **_bytes_lost(view)}


def _messages(view: View) -> dict[str, float]:
    table = view.run.messages
    if not len(table):  # a run without a single message proves nothing about messages
        return {}
    posted, completed = ints(table, "post_ns"), ints(table, "complete_ns")
    good = is_text(table, "verdict", "ok")
    corrupt = is_text(table, "verdict", "corrupt")
    done = good & (completed > 0)
    found = {
        "messages_completed": float(np.sum(done)),
        "messages_incomplete": float(np.sum(~done & ~corrupt)),
        "messages_corrupt": float(np.sum(corrupt) + np.sum(is_text(view.run.steps, "verdict", "corrupt"))),
    }
    timed = done & (posted >= view.start_ns) & (posted < view.end_ns)
    if np.any(timed):
        took = (completed[timed] - posted[timed]) / 1e6
        found |= {
            "message_ms_p50": percentile(took, 0.5),
            "message_ms_p99": percentile(took, 0.99),
            "message_ms_max": float(np.max(took)),
        }
    return found


def _bytes_lost(view: View) -> dict[str, float]:
    """Payload of PSNs that were sent and that no transmission ever placed."""
    packets = view.packets
    if "packets" in view.run.missing or not len(packets.psn):
        return {}
    number = packets.flow << 48 | packets.qp << 24 | packets.psn  # QP numbers and PSNs have 24 bits
    unique, first, inverse = np.unique(number, return_index=True, return_inverse=True)
    arrived = np.zeros(len(unique), np.bool_)
    arrived[inverse.reshape(-1)[packets.placed_ns > 0]] = True
    return {"bytes_lost": float(np.sum(packets.size[first][~arrived]))}
