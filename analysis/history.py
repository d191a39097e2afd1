"""What every nightly found, as one growing Parquet file: a row per member and metric of each run.

Parquet cannot be appended to: the old rows and the new ones become a new file that takes the old one's place whole, so a crash
leaves the history as it was. A file that cannot be read is never replaced.
"""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pyarrow as pa

from analysis.baseline import fingerprint
from analysis.regress import Regression
from testbed.errors import Problem, ScenarioError
from testbed.whole import replacing

COLUMNS = {
    "started": "datetime64[ns, UTC]",
    "suite": "str",
    "run_id": "str",
    "commit": "str",
    "dirty": "bool",
    "kernel": "str",
    "member": "str",
    "scenario": "str",  # fingerprint: a series is one scenario
    "metric": "str",
    "runs": "int64",
    "median": "float64",
    "low": "float64",
    "high": "float64",
    "state": "str",  # of the gate, empty for a metric without one; of the member where it has no valid run
}


def read(path: Path) -> pd.DataFrame:
    """ScenarioError for what is no history."""
    found: pd.DataFrame
    try:
        found = pd.read_parquet(path)
    except (OSError, pa.ArrowException) as error:
        raise _refused(path, f"cannot be read: {str(error).splitlines()[0]}") from error
    if list(found.columns) != list(COLUMNS):
        raise _refused(path, f"is no history: its columns are {', '.join(map(str, found.columns))}")
    return found.astype(COLUMNS)


def append(path: Path, found: Regression) -> pd.DataFrame:
    """Add this run's rows; rows that the same run left before are replaced. Returns all of it."""
    new = rows(found)
    before = read(path) if path.exists() else new.iloc[:0]
    others = before[before["run_id"] != new["run_id"].iloc[0]] if len(new) else before
    joined: pd.DataFrame = pd.concat([others, new]).sort_values("started", kind="stable", ignore_index=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        joined.to_parquet(part, index=False)
        with part.open("rb") as file:
            os.fsync(file.fileno())
    return joined


def rows(found: Regression) -> pd.DataFrame:
    """One row per member and metric of this run; a member without a valid run has one row without a metric."""
    suite, states = found.suite, {(case.member, case.name): case.state.value for case in found.cases}
    git = suite.plan.get("git") or {}
    common = {
        "started": pd.Timestamp(suite.plan["started"]),
        "suite": suite.plan["suite"],
        "run_id": suite.folder.resolve().name,
        "commit": git.get("commit", ""),
        "dirty": bool(git.get("dirty", False)),
        "kernel": suite.plan.get("kernel", ""),
    }
    lines = []
    for member in suite.members:
        own = common | {"member": member, "scenario": fingerprint(suite, member)}
        table = suite.values(member).select_dtypes("number")
        if table.empty:
            nothing = {"metric": "", "runs": 0, "median": float("nan"), "low": float("nan"), "high": float("nan")}
            lines.append(own | nothing | {"state": suite.status(member)[0]})
        for name in table.columns:
            values = table[name].dropna()
            figures = {"median": values.median(), "low": values.min(), "high": values.max()}
            lines.append(own | {"metric": name, "runs": len(values)} | figures | {"state": states.get((member, name), "")})
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype(COLUMNS)


def _refused(path: Path, message: str) -> ScenarioError:
    return ScenarioError([Problem(str(path), 0, "", message, "keep it aside, and a new one begins")])
