"""Made-up folders of suites, for tests of what reads them: summaries without a run behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STATUS = {"passed": 0, "failed": 1, "unsupported": 3, "invalid": 4, "error": 5, "interrupted": 130}
METRICS = {"goodput_mbps": 150.0, "messages_corrupt": 0, "messages_incomplete": 0}


@dataclass(frozen=True)
class Made:
    """One attempt: what it measured and how it ended."""

    member: str
    seed: int = 1
    metrics: Mapping[str, float] = field(default_factory=lambda: METRICS)
    status: str = "passed"
    reasons: Sequence[str] = ()
    expectations: Sequence[Mapping[str, Any]] = ()
    faults: Sequence[Mapping[str, Any]] = ()


def write(folder: Path, attempts: Sequence[Made], claims: Sequence[str] = (), name: str = "made", **plan: Any) -> Path:
    """A suite's folder with these attempts in this order; members and their seeds are those of the attempts."""
    members = list(dict.fromkeys(one.member for one in attempts))
    folder.mkdir(parents=True)
    known = {
        "schema": 1,
        "suite": name,
        "description": "Made up. Nothing ran.",
        "sha256": "0" * 64,
        "started": "2026-01-01T00:00:00+00:00",
        "git": {"commit": "c" * 40, "dirty": False},
        "kernel": "made up",
        "cpu": {"model": "made up", "cores": 2},
        "members": [
            {
                "name": member,
                "scenario": member,
                "description": "",
                "seeds": sorted({one.seed for one in attempts if one.member == member}),
                "file": f"runs/{member}/member.yaml",
                "values": {},
            }
            for member in members
        ],
        "comparisons": [{"name": name, "prefix": "", "expect": list(claims)}] if claims else [],
    }
    (folder / "suite.json").write_text(json.dumps(known | plan))
    with (folder / "runs.jsonl").open("w") as journal:
        for number, one in enumerate(attempts):
            path = _run(folder, number, one) if one.status != "unsupported" else ""
            entry = {"member": one.member, "seed": one.seed, "status": STATUS[one.status], "path": path, "seconds": 1.0}
            error = "tool X: needed by Y" if one.status == "unsupported" else ""
            journal.write(json.dumps(entry | {"error": error, "worker": ""}) + "\n")
    for member in members:
        file = folder / "runs" / member / "member.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"name: {member}\n")
    return folder


def _run(folder: Path, number: int, one: Made) -> str:
    path = f"runs/{one.member}/{one.member}/20260101T0000{number:02d}Z-s{one.seed}"
    (folder / path).mkdir(parents=True)
    summary = {
        "schema": 1,
        "scenario": one.member,
        "run_id": Path(path).name,
        "path": str(folder / path),
        "seed": one.seed,
        "status": one.status,
        "fidelity": {"verdict": "invalid" if one.status == "invalid" else "valid", "reasons": list(one.reasons)},
        "metrics": dict(one.metrics),
        "expectations": list(one.expectations),
        "faults": list(one.faults),
    }
    (folder / path / "summary.json").write_text(json.dumps(summary))
    return path
