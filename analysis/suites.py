"""A suite's folder: which runs count, one table of them, claims about members side by side, and the verdict of it all.

Of each seed of a member the last attempt counts; an attempt whose numbers must not be used gives none. Claims are about
medians over the runs that count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.expectations import COMPARE
from analysis.judge import SUMMARY_SCHEMA, write_atomically
from testbed.errors import PRECEDENCE, ExitStatus, Problem, ScenarioError
from testbed.model import claims
from testbed.model.fields import Refused
from testbed.model.metrics import FAULT_COSTS

SCHEMA = 1
USABLE = ("passed", "failed")
NOT_RUN = "not run"
UNSUPPORTED = "unsupported"
STATUS = {  # of a member or a suite, by what the command would exit with
    ExitStatus.INTERRUPTED: "interrupted",
    ExitStatus.BAD_INPUT: "error",
    ExitStatus.MISSING_CAPABILITY: UNSUPPORTED,
    ExitStatus.BROKEN: "error",
    ExitStatus.INVALID: "invalid",
    ExitStatus.EXPECTATION_FAILED: "failed",
    ExitStatus.PASSED: "passed",
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a member. `summary`: its summary.json, None where it left none; `counts`: no later attempt replaces it."""

    member: str
    seed: int
    number: int
    status: ExitStatus
    path: str
    error: str
    summary: Mapping[str, Any] | None
    counts: bool
    seconds: float

    @property
    def usable(self) -> bool:
        return self.counts and self.summary is not None and self.summary["status"] in USABLE


@dataclass(frozen=True, slots=True)
class Suite:
    """`plan` is suite.json; attempts in the order they ended."""

    folder: Path
    plan: Mapping[str, Any]
    attempts: tuple[Attempt, ...]

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(member["name"] for member in self.plan["members"])

    def of(self, member: str) -> list[Attempt]:
        """The attempts of a member that count, by seed."""
        return sorted((one for one in self.attempts if one.member == member and one.counts), key=lambda one: one.seed)

    def values(self, member: str) -> pd.DataFrame:
        """One row per usable run of a member, indexed by its seed: its metrics, and what each fault cost."""
        found = {one.seed: measured(one.summary) for one in self.of(member) if one.usable and one.summary}
        return pd.DataFrame(list(found.values()), index=pd.Index(list(found), name="seed", dtype="int64"))

    def status(self, member: str) -> tuple[str, ExitStatus]:
        """A member's word and exit status. Not all of its runs made: `not run`, an invalid result."""
        seeds = next(one["seeds"] for one in self.plan["members"] if one["name"] == member)
        found = self.of(member)
        worst = min((one.status for one in found), key=PRECEDENCE.index, default=ExitStatus.PASSED)
        if len(found) < len(seeds) and PRECEDENCE.index(worst) > PRECEDENCE.index(ExitStatus.INVALID):
            return NOT_RUN, ExitStatus.INVALID
        return STATUS[worst], worst

    @property
    def table(self) -> pd.DataFrame:
        """One row per attempt: member, what the sweep varies, seed, try, status, fidelity, counts, path, then every metric."""
        swept = {one["name"]: one["values"] for one in self.plan["members"]}
        rows = []
        for one in self.attempts:
            summary = one.summary or {}
            own = {"member": one.member, **swept[one.member], "scenario": summary.get("scenario", ""), "seed": one.seed}
            own |= {"try": one.number, "status": summary.get("status", STATUS[one.status])}
            own |= {"fidelity": summary.get("fidelity", {}).get("verdict", ""), "counts": one.usable, "path": one.path}
            rows.append(own | (measured(summary) if summary else {}))
        return pd.DataFrame(rows)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `summary.json` of a suite holds, what `--json` prints, and the exit status."""

    summary: Mapping[str, Any]
    claims: list[dict[str, Any]]
    exit_status: int


def read(folder: Path) -> Suite:
    """ScenarioError when `folder` is no suite's."""
    try:
        plan = json.loads((folder / "suite.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _refused(folder, f"not a suite's folder: suite.json cannot be read ({error})") from error
    if not isinstance(plan, dict) or plan.get("schema") != SCHEMA:
        raise _refused(folder, f"not of schema {SCHEMA}, the one that this version reads")
    entries = _journal(folder / "runs.jsonl")
    last = {(entry["member"], entry["seed"]): at for at, entry in enumerate(entries)}
    tries: dict[tuple[str, int], int] = {}
    attempts = []
    for at, entry in enumerate(entries):
        key = (entry["member"], entry["seed"])
        tries[key] = tries.get(key, 0) + 1
        summary = _summary(folder / entry["path"]) if entry["path"] else None
        status = ExitStatus(entry["status"])
        attempts.append(
            Attempt(
                *key,
                tries[key],
                status,
                entry["path"],
                entry["error"],
                summary,
                counts=last[key] == at,
                seconds=entry["seconds"],
            )
        )
    return Suite(folder, plan, tuple(attempts))


def judge(suite: Suite, *, complete: bool = True) -> Verdict:
    """Members, comparisons, and the worst of all. `complete` False: it was interrupted."""
    lacking = [] if complete else [ExitStatus.INTERRUPTED]
    members, statuses = [], [*lacking]
    for member in suite.members:
        word, status = suite.status(member)
        statuses.append(status)
        members.append(_member(suite, member, word))
    comparisons = []
    for one in suite.plan["comparisons"]:
        found, status = _compared(suite, one)
        statuses.append(status)
        comparisons.append(found)
    worst = min(statuses, key=PRECEDENCE.index, default=ExitStatus.PASSED)
    summary = {
        "schema": SUMMARY_SCHEMA,
        "suite": suite.plan["suite"],
        "run_id": suite.folder.resolve().name,
        "path": str(suite.folder),
        "status": STATUS[worst],
        "members": members,
        "comparisons": comparisons,
    }
    printed = [dict(one.summary) for member in suite.members for one in suite.of(member) if one.summary is not None]
    return Verdict(summary, printed + comparisons, int(worst))


def write(folder: Path, *, complete: bool = True, figures: bool = False) -> Verdict:
    """Judge a suite's folder and write its table (Parquet, CSV), page and summaries, each whole or not at all."""
    suite = read(folder)
    verdict = judge(suite, complete=complete)
    table = suite.table
    for suffix in ("parquet", "csv"):
        part = folder / f".suite.{suffix}.new"
        if suffix == "parquet":
            table.to_parquet(part, index=False)
        else:
            table.to_csv(part, index=False)
        part.replace(folder / f"suite.{suffix}")
    shown = [
        name
        for name in (*SHOWN, *_costs(map(str, table.columns)))
        if name in table and table.loc[table["counts"], name].notna().any()
    ]
    if figures and shown:
        from analysis.figures import members

        members.draw(table[table["counts"]], suite.members, shown, folder / "figures")
    from analysis import suite_page

    suite_page.write(suite, verdict, figures=figures)
    write_atomically(folder / "summary.md", markdown(suite, verdict))
    write_atomically(folder / "summary.json", json.dumps(verdict.summary, indent=2, allow_nan=False) + "\n")
    return verdict


def lines(verdict: Verdict) -> list[str]:
    """The closing lines at the terminal."""
    summary = verdict.summary
    found = [f"{summary['suite']} {summary['run_id']}: {summary['status']}"]
    width = max((len(one["name"]) for one in summary["members"]), default=0)
    for one in summary["members"]:
        figures = [f"{name} {one['metrics'][name]:.4g}" for name in SHOWN if name in one["metrics"]]
        found.append(f"  {one['name']:<{width}}  {one['status']:<11}  {', '.join(figures)}")
        found += [f"    FAIL {text}" for text in one["failed"]]
    for one in summary["comparisons"]:
        for claim in one["expectations"]:
            found.append(f"  {'ok  ' if claim['passed'] else 'FAIL'} {claim['text']}  (actual {sides(claim)})")
    folder = Path(summary["path"])
    return [*found, f"  table: {folder / 'suite.csv'}", f"  page: {folder / 'report.html'}"]


SHOWN = ("goodput_mbps", "goodput_ratio", "flow_goodput_ratio_min", "step_ms_mean", "stall_ms_max", "recovery_rtts_max")


def markdown(suite: Suite, verdict: Verdict) -> str:
    """The same for a page: a table of members, the claims, and what is wrong with runs that do not count."""
    summary = verdict.summary
    costs = dict.fromkeys(name for one in summary["members"] for name in _costs(one["metrics"]))
    names = [name for name in (*SHOWN, *costs) if any(name in one["metrics"] for one in summary["members"])]
    found = [f"# {summary['suite']}: {summary['status']}", "", f"Run `{summary['run_id']}`, commit `{commit(suite)}`.", ""]
    found += [" ".join(suite.plan["description"].split()), ""] if suite.plan["description"] else []
    found += [_row(["member", "status", "runs", *names]), _row(["---"] * (3 + len(names)))]
    for one in summary["members"]:
        figures = [f"{one['metrics'][name]:.4g}" if name in one["metrics"] else "" for name in names]
        found.append(_row([one["name"], one["status"], str(one["runs"]), *figures]))
    if summary["comparisons"]:
        found += ["", _row(["claim", "holds", "left side", "right side"]), _row(["---"] * 4)]
    for one in summary["comparisons"]:
        for claim in one["expectations"]:
            sides = [_number(claim["actual"]), _number(claim["bound"])]
            found.append(_row([f"`{claim['text']}`", "yes" if claim["passed"] else "**no**", *sides]))
    wrong = [f"- `{one['name']}`: {text}" for one in summary["members"] for text in [*one["failed"], *one["errors"]]]
    return "\n".join([*found, *(["", *wrong] if wrong else [])]) + "\n"


def _costs(names: Iterable[str]) -> list[str]:
    """What faults cost, one by one: how long flows stood still."""
    return [name for name in names if name.startswith("fault") and name.endswith("_stall_ms")]


def measured(summary: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a run, and `fault<n>_<cost>` for each of its faults."""
    costs = {
        f"fault{number}_{cost}": fault[cost]
        for number, fault in enumerate(summary["faults"])
        for cost in FAULT_COSTS
        if fault.get(cost) is not None
    }
    return {**summary["metrics"], **costs}


def _member(suite: Suite, name: str, word: str) -> dict[str, Any]:
    values, counted = suite.values(name), suite.of(name)
    metrics = {column: float(f"{values[column].median():.6g}") for column in values.columns if values[column].notna().all()}
    failed = failed_lines(counted)
    errors = [f"seed {one.seed}: {why(one)}" for one in counted if not one.usable]
    return {"name": name, "status": word, "runs": len(values), "metrics": metrics, "failed": failed, "errors": errors}


def failed_lines(attempts: Sequence[Attempt]) -> list[str]:
    """Every expectation that failed, with what came instead and the seed."""
    return [
        f"{line['text']} (actual {_number(line['actual'])}, seed {one.seed})"
        for one in attempts
        if one.usable and one.summary is not None
        for line in one.summary["expectations"]
        if not line["passed"]
    ]


def why(one: Attempt) -> str:
    """Why an attempt does not count."""
    if one.summary is not None and one.summary["fidelity"]["reasons"]:
        return f"{STATUS[one.status]}: {'; '.join(one.summary['fidelity']['reasons'])}"
    return f"{STATUS[one.status]}: {one.error.splitlines()[-1] if one.error else 'no summary'}"


def _compared(suite: Suite, comparison: Mapping[str, Any]) -> tuple[dict[str, Any], ExitStatus]:
    """DESIGN 4.2's element for a comparison. A claim about members that have no valid run is invalid, not failed.

    `seeds`: the same claim for each seed that all its members have a valid run of, where that is more than one.
    """
    prefix, outcomes, statuses = comparison["prefix"], [], [ExitStatus.PASSED]
    values = {name: suite.values(name) for name in suite.members if name.startswith(prefix)}
    medians = {name: frame.median(numeric_only=True) for name, frame in values.items()}
    for text in comparison["expect"]:
        claim = _claim(text)
        about = [prefix + member for member in claim.members]
        found = _held(claim, {member: medians[prefix + member] for member in claim.members})
        common = sorted(set.intersection(*(set(values[name].index) for name in about)))
        each = [
            {"seed": int(seed)} | _held(claim, {member: values[prefix + member].loc[seed] for member in claim.members})
            for seed in common
        ]
        outcomes.append({"text": text, **found, "about": about, "seeds": each if len(each) > 1 else []})
        if not found["passed"]:
            ran = all(len(values[name]) for name in about)
            statuses.append(ExitStatus.EXPECTATION_FAILED if ran else ExitStatus.INVALID)
    worst = min(statuses, key=PRECEDENCE.index)
    element = {"schema": SUMMARY_SCHEMA, "scenario": comparison["name"], "status": STATUS[worst], "expectations": outcomes}
    return element | {"members": list(values)}, worst


def _held(claim: claims.Claim, figures: Mapping[str, pd.Series]) -> dict[str, Any]:
    """`actual` and `bound`, the claim's two sides (None: not to be told), and whether it holds."""

    def lookup(member: str, metric: str) -> float | None:
        found = figures[member].get(metric)
        return None if found is None or math.isnan(found) else float(found)

    left, right = claims.value(claim.left, lookup), claims.value(claim.right, lookup)
    holds = left is not None and right is not None and COMPARE[claim.op](left, right)
    return {"actual": left, "bound": right, "passed": holds}


def _claim(text: str) -> claims.Claim:
    try:
        return claims.parse(text)
    except Refused as error:
        raise _refused(Path("suite.json"), f"{text}: {error.message}") from error


def _journal(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:  # cut off by a crash
            continue
    return found


def _summary(folder: Path) -> dict[str, Any] | None:
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) and summary.get("schema") == SUMMARY_SCHEMA else None


def commit(suite: Suite) -> str:
    git = suite.plan.get("git") or {}
    return f"{git.get('commit', 'unknown')[:12]}{' with changes' if git.get('dirty') else ''}"


def sides(claim: Mapping[str, Any]) -> str:
    """What the two sides of a claim came to."""
    return f"{_number(claim['actual'])} against {_number(claim['bound'])}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _refused(path: Path, message: str) -> ScenarioError:
    return ScenarioError([Problem(str(path), 0, "", message, "give results/<suite>/<time>")])
