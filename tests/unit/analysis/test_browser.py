"""The report in headless Chromium: no console message, no request but for the file itself; it fits a phone and prints.

Skipped where there is no Chromium; nothing else needs one (Debian: `apt-get install chromium`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from analysis import report
from tests.unit.analysis import synthetic
from tests.unit.analysis.conftest import SMALL

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
PHONE = 390  # CSS pixels
PROBE = """<script>addEventListener("load", () => { document.title = JSON.stringify({
  asked: performance.getEntriesByType("resource").map(one => one.name).filter(name => !name.startsWith("data:")),
  seen: innerWidth, needed: document.documentElement.scrollWidth,
  tall: document.documentElement.scrollHeight, figures: document.querySelectorAll("figure svg").length }) })</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = SMALL.replace("expect:", 'faults:\n  - {at: 3s, link: "p0t0-0:p0t1-1", action: blackhole, for: 1s}\nexpect:')
    return report.write(synthetic.write(tmp_path_factory.mktemp("browser") / "run", text))


def chromium(where: Path, *arguments: str, width: int = 1200) -> str:
    """Its standard error; a profile and a home of its own, no network."""
    assert CHROMIUM is not None
    fixed = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-extensions",
        "--no-first-run",
        f"--user-data-dir={where}",
    ]
    fixed += ["--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"]
    command = [CHROMIUM, *fixed, f"--window-size={width},900", "--virtual-time-budget=5000", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stderr + done.stdout


def looked_at(page: Path, place: Path) -> tuple[str, dict[str, Any]]:
    """(what the browser said, what PROBE found in the page)."""
    probed = place / "probed.html"
    probed.write_text(page.read_text().replace("</head>", PROBE + "</head>"))
    said = chromium(place / "profile", "--dump-dom", probed.as_uri())
    title = re.search(r"<title>(.*?)</title>", said)
    assert title is not None, said[:2000]
    return said, json.loads(title.group(1))


def test_no_console_message_and_no_request(page: Path, tmp_path: Path) -> None:
    said, found = looked_at(page, tmp_path)
    assert "CONSOLE" not in said
    assert found["asked"] == []
    assert "Expectations" in said, "the page was loaded"


def test_a_page_that_asks_and_complains_is_noticed(tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text('<head><title></title></head><img src="http://localhost:9/pixel.png"><script>console.error("no")</script>')
    said, found = looked_at(bad, tmp_path)
    assert "CONSOLE" in said
    assert found["asked"] == ["http://localhost:9/pixel.png"]


@pytest.mark.parametrize("width", [PHONE, 1200])
def test_it_fits_the_width(page: Path, tmp_path: Path, width: int) -> None:
    """Headless windows are at least 500 wide, so a phone is a frame of that width in one."""
    inner = tmp_path / "inner.html"
    inner.write_text(page.read_text().replace("</head>", PROBE + "</head>"))
    outer = tmp_path / "outer.html"
    outer.write_text(
        f'<iframe src="inner.html" style="width: {width}px; height: 800px; border: 0"></iframe><script>'
        'addEventListener("load", () => { document.title = frames[0].document.title })</script>'
    )
    dom = chromium(tmp_path / "profile", "--allow-file-access-from-files", "--dump-dom", outer.as_uri(), width=1400)
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title is not None, dom[:2000]
    measured = json.loads(title.group(1))
    assert measured["seen"] == width
    assert measured["needed"] <= width, "nothing sticks out sideways"
    assert measured["figures"] >= 10


def test_it_prints(page: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.pdf"
    chromium(tmp_path / "profile", f"--print-to-pdf={out}", page.as_uri())
    pages = len(re.findall(rb"/Type\s*/Page\b", out.read_bytes()))
    assert 3 <= pages <= 30
