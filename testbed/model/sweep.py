"""`--sweep key=a,b,c --sweep other=1..8`: every combination of the values as members of a suite of its own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import Problem, ScenarioError
from testbed.model import load, units
from testbed.model.suite import RETRIES, Given, Member, Suite

MOST = 10_000  # runs; a mistyped range is no plan
_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)(?:\.\.([0-9]+))?")
_BRACKETS = {"[": "]", "{": "}", "(": ")"}


def load_sweep(path: Path, swept: Sequence[str], given: Given = Given()) -> Suite:  # noqa: B008 - frozen
    """The scenario in `path` once per combination, in the order written, the last key varying fastest.

    `given.overrides` hold for all. ScenarioError with every problem of the values, or of every combination's scenario.
    """
    axes = [axis(text) for text in swept]
    keys = [key for key, _ in axes]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise _refused(f"{twice[0]} is swept twice", "give all its values in one --sweep")
    repeat = given.repeat or 1
    count = repeat
    for _, values in axes:
        count *= len(values)
    if count > MOST:
        raise _refused(f"{count} runs", f"at most {MOST}")
    members, problems, name = list[Member](), list[Problem](), ""
    for chosen in itertools.product(*(values for _, values in axes)):
        assignments = tuple(f"{key}={value}" for key, value in zip(keys, chosen, strict=True))
        try:
            scenario = load.load(path, (*given.overrides, *assignments), given.seed)
        except ScenarioError as error:
            problems += [problem for problem in error.problems if problem not in problems]
            continue
        name = scenario.name
        members.append(Member(" ".join(assignments), scenario, repeat, tuple(zip(keys, chosen, strict=True))))
    if problems:
        raise ScenarioError(problems)
    description = f"{name} for every combination of {', '.join(swept)}"
    return Suite(f"{name}-sweep", description, tuple(members), (), None, RETRIES)


def axis(text: str) -> tuple[str, tuple[str, ...]]:
    """(key path, its values): values between commas, or a range `1..8` or `1..16..5` of whole numbers, ends included.

    A comma in brackets or quotes belongs to its value: `faults=[],[{...}]` has two.
    """
    key, equals, values = text.partition("=")
    found = _split(values)
    if not equals or not key.strip() or not all(found):
        raise _refused(
            f"expected KEY=a,b,c or KEY=1..8, found {units.shown(text)}", "for example --sweep transport.evs=8,24,128"
        )
    expanded = tuple(one for value in found for one in _expanded(value, text))
    if len(set(expanded)) < len(expanded):
        raise _refused(f"{units.shown(text)} has a value twice", "--repeat runs each value again")
    return key.strip(), expanded


def _expanded(value: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(value)
    if match is None:
        return [value]
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if last < first or not step:
        raise _refused(f"{units.shown(text)}: {value} is an empty range", "for example 1..8, or 0..100..25")
    if (last - first) // step >= MOST:
        raise _refused(f"{units.shown(text)}: {value} has more than {MOST} values", "")
    return [str(number) for number in range(first, last + 1, step)]


def _split(text: str) -> list[str]:
    parts, depth, quote = [""], list[str](), ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in _BRACKETS:
            depth.append(_BRACKETS[character])
        elif depth and character == depth[-1]:
            depth.pop()
        elif character == "," and not depth:
            parts.append("")
            continue
        parts[-1] += character
    return [part.strip() for part in parts]


def _refused(message: str, hint: str) -> ScenarioError:
    return ScenarioError([Problem("--sweep", 0, "", message, hint)])
