"""A report as data: its tables as rows of text, and its structure for checks of well-formedness."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Collects ids, references, open tags, and every table under the heading (h2) before it."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.open: list[str] = []
        self.scripts = 0
        self.tables: dict[str, list[list[str]]] = {}
        self._heading = ""

    @staticmethod
    def of(path: Path) -> Page:
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        page.close()
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in {"href", "src", "xlink:href"}:
                self.references.append(value or "")
        match tag:
            case "h2":
                self._heading = ""
            case "tr":
                self.tables.setdefault(self._heading, []).append([])
            case "td" | "th":
                self.tables[self._heading][-1].append("")
            case "br" if "td" in self.open:
                self.tables[self._heading][-1][-1] += "\n"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "h2" in self.open:
            self._heading += data
        elif "td" in self.open or "th" in self.open:
            self.tables[self._heading][-1][-1] += data

    def rows(self, heading: str) -> list[dict[str, str]]:
        """A table's rows by column head."""
        head, *body = self.tables[heading]
        return [dict(zip(head, row, strict=True)) for row in body]


def value(text: str) -> float | None:
    """The number of a cell (its first line); None for a dash."""
    first = re.sub(r"[\u202f,\s]", "", text.strip().split("\n")[0])
    return None if first == "\u2013" else float(first)
