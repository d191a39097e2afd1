"""`python -m analysis`: look at results again. Each command has `--help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed import venv
from testbed.errors import ExitStatus, Problem, ScenarioError, TestbedError

EXAMPLES = {
    "report": "python -m analysis report results/quickstart/latest",
    "compare": "python -m analysis compare results/quickstart results/incast --out comparison",
    "export": "python -m analysis export results/quickstart --out bundle --format csv",
    "regress": "python -m analysis regress results/quick/latest --baseline results/baselines/quick.yaml",
    "paper": "python -m analysis paper results/paper/latest --causes docs/paper-causes.yaml --out docs/paper.md",
    "trend": "python -m analysis trend results/history/quick.parquet",
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m analysis",
        description="Look at the results of runs again.",
        epilog="examples:\n  " + "\n  ".join(EXAMPLES.values()) + "\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    report = _command(commands, "report", "Rewrite summary.json, figures and report.html of a results folder from its tables.")
    report.add_argument(
        "run_dir", metavar="RUN_DIR", type=Path, help="results folder: results/<name>/<time>-s<seed>, or .../latest"
    )
    report.add_argument("--no-figures", action="store_true", help="leave figures out of the report; much faster")
    report.add_argument("--json", action="store_true", help="print summary.json on standard output and nothing else there")
    compare = _command(commands, "compare", "Compare runs: means, and differences with 95 % bootstrap intervals.")
    compare.add_argument(
        "runs",
        metavar="RUN",
        type=Path,
        nargs="+",
        help="results folders, or folders of them; repeats of one scenario form a group",
    )
    compare.add_argument("--ab", action="store_true", help="two folders, whose runs pair by seed")
    compare.add_argument("--metric", action="append", default=[], metavar="NAME", help="compare this metric (may be repeated)")
    compare.add_argument("--allow-invalid", action="store_true", help="let runs in whose numbers must not be used; marked")
    compare.add_argument("--out", type=Path, metavar="DIR", help="also write comparison.md, table.csv and figures there")
    compare.add_argument(
        "--json", action="store_true", help="print the table as JSON on standard output and nothing else there"
    )
    export = _command(commands, "export", "Write every table of runs into one CSV or Parquet bundle.")
    export.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="results folders, or folders of them")
    export.add_argument("--out", type=Path, metavar="DIR", required=True, help="where the bundle goes")
    export.add_argument("--format", choices=("parquet", "csv"), default="parquet", help="default: parquet")
    _regression(commands)
    paper = _command(commands, "paper", "Write a suite's claims as a page of Markdown: claim, set-up, measurement, verdict.")
    paper.add_argument("run", metavar="SUITE_RUN", type=Path, help="folder of a suite's run, or .../latest")
    paper.add_argument("--causes", type=Path, metavar="FILE", help="YAML: row -> why its claim does not reproduce")
    paper.add_argument("--out", type=Path, metavar="FILE", help="write it there instead of to standard output")
    return top


def _regression(commands: Any) -> None:
    regress = _command(commands, "regress", "Hold a suite's run against a baseline: is any metric worse than it may be?")
    regress.add_argument(
        "runs", metavar="SUITE_RUN", type=Path, nargs="+", help="folder of a suite's run; several with --update-baseline"
    )
    regress.add_argument(
        "--baseline", type=Path, metavar="FILE", help="results/baselines/<suite>.yaml; without it only expectations"
    )
    regress.add_argument(
        "--update-baseline", action="store_true", help="write FILE from three or more runs instead; review the change"
    )
    regress.add_argument("--history", type=Path, metavar="FILE", help="append a row per member and metric to this Parquet file")
    regress.add_argument("--out", type=Path, metavar="DIR", help="where junit.xml and regression.md go (default: SUITE_RUN)")
    regress.add_argument(
        "--json", action="store_true", help="print every check as JSON on standard output and nothing else there"
    )
    trend = _command(commands, "trend", "Draw a history: every metric over time, with the points where it changed.")
    trend.add_argument("history", metavar="HISTORY", type=Path, help="the Parquet file of `regress --history`")
    trend.add_argument("--out", type=Path, metavar="FILE", help="the page (default: beside the history, .html)")


def _command(commands: Any, name: str, about: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about[0].lower() + about[1:].rstrip("."),
        description=about,
        epilog=f"example:\n  {EXAMPLES[name]}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 when it was written, whatever the runs' own status; 2 for what cannot be read or must not be used.

    `regress`: 1 when something is worse or an expectation failed, 4 when runs were invalid (DESIGN 4.1's precedence).
    """
    options = parser().parse_args(arguments)
    try:
        commands = {
            "report": _report,
            "compare": _compare,
            "export": _export,
            "regress": _regress,
            "paper": _paper,
            "trend": _trend,
        }
        return commands[options.command](options)
    except TestbedError as error:
        print(error, file=sys.stderr)
        return int(error.exit_status)
    except OSError as error:
        print(
            ScenarioError([Problem(str(error.filename), 0, "", f"cannot be written or read: {error.strerror}")]),
            file=sys.stderr,
        )
        return int(ExitStatus.BAD_INPUT)


def _report(options: argparse.Namespace) -> int:
    from analysis import report  # a second of imports that `--help` does not need

    path = report.write(options.run_dir, figures=not options.no_figures)
    if options.json:
        summary = json.loads((options.run_dir / "summary.json").read_text(encoding="utf-8"))
        print(json.dumps(summary, indent=2, ensure_ascii=False))
    else:
        print(path)
    return int(ExitStatus.PASSED)


def _compare(options: argparse.Namespace) -> int:
    from analysis import wording
    from analysis.compare import compare

    found = compare(options.runs, ab=options.ab, metrics=options.metric, allow_invalid=options.allow_invalid)
    if options.out is not None:
        from analysis.figures import comparison

        drawn = comparison.draw(found, options.out)
        found.table.to_csv(options.out / "table.csv", index=False)
        (options.out / "comparison.md").write_text(
            wording.comparison_page(found.table, found.doubtful, drawn), encoding="utf-8"
        )
    if options.json:
        print(found.table.to_json(orient="records", indent=2))
    else:
        print("\n".join(wording.comparison(found.table, found.doubtful)))
    return int(ExitStatus.PASSED)


def _export(options: argparse.Namespace) -> int:
    from analysis.export import export

    for path in export(options.runs, options.out, options.format):
        print(path)
    return int(ExitStatus.PASSED)


def _regress(options: argparse.Namespace) -> int:
    from analysis import baseline, history, junit, suites
    from analysis.judge import write_atomically
    from analysis.regress import as_json, regress

    if options.update_baseline:
        if options.baseline is None:
            raise ScenarioError([Problem("--update-baseline", 0, "", "which file?", "give it with --baseline")])
        made = baseline.write(options.baseline, [suites.read(folder) for folder in options.runs])
        print(f"{options.baseline}: {len(made.sessions)} sessions of {made.suite}; review it before it is used")
        return int(ExitStatus.PASSED)
    if len(options.runs) > 1:
        raise ScenarioError([Problem("regress", 0, "", "one run at a time; several make a baseline", "--update-baseline")])
    found = regress(options.runs[0], None if options.baseline is None else baseline.read(options.baseline))
    out = options.out or options.runs[0]
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "junit.xml", junit.xml(found))
    write_atomically(out / "regression.md", junit.markdown(found))
    if options.history is not None:
        history.append(options.history, found)
    print(json.dumps(as_json(found), indent=2) if options.json else junit.markdown(found), end="\n" if options.json else "")
    return int(found.status)


def _paper(options: argparse.Namespace) -> int:
    from analysis import paper
    from analysis.judge import write_atomically

    causes = {} if options.causes is None else paper.causes_in(options.causes)
    text = paper.markdown(options.run, venv.ROOT / "scenarios", causes)
    if options.out is None:
        print(text, end="")
    else:
        write_atomically(options.out, text)
        print(options.out)
    return int(ExitStatus.PASSED)


def _trend(options: argparse.Namespace) -> int:
    from analysis import trend

    print(trend.write(options.history, options.out or options.history.with_suffix(".html")))
    return int(ExitStatus.PASSED)


if __name__ == "__main__":
    venv.enter(["-m", "analysis", *sys.argv[1:]])
    sys.exit(main())
