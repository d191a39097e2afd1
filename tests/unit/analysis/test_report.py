"""The report: one self-contained page, whatever is missing; and the command that writes it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import report
from analysis.__main__ import main
from analysis.figures import draw_all
from analysis.results import read
from analysis.scaling import scaling
from analysis.tables import TABLES
from analysis.view import View, view
from tests.support.page import Page
from tests.unit.analysis import synthetic
from tests.unit.analysis.conftest import SMALL

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def place(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("report") / "run"
    shutil.copytree(folder, copy)
    report.write(copy)
    return copy


def _parsed(place: Path) -> tuple[Page, str]:
    return Page.of(place / "report.html"), (place / "report.html").read_text()


def test_one_file_without_outside_requests(place: Path) -> None:
    page, text = _parsed(place)
    assert page.open == []
    assert page.scripts == 0
    assert all(reference.startswith(("#", "data:")) for reference in page.references)
    assert not re.search(r"@import|url\((?!#|['\"]?data:)", text)


def test_ids_are_unique_and_references_resolve(place: Path) -> None:
    page, text = _parsed(place)
    assert len(page.ids) == len(set(page.ids))
    used = {reference[1:] for reference in page.references if reference.startswith("#")} | set(
        re.findall(r"url\(#([^)]+)\)", text)
    )
    assert used <= set(page.ids)


def test_it_says_everything(place: Path) -> None:
    _, text = _parsed(place)
    for words in (
        "Passed.",
        "Every expectation holds.",
        "goodput_ratio &gt;= 0.97",
        "down p0t0-0:p0t1-2",
        "What is not modelled",
        "How to repeat it",
        "python -m tests.unit.analysis.synthetic",
        "0" * 40,
        "one second here is 200 \u00b5s there",
        "Frames in flight differ",
        "Made-up data.",
    ):
        assert words in text, words
    assert text.count('class="plane"') == 4
    assert text.count("<figure") == 11


def test_every_figure_has_png_svg_and_csv(place: Path) -> None:
    names = {"goodput", "paths", "ev_states", "planes", "messages", "delay_spread", "delay", "windows", "ports"}
    names |= {"recovery-0", "recovery-1"}
    files = {file.name for file in (place / "figures").iterdir()}
    assert files == {f"{name}.{kind}" for name in names for kind in ("png", "svg", "csv")}


def test_figures_of_an_earlier_report_do_not_stay(place: Path) -> None:
    stale = place / "figures" / "recovery-7.png"
    stale.write_bytes(b"")
    assert {figure.name for figure in draw_all(view(read(place)))} >= {"goodput", "recovery-1"}
    assert not stale.exists()


@pytest.mark.parametrize("left", [*(table.name for table in TABLES if not table.on_request), "all"])
def test_a_partial_run_has_a_report(tmp_path: Path, left: str) -> None:
    skipped = frozenset(table.name for table in TABLES) if left == "all" else frozenset({left})
    text = SMALL.replace("expect:", 'faults:\n  - {at: 3s, link: "p0t0-0:p0t1-1", action: blackhole}\nexpect:')
    run = synthetic.write(tmp_path / "part", text, synthetic.Wrong(skip_tables=skipped, status="interrupted"))
    if left == "all":
        (run / "manifest.json").unlink()
    report.write(run)
    page, text = _parsed(run)
    assert page.open == []
    assert "Interrupted." in text
    assert ".parquet is missing" in text


def test_text_from_outside_is_escaped(tmp_path: Path) -> None:
    text = SMALL.replace("description: Made-up", 'description: "<script>alert(1)</script>" #')
    run = synthetic.write(tmp_path / "hostile", text)
    report.write(run, figures=False)
    page, _ = _parsed(run)
    assert page.scripts == 0


def test_scaling_compares_frames_in_flight(seen: View, tmp_path: Path) -> None:
    scaled = scaling(seen)
    assert scaled is not None
    assert scaled.factor == pytest.approx(8e3 / 40e6)
    assert scaled.bdp_here == pytest.approx(5e6 * 0.04 / 8 / 4262)
    assert scaled.bdp_there == pytest.approx(100e9 * 8e-6 / 8 / 4262)
    assert scaled.differs
    text = synthetic.SCENARIO.replace("delay: 20ms", "delay: 80ms").replace("planes: 4", "planes: 1")
    text = re.sub(r"faults:.*?measure", "measure", text, flags=re.DOTALL).replace("duration: 20s", "duration: 4s")
    alike = scaling(view(read(synthetic.write(tmp_path / "alike", text))))
    assert alike is not None
    assert not alike.differs


def test_the_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "summary.json").unlink()
    assert main(["report", str(place), "--no-figures"]) == 0
    assert capsys.readouterr().out.strip() == str(place / "report.html")
    assert (place / "summary.json").exists()
    assert main(["report", str(place / "nowhere")]) == 2
    assert "no such results folder" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["compare"], ["regress"], ["export", "somewhere"], [], ["report"]])
def test_what_is_not_there_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        main(arguments)
    assert refusal.value.code == 2


def test_help_is_quick_and_has_an_example() -> None:
    call = "import sys; from analysis.__main__ import main\n"
    code = call + "try: main(['report', '--help'])\nfinally: print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "example:" in done.stdout
    assert done.stdout.rstrip().endswith("False")
