"""`python3 -m analysis`: look at results again. Each command has `--help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed import venv
from testbed.errors import ExitStatus, Problem, ScenarioError, TestbedError

EXAMPLE = "example:\n  python3 -m analysis report results/quickstart/latest\n"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python3 -m analysis",
        description="Look at the results of runs again.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    report = commands.add_parser(
        "report",
        help="rewrite summary.json, figures and report.html of a results folder from its tables",
        description="Rewrite summary.json, figures and report.html of a results folder from its tables.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_argument(
        "run_dir", metavar="RUN_DIR", type=Path, help="results folder: results/<name>/<time>-s<seed>, or .../latest"
    )
    report.add_argument("--no-figures", action="store_true", help="leave figures out of the report; much faster")
    report.add_argument("--json", action="store_true", help="print summary.json on standard output and nothing else there")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 when the report was written, whatever the run's own status; 2 for a folder that cannot be read."""
    options = parser().parse_args(arguments)
    try:
        path = _report(options.run_dir, figures=not options.no_figures)
    except TestbedError as error:
        print(error, file=sys.stderr)
        return int(error.exit_status)
    if options.json:
        print(
            json.dumps(json.loads((options.run_dir / "summary.json").read_text(encoding="utf-8")), indent=2, ensure_ascii=False)
        )
    else:
        print(path)
    return int(ExitStatus.PASSED)


def _report(run_dir: Path, *, figures: bool) -> Path:
    from analysis import report  # a second of imports that `--help` does not need

    try:
        return report.write(run_dir, figures=figures)
    except OSError as error:
        problem = Problem(str(error.filename or run_dir), 0, "", f"cannot be written or read: {error.strerror}")
        raise ScenarioError([problem]) from error


if __name__ == "__main__":
    venv.enter(["-m", "analysis", *sys.argv[1:]])
    sys.exit(main())
