"""docs/protocol.md shows the state diagrams that the tables give."""

from __future__ import annotations

from pathlib import Path

from testbed.transport.mrc import diagrams

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "protocol.md"


def test_the_document_shows_the_tables() -> None:
    text = DOCUMENT.read_text()
    for diagram in (diagrams.ev_states(), diagrams.plane_states(), diagrams.qp_states()):
        assert f"```mermaid\n{diagram}\n```" in text
