"""What emulated times stand for, where the scenario states it: a round trip here is a round trip there (DESIGN 1, similarity).

The translation holds as far as the same number of frames is in flight per plane; where it is not, the report warns.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.view import View

ALIKE = 1.25  # BDPs within a quarter behave alike: half a frame at the smallest BDP that is worth a run
BDP_FRAMES_MIN = 8.0  # DESIGN 7: below this marks and windows mean little


@dataclass(frozen=True, slots=True)
class Scaling:
    """`factor`: real ns per emulated ns, through the base round trip. BDPs in full frames per plane."""

    factor: float
    link_bps: int
    rtt_ns: int
    bdp_here: float
    bdp_there: float

    @property
    def differs(self) -> bool:
        ratio = self.bdp_here / self.bdp_there
        return not 1 / ALIKE <= ratio <= ALIKE


def scaling(view: View) -> Scaling | None:
    """None when the scenario does not say what it stands for."""
    scale, links = view.run.scenario.scale, view.run.scenario.links
    if scale is None:
        return None
    return Scaling(
        factor=scale.rtt_ns / view.rtt_base_ns,
        link_bps=scale.link_bps,
        rtt_ns=scale.rtt_ns,
        bdp_here=bdp_frames(links.rate_bps, view.rtt_base_ns, view.frame_bytes),
        bdp_there=bdp_frames(scale.link_bps, scale.rtt_ns, view.frame_bytes),
    )


def bdp_frames(rate_bps: float, rtt_ns: float, frame_bytes: int) -> float:
    return rate_bps * rtt_ns / 8e9 / frame_bytes
