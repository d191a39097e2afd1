"""State diagrams drawn from the tables (Mermaid), so that docs/protocol.md cannot say anything else than the code.

`python -m testbed.transport.mrc.diagrams` prints them; a test compares them with the document.
"""

from __future__ import annotations

from testbed.transport.mrc.ev import TRANSITIONS
from testbed.transport.mrc.planes import PLANE_TRANSITIONS
from testbed.transport.mrc.queue_pair import QP_TRANSITIONS, QpState


def ev_states() -> str:
    """The life of an EV, each arrow with its causes."""
    return _diagram("GOOD", [(before.name, cause.name, after.name) for (before, cause), after in TRANSITIONS.items()])


def plane_states() -> str:
    """The life of a plane towards one destination, each arrow with its causes."""
    return _diagram("OPEN", [(before.name, cause.name, after.name) for (before, cause), after in PLANE_TRANSITIONS.items()])


def _diagram(first: str, table: list[tuple[str, str, str]]) -> str:
    arrows: dict[tuple[str, str], list[str]] = {}
    for before, cause, after in table:
        arrows.setdefault((before, after), []).append(cause.lower().replace("_", " "))
    lines = [f"    {before} --> {after}: {', '.join(causes)}" for (before, after), causes in arrows.items()]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {first}", *lines])


def qp_states() -> str:
    """The life of a QP; every state but RESET leads back to it, every state but ERROR into it."""
    order = list(QpState)
    arrows = sorted(
        ((before, after) for before, after in QP_TRANSITIONS if QpState.RESET is not after and QpState.ERROR is not after),
        key=lambda arrow: order.index(arrow[0]),
    )
    lines = [f"    {before.name} --> {after.name}" for before, after in arrows]
    errors = [f"    {before.name} --> ERROR" for before in order if (before, QpState.ERROR) in QP_TRANSITIONS]
    resets = [f"    {before.name} --> RESET" for before in order if (before, QpState.RESET) in QP_TRANSITIONS]
    return "\n".join(["stateDiagram-v2", "    [*] --> RESET", *lines, *errors, *resets])


if __name__ == "__main__":
    print(f"{ev_states()}\n\n{plane_states()}\n\n{qp_states()}")
