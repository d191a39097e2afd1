"""`python3 -m testbed nightly` and `prune`: their options, and what they call."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.errors import ExitStatus, ScenarioError, TestbedError
from testbed.run import arguments
from testbed.venv import ROOT

GIB = 2**30
NIGHTLY = """\
example:
  python3 -m testbed nightly --suite=nightly --out=results
  python3 -m testbed nightly --suite=quick --write-units=/etc/systemd/system --at='Mon..Fri 03:30'
"""


def add_to(add: Callable[..., Any]) -> None:
    """Both commands into the parser of `python3 -m testbed`."""
    nightly = add(
        "nightly",
        help="a suite, its regression, the history, and old results deleted",
        epilog=NIGHTLY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    nightly.set_defaults(run=_nightly)
    nightly.add_argument("--suite", default="nightly", metavar="NAME|FILE", help="default: nightly")
    nightly.add_argument("--out", type=Path, default=ROOT / "results", metavar="DIR", help="default: results/")
    nightly.add_argument(
        "--baseline", type=Path, metavar="FILE", help="default: results/baselines/<suite>.yaml; none there: none"
    )
    _limits(nightly, days=30, gib=20)
    nightly.add_argument("--write-units", type=Path, metavar="DIR", help="only write the systemd service and timer there")
    nightly.add_argument("--at", default="*-*-* 02:00:00", metavar="TIME", help="when the timer runs, systemd.time(7)")
    prune = add("prune", help="delete old results")
    prune.set_defaults(run=_prune)
    prune.add_argument("out", type=Path, nargs="?", default=ROOT / "results", metavar="DIR", help="default: results/")
    _limits(prune, days=None, gib=None)
    prune.add_argument("--dry-run", action="store_true", help="only say what would go")


def _limits(parser: argparse.ArgumentParser, *, days: int | None, gib: int | None) -> None:
    said = [f" (default: {value})" if value is not None else "" for value in (days, gib)]
    parser.add_argument("--days", type=arguments.whole(1), default=days, metavar="N", help=f"delete what is older{said[0]}")
    parser.add_argument(
        "--gib", type=arguments.whole(1), default=gib, metavar="N", help=f"delete the oldest beyond this{said[1]}"
    )


def _nightly(options: argparse.Namespace) -> ExitStatus:
    from testbed.model import load, suite
    from testbed.run import nightly

    file = load.find(options.suite, ROOT)
    if not suite.is_suite(file):
        raise ScenarioError([suite.no_suite(file)])
    found, out = suite.load_suite(file, ROOT), options.out.absolute()
    named = str(file.resolve()) if file.is_file() and Path(options.suite).suffix in load.SUFFIXES else options.suite
    if options.write_units is not None:
        for made in nightly.write_units(options.write_units, named, out, options.at):
            print(made)
        return ExitStatus.PASSED
    baseline = options.baseline or ROOT / "results" / "baselines" / f"{found.name}.yaml"
    gib = None if options.gib is None else options.gib * GIB
    return nightly.run(nightly.Night(named, found.name, out, baseline, options.days, gib))


def _prune(options: argparse.Namespace) -> ExitStatus:
    from testbed.run import retention

    if options.days is None and options.gib is None:
        raise TestbedError("prune: how much may stay? Give --days N, --gib N or both")
    gib = None if options.gib is None else options.gib * GIB
    names = retention.directories(options.out)
    gone = retention.prune(names, options.days, gib, dry=options.dry_run)
    print("\n".join(retention.describe(gone, dry=options.dry_run)) or "nothing to delete")
    return ExitStatus.PASSED
