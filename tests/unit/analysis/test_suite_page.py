"""A suite's page and docs/paper.md, from made-up folders: rows, verdicts, what is missing, and nothing invented."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analysis import paper, rows, suites
from testbed.errors import ScenarioError
from testbed.venv import ROOT
from tests.support import goldens
from tests.support.suite_folders import Made, write

SCENARIOS = ROOT / "scenarios"


def line(text: str, actual: float | None, *, passed: bool) -> dict[str, Any]:
    return {"text": text, "actual": actual, "passed": passed}


GOOD = line("goodput_ratio >= 0.97", 0.98, passed=True)
BAD = line("recovery_rtts_max <= 3", 4.25, passed=False)
ALWAYS = line("messages_corrupt == 0", 0, passed=True)
ATTEMPTS = [
    Made("fig11-t1-down", 1, {"goodput_ratio": 0.98}, expectations=[GOOD, ALWAYS]),
    Made("fig08-t1-silent", 1, {"recovery_rtts_max": 4.25}, "failed", expectations=[GOOD, BAD]),
    Made("fig10-t0-down", 1, status="invalid", reasons=["the machine | was busy"]),
    Made("fig20/mrc", 1, {"jain_index": 0.999, "goodput_mbps": 57.0}, expectations=[ALWAYS]),
    Made("fig20/rc", 1, {"jain_index": 0.8, "goodput_mbps": 40.0}, expectations=[ALWAYS]),
    Made("never", 1),
]
ABOUT = {
    "fig11-t1-down": "Claim: a T1 that goes down costs nothing | at all. Here one of six goes.",
    "fig08-t1-silent": "Claim: a silent T1 costs a short dip. Here one of six hangs.",
    "fig10-t0-down": "Claim: a T0 costs a plane. Here one of four reboots.",
    "never": "No claim, only a text.",
}


def folder(place: Path, claims: tuple[str, ...] = ("rc.jain_index < mrc.jain_index",)) -> Path:
    members = [
        {
            "name": one.member,
            "scenario": {"fig20/mrc": "fig20-permutation", "fig20/rc": "fig20-permutation"}.get(one.member, one.member),
            "description": ABOUT.get(one.member, ""),
            "source": "arXiv 2605.04333, Fig. 1",
            "seeds": [1],
            "file": f"runs/{one.member}/member.yaml",
            "values": {},
        }
        for one in ATTEMPTS
    ]
    group = {
        "name": "fig20",
        "prefix": "fig20/",
        "description": "Claim: MRC shares evenly. Here six flows cross six T1s.",
        "source": "arXiv 2605.04333, Fig. 20",
        "expect": list(claims),
    }
    made = write(
        place,
        [one for one in ATTEMPTS if one.member != "never"],
        name="paper",
        members=members,
        comparisons=[group],
        not_emulated=["PFC: ports here do not pause one another."],
    )
    for run in made.glob("runs/**/summary.json"):
        (run.parent / "manifest.json").write_text(json.dumps({"git": {"commit": "ab" * 20, "dirty": False}}))
    return made


def made_rows(place: Path) -> dict[str, rows.Row]:
    suite = suites.read(place)
    return {row.name: row for row in rows.rows(suite, suites.judge(suite))}


def test_a_row_for_each_claim_with_its_verdict(tmp_path: Path) -> None:
    found = made_rows(folder(tmp_path / "paper"))
    assert {name: row.verdict for name, row in found.items()} == {
        "fig11-t1-down": "reproduces",
        "fig08-t1-silent": "does not reproduce",
        "fig10-t0-down": "no valid result",
        "fig20": "reproduces",
        "never": "not run",
    }
    assert found["fig20"].lines == (rows.Line("rc.jain_index < mrc.jain_index", "0.8 against 0.999", holds=True),)
    assert [one.name for one in found["fig20"].members] == ["fig20/mrc", "fig20/rc"]
    assert found["fig11-t1-down"].lines == (rows.Line(GOOD["text"], "0.98", holds=True),)
    assert (found["fig08-t1-silent"].claim, found["fig08-t1-silent"].setup) == (
        "A silent T1 costs a short dip.",
        "Here one of six hangs.",
    )
    assert (found["never"].claim, found["never"].setup) == ("No claim, only a text.", "")


def test_a_comparison_is_no_better_than_its_members_and_its_claims(tmp_path: Path) -> None:
    missed = made_rows(folder(tmp_path / "a", ("mrc.jain_index < rc.jain_index",)))["fig20"]
    assert missed.verdict == "does not reproduce"
    place = folder(tmp_path / "b")
    run = next(place.glob("runs/fig20/rc/**/summary.json"))
    summary = json.loads(run.read_text()) | {"status": "failed", "expectations": [BAD]}
    run.write_text(json.dumps(summary))
    journal = (place / "runs.jsonl").read_text().splitlines()
    entries = [json.loads(one) for one in journal]
    changed = [one | {"status": 1} if one["member"] == "fig20/rc" else one for one in entries]
    (place / "runs.jsonl").write_text("\n".join(map(json.dumps, changed)) + "\n")
    row = made_rows(place)["fig20"]
    assert (row.verdict, row.lines[-1]) == (
        "does not reproduce",
        rows.Line("rc: recovery_rtts_max <= 3", "4.25", holds=False),
    )


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.images: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "img":
            self.images.append(found["src"])
        if tag == "a":
            self.links.append(found["href"])
        if "id" in found:
            self.ids.append(found["id"])


def test_the_page_has_every_row_its_figure_and_what_cannot_be_emulated(tmp_path: Path) -> None:
    place = folder(tmp_path / "paper")
    verdict = suites.write(place, figures=True)
    text = (place / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert page.ids == ["fig11-t1-down", "fig08-t1-silent", "fig10-t0-down", "fig20", "never"]
    assert [link[1:] for link in page.links if link.startswith("#")] == page.ids
    assert len(page.images) == 1  # made-up runs have no figures of their own; the comparison's bars are drawn
    assert page.images[0].startswith("data:image/png;base64,")
    assert (place / "figures" / "fig20.csv").is_file()
    assert "<b>PFC.</b> Ports here do not pause one another." in text
    assert "2 reproduces, 1 does not reproduce, 1 no valid result, 1 not run" in text
    assert "the machine | was busy" in text
    assert f"  page: {place / 'report.html'}" in suites.lines(verdict)


def test_the_document_is_the_run_and_nothing_else(tmp_path: Path) -> None:
    text = paper.markdown(folder(tmp_path / "paper"), SCENARIOS, {"fig08-t1-silent": "The T1 was slow to hang."})
    goldens.check(text, goldens.TESTS / "golden" / "paper.md")
    assert "The cause is not known." in paper.markdown(tmp_path / "paper", SCENARIOS, {})
    with pytest.raises(ScenarioError, match="there is no such row"):
        paper.markdown(tmp_path / "paper", SCENARIOS, {"fig99": "no"})


@pytest.mark.parametrize("text", ["- a list\n", "fig20: 3\n", "fig20: [a\n"])
def test_causes_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "causes.yaml").write_text(text)
    with pytest.raises(ScenarioError):
        paper.causes_in(tmp_path / "causes.yaml")


def test_the_command_writes_it(tmp_path: Path) -> None:
    place, out = folder(tmp_path / "paper"), tmp_path / "paper.md"
    command = [sys.executable, "-m", "analysis", "paper", str(place), "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{out}\n", "")
    assert out.read_text().startswith("# What reproduces\n")


def test_a_suite_interrupted_within_a_comparison_has_its_page(tmp_path: Path) -> None:
    made = folder(tmp_path / "suite")
    journal = [json.loads(text) for text in (made / "runs.jsonl").read_text().splitlines()]
    kept = [entry for entry in journal if entry["member"] != "fig20/rc"]
    for entry in kept:
        if entry["member"] == "fig20/mrc":
            entry |= {"status": 130, "path": ""}
    (made / "runs.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in kept))
    assert suites.write(made, complete=False).exit_status == 130
    assert made_rows(made)["fig20"].status == "interrupted"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("PFC: ports do not pause.", ("PFC", "Ports do not pause.")),
        ("Latency (section 5: 5 us): a process: slow.", ("Latency (section 5: 5 us)", "A process: slow.")),
        ("Nothing else", ("Nothing else", "")),
    ],
)
def test_what_is_not_emulated_ends_at_the_first_colon_outside_brackets(text: str, found: tuple[str, str]) -> None:
    assert rows.what_and_why(text) == found
