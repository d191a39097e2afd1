"""The last lines of a run: verdict, the figures that matter, every expectation, where the report is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.run.experiment import Result

SHOWN = (
    ("goodput_mbps", "goodput", "Mbit/s"),
    ("goodput_ratio", "of ideal", ""),
    ("recovery_rtts_max", "worst recovery", "RTTs"),
    ("stall_rtts_max", "worst stall", "RTTs"),
    ("retransmit_ratio", "retransmitted", ""),
    ("messages_completed", "messages", ""),
    ("cpu_busy", "cpu busy", ""),
)


def lines(result: Result) -> list[str]:
    summary = result.summary
    metrics = summary["metrics"]
    fidelity = summary["fidelity"]
    found = [f"{summary['scenario']} {summary['run_id']}: {summary['status']}"]
    figures = [
        f"{label} {_number(metrics[name])} {unit}".rstrip() for name, label, unit in SHOWN if metrics.get(name) is not None
    ]
    if figures:
        found.append("  " + ", ".join(figures))
    for expectation in summary["expectations"]:
        mark = "ok  " if expectation["passed"] else "FAIL"
        found.append(f"  {mark} {expectation['text']}  (actual {_number(expectation['actual'])})")
    if fidelity["verdict"] != "valid" and metrics:
        found.append(f"  warning: fidelity {fidelity['verdict']}: {'; '.join(fidelity['reasons'])}")
    report = result.folder.path / "report.html"
    found.append(f"  {'report' if report.exists() else 'folder'}: {report if report.exists() else result.folder.path}")
    return found


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, int) else f"{value:.4g}"
