"""report.html: the verdict first, then what was run, what happened and how to repeat it. One file, no outside request.

Everything the page shows is computed here and in its neighbours; the template only lays it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import judge, pages, wording
from analysis.figures import Drawn, draw_all
from analysis.metrics.definitions import DEFINITIONS
from analysis.metrics.goodput import flow_rates
from analysis.results import read
from analysis.scaling import BDP_FRAMES_MIN, Scaling, bdp_frames, scaling
from analysis.theory import states
from analysis.topology_svg import drawings
from analysis.view import View, view
from testbed.model import timing

NAME = "report.html"
STATES_MAX = 40
FLOWS_MAX = 64  # rows that a reader still goes through; all of them are in the tables

NOT_MODELLED = (
    "Absolute speed. Rates are divided and times multiplied by the same factor; results hold in round trips and frames.",
    "NIC hardware: PCIe, DMA, doorbells, retransmission buffers and their limits. An endpoint here is one process per host.",
    "Switch internals: shared buffers, cut-through. A port here is a token bucket, a queue and a virtual queue.",
    "Physical layer: FEC, link training, and bit errors other than those a fault injects.",
    "Propagation per link. The whole one-way delay is added at the receiving host, so a queue sees no delay before it.",
    "Parallelism. All hosts and switches share this machine's cores; fidelity above says whether that was felt.",
)

STATUS_WORDS = {
    "passed": "Passed",
    "failed": "Failed",
    "invalid": "Invalid",
    "error": "Broke",
    "interrupted": "Interrupted",
}
STATUS_SENTENCES = {
    "passed": "Every expectation holds.",
    "failed": "The run is sound, but at least one expectation does not hold.",
    "invalid": "The machine, not the fabric, decided this result. Do not use its numbers.",
    "error": "The run broke before its end. What was recorded until then is below.",
    "interrupted": "The run was stopped before its end. What was recorded until then is below.",
}


def write(run_dir: Path, *, figures: bool = True) -> Path:
    """Rewrite summary.json, the figures (unless told not to) and report.html of a results folder; returns the report."""
    seen = view(read(run_dir))
    summary = judge.write(seen)
    drawn = draw_all(seen, valid=summary["fidelity"]["verdict"] != "invalid") if figures else []
    path = run_dir / NAME
    judge.write_atomically(path, render(seen, summary, drawn))
    return path


def render(seen: View, summary: dict[str, Any], drawn: Sequence[Drawn]) -> str:
    """The page as text."""
    scaled = scaling(seen)
    scenario, manifest = seen.run.scenario, seen.run.manifest
    return pages.template("report.html.j2").render(
        summary=summary,
        status_word=STATUS_WORDS[summary["status"]],
        status_sentence=STATUS_SENTENCES[summary["status"]],
        scenario=scenario,
        started=manifest.get("started"),
        error=manifest.get("error"),
        synthetic=bool(manifest.get("synthetic")),
        description=_paragraphs(scenario.description),
        facts=_facts(seen),
        planes=drawings(seen.topology, seen.faults),
        any_fault=bool(seen.faults),
        figures=[_inlined(seen.run.path / "figures", figure) for figure in drawn],
        metrics=_metrics(summary["metrics"], scaled),
        theory=_theory(seen),
        flows=_flow_rows(seen),
        flows_left=max(0, len(seen.flows) - FLOWS_MAX),
        scaled=scaled,
        scale_text=_scale_text(scaled),
        fault_rows=_fault_rows(summary["faults"], scaled),
        warnings=_warnings(seen, scaled),
        not_modelled=NOT_MODELLED,
        provenance=_provenance(seen),
        command=str(manifest.get("command", "")),
    )


@dataclass(frozen=True, slots=True)
class _Figure:
    name: str
    title: str
    caption: str
    svg: str


def _inlined(folder: Path, figure: Drawn) -> _Figure:
    """The SVG as an element. Ids are given the figure's name, because all figures share one page."""
    text = (folder / f"{figure.name}.svg").read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{figure.name}-', text)
    text = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{figure.name}-", text)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", text, count=1)
    text = re.sub(r'<svg ([^>]*?)height="[^"]*"', r"<svg \1", text, count=1)
    escaped = figure.alt.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    text = text.replace("<svg ", f'<svg role="img" aria-label="{escaped}" ', 1)
    return _Figure(figure.name, figure.title, figure.caption, text)


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in text.split("\n\n") if part.strip()]


def _facts(seen: View) -> list[tuple[str, str]]:
    scenario = seen.run.scenario
    measure = scenario.measure
    bdp = bdp_frames(scenario.links.rate_bps, seen.rtt_base_ns, seen.frame_bytes)
    return [
        ("Fabric", wording.fabric(scenario)),
        ("Switches", wording.switches(scenario, seen.frame_bytes)),
        ("Transport", wording.transport(scenario, timing.window_frames(scenario))),
        *(
            [("Flows", wording.kernel_flows(seen.run.manifest.get("kernel_flows", ())))]
            if scenario.transport.kind.is_kernels
            else []
        ),
        ("Workload", " ".join(wording.workload(spec) for spec in scenario.workload)),
        ("Faults", " ".join(wording.fault(spec) for spec in scenario.faults) or "None."),
        ("Measured", f"From {wording.span(measure.warmup_ns)} to {wording.span(measure.duration_ns)} after the start."),
        ("In flight", f"Base round trip {wording.span(seen.rtt_base_ns)}; {bdp:.3g} full frames per plane fill it."),
    ]


def _scale_text(scaled: Scaling | None) -> str:
    if scaled is None:
        return ""
    return (
        f"{wording.rate(scaled.link_bps)} links with a round trip of {wording.span(scaled.rtt_ns)}: "
        f"one second here is {wording.span(scaled.factor * 1e9)} there."
    )


def _warnings(seen: View, scaled: Scaling | None) -> list[str]:
    bdp = bdp_frames(seen.run.scenario.links.rate_bps, seen.rtt_base_ns, seen.frame_bytes)
    found = list(seen.run.scenario.warnings)
    if bdp < BDP_FRAMES_MIN:
        found.append(
            f"Only {bdp:.3g} frames fill a plane's round trip (below {BDP_FRAMES_MIN:g}): windows and marks are coarse."
        )
    if scaled is not None and scaled.differs:
        found.append(
            f"Frames in flight differ: {scaled.bdp_here:.3g} per plane here, {scaled.bdp_there:.3g} in what this stands for. "
            "Read scaled times as orders of magnitude; ratios in round trips hold better than those in frames."
        )
    found += list(seen.run.notes)
    return found


def _metrics(metrics: dict[str, float], scaled: Scaling | None) -> list[dict[str, str]]:
    return [
        {
            "name": one.name,
            "value": wording.number(metrics[one.name]),
            "unit": one.unit,
            "meaning": one.meaning,
            "scaled": _scaled_time(one.name, one.unit, metrics[one.name], scaled),
        }
        for one in DEFINITIONS
        if one.name in metrics
    ]


def _theory(seen: View) -> list[dict[str, str]]:
    """One row per state of the fabric in the window: what was placed, and what the fluid ideals would place."""
    every = states(seen)
    tied = any(state.transport_bps is not None for state in every)
    return [
        {
            "from": wording.number(state.start_s),
            "until": wording.number(state.end_s),
            "faults": ", ".join(state.faults) or "none",
            "flows": str(state.flows),
            "goodput": wording.number(state.placed_bps / 1e6),
            "ideal": wording.number(state.ideal_bps / 1e6),
            "ratio": wording.number(state.ratio),
            "equal": wording.number(state.equal_bps / 1e6),
        }
        | ({"transport": wording.number((state.transport_bps or 0.0) / 1e6)} if tied else {})
        for state in every[:STATES_MAX]
    ]


def _flow_rows(seen: View) -> list[dict[str, str]]:
    """Each flow in the window: goodput, its ideal and their quotient; a bystander is told apart by its job."""
    if "packets" in seen.run.missing:
        return []
    rates = flow_rates(seen)
    rows = []
    for at, flow in enumerate(seen.flows[:FLOWS_MAX]):
        placed, ideal = float(rates.placed[at]), float(rates.ideal[at])
        known = not math.isnan(placed)
        rows.append(
            {
                "flow": seen.label(at),
                "job": flow.job,
                "goodput": wording.number(placed / 1e6 if known else None),
                "ideal": wording.number(ideal / 1e6 if known else None),
                "ratio": wording.number(placed / ideal if known and ideal > 0 else None),
            }
        )
    return rows


def _scaled_time(name: str, unit: str, value: float, scaled: Scaling | None) -> str:
    """Only times that the fabric decided translate; those of this machine (lag, bring-up) do not."""
    ns = {"ms": 1e6, "\u00b5s": 1e3}.get(unit)
    if scaled is None or ns is None or name.startswith("host_lag"):
        return ""
    return wording.span(value * ns * scaled.factor)


def _fault_rows(faults: Sequence[dict[str, Any]], scaled: Scaling | None) -> list[dict[str, str]]:
    rows = []
    for fault in faults:
        row = {key: wording.number(value) for key, value in fault.items() if key != "what"}
        row["what"] = fault["what"]
        for key in ("recovery_ms", "stall_ms"):
            row[f"{key}_scaled"] = _scaled_time(key, "ms", fault[key], scaled) if fault[key] is not None else ""
        rows.append(row)
    return rows


def _provenance(seen: View) -> list[tuple[str, str]]:
    manifest = seen.run.manifest
    git, cpu = manifest.get("git") or {}, manifest.get("cpu") or {}
    commit = str(git.get("commit", "")) + (" with local changes" if git.get("dirty") else "")
    processor = f"{cpu.get('model', '')}, {cpu.get('cores', '?')} cores" if cpu else ""
    versions = ", ".join(f"{name} {number}" for name, number in (manifest.get("versions") or {}).items())
    rows = [
        ("Seed", str(seen.run.scenario.seed)),
        ("Source commit", commit),
        ("Scenario hash", str(manifest.get("scenario_sha256", ""))),
        ("Started", str(manifest.get("started", ""))),
        ("Ended", str(manifest.get("ended", ""))),
        ("Kernel", str(manifest.get("kernel", ""))),
        ("Processor", processor),
        ("Delay by", str(manifest.get("delay_method") or "")),
        ("Versions", versions),
    ]
    return [(name, value) for name, value in rows if value]
