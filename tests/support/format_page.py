"""docs/results-format.md as data: the tables under its headings."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "results-format.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading."""
    after = re.split(rf"^#+ {re.escape(heading)}$", PAGE, flags=re.MULTILINE)[1]
    table = re.search(r"^\|.*?(?=\n(?!\|)|\Z)", after, flags=re.MULTILINE | re.DOTALL)
    assert table is not None, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.group().splitlines()[2:]]


def keys(heading: str) -> list[str]:
    return [row[0].strip("[`]/") for row in rows(heading)]
