"""A regression as JUnit XML, and as Markdown for a summary page.

The XML is of the dialect that Jenkins publishes a schema for (xunit-plugin, junit-10.xsd), which GitHub's and GitLab's
readers take too.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from analysis.regress import Case, Regression, State

ELEMENTS = {State.FAILED: "failure", State.INVALID: "error", State.UNSUPPORTED: "skipped"}
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0 section 2.2


def xml(found: Regression) -> str:
    """One test suite per member, one test case per check; the text of a check that failed is the failure's message."""
    plan = found.suite.plan
    root = ET.Element("testsuites", _counts(found.cases) | {"name": plan["suite"]})
    for member in dict.fromkeys(case.member for case in found.cases):
        cases = [case for case in found.cases if case.member == member]
        seconds = sum(one.seconds for one in found.suite.attempts if one.member == member)
        own = _counts(cases) | {"skipped": str(sum(case.state is State.UNSUPPORTED for case in cases))}
        name = f"{plan['suite']}.{member}"
        suite = ET.SubElement(
            root, "testsuite", own | {"name": name, "timestamp": plan["started"][:19], "time": f"{seconds:.1f}"}
        )
        for case in cases:
            entry = ET.SubElement(suite, "testcase", {"name": case.name, "classname": name, "time": "0"})
            if case.state in ELEMENTS:
                first = case.text.splitlines()[0]
                ET.SubElement(entry, ELEMENTS[case.state], {"message": _clean(first), "type": case.state.value}).text = _clean(
                    case.text
                )
            else:
                ET.SubElement(entry, "system-out").text = _clean(case.text)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def markdown(found: Regression) -> str:
    """Verdict, what is not passed with its text, and the count of the rest."""
    plan = found.suite.plan
    commit = (plan.get("git") or {}).get("commit", "unknown")[:12]
    lines = [f"# {plan['suite']} against its baseline: {found.state.value}", ""]
    lines += [f"Run `{found.suite.folder.resolve().name}`, commit `{commit}`.", ""]
    lines += [f"- {note}" for note in found.notes] + ([""] if found.notes else [])
    counts = ", ".join(f"{found.count(state)} {state.value}" for state in State if found.count(state))
    lines += [counts[0].upper() + counts[1:] + ".", ""]
    wrong = [case for case in found.cases if case.state is not State.PASSED]
    if wrong:
        lines += ["| member | check | state | |", "| --- | --- | --- | --- |"]
        lines += [f"| {case.member} | {_cell(case.name)} | {case.state.value} | {_cell(case.text)} |" for case in wrong]
    return "\n".join(lines).rstrip() + "\n"


def _counts(cases: tuple[Case, ...] | list[Case]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.state is State.FAILED for case in cases)),
        "errors": str(sum(case.state is State.INVALID for case in cases)),
    }


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
