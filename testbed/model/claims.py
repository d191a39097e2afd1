"""Claims that a suite makes about its members: `mrc.stall_ms_max * 20 <= rc-bgp.stall_ms_max`.

A claim is two sums of products of `member.metric` and plain numbers, with brackets, and one of the operators that every
expectation has. Nothing else can be written, so nothing else can be run: a claim is read here into a tree and worked out from
it. A metric that a member does not have, and a division by zero, give no value, and a claim without a value never holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from testbed.model import fields, units
from testbed.model import tree as t
from testbed.model.fields import Refused
from testbed.model.metrics import METRICS, OPERATORS, is_claimable

LONGEST = 400  # characters: a claim is a line, and brackets cannot be nested until the stack ends
FORM = "expected a claim such as mrc.stall_ms_max * 20 <= rc.stall_ms_max"

Lookup = Callable[[str, str], float | None]

_TOKEN = re.compile(
    r"\s*(?:(?P<metric>[A-Za-z0-9][A-Za-z0-9_-]*\.[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>[0-9][0-9.]*)|(?P<compare>[<>=!~]+)|(?P<sign>[-+*/()]))"
)


@dataclass(frozen=True, slots=True)
class Number:
    value: float


@dataclass(frozen=True, slots=True)
class Measured:
    member: str
    metric: str


@dataclass(frozen=True, slots=True)
class Operation:
    sign: str  # one of + - * /
    left: Term
    right: Term


Term = Number | Measured | Operation


@dataclass(frozen=True, slots=True)
class Claim:
    """`left op right`. `text` as it was written, with single spaces."""

    text: str
    left: Term
    op: str
    right: Term

    @property
    def members(self) -> tuple[str, ...]:
        """Those it speaks of, in order, each once."""
        return tuple(dict.fromkeys(one.member for side in (self.left, self.right) for one in measured(side)))


def read(tree: t.Tree, _path: str) -> Claim:
    """A claim from a suite file; Refused where it is none."""
    if not isinstance(tree, t.Scalar) or tree.kind != "str":
        raise Refused(f"{FORM}, found {t.describe(tree)}")
    return parse(tree.text)


def parse(text: str) -> Claim:
    """A claim from its text; Refused where it is none, or names a metric that there is not."""
    if len(text) > LONGEST:
        raise Refused(f"a claim of {len(text)} characters", f"at most {LONGEST}")
    reader = _Reader(list(_tokens(text)))
    left = reader.sum()
    op = reader.take("compare")
    if op not in OPERATORS:
        raise Refused(f"{units.shown(op)} is no operator" if op else FORM, f"one of {', '.join(OPERATORS)}")
    right = reader.sum()
    if not reader.done:
        raise Refused(f"{FORM}; nothing may follow {units.shown(reader.before)}")
    claim = Claim(" ".join(text.split()), left, op, right)
    if not claim.members:
        raise Refused(f"{units.shown(claim.text)} speaks of no member", FORM)
    return claim


def value(term: Term, lookup: Lookup) -> float | None:
    """What `term` comes to, with `lookup(member, metric)` for what was measured; None where it has no finite value."""
    if isinstance(term, Number):
        return term.value
    if isinstance(term, Measured):
        found = lookup(term.member, term.metric)
    else:
        left, right = value(term.left, lookup), value(term.right, lookup)
        if left is None or right is None or (term.sign == "/" and right == 0):
            return None
        found = {"+": left + right, "-": left - right, "*": left * right}.get(term.sign)
        found = left / right if found is None else found
    return found if found is not None and math.isfinite(found) else None


def measured(term: Term) -> Iterator[Measured]:
    """Every `member.metric` that `term` speaks of, in order."""
    if isinstance(term, Measured):
        yield term
    elif isinstance(term, Operation):
        yield from measured(term.left)
        yield from measured(term.right)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of every token."""
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise Refused(f"{FORM}, found {units.shown(text[at:end].strip())}")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


class _Reader:
    """Recursive descent: sum of products of atoms."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._tokens)

    @property
    def before(self) -> str:
        return self._tokens[self._at - 1][1] if self._at else ""

    def take(self, kind: str, among: str = "") -> str:
        """The next token when it is of this kind (and one of these signs), else nothing."""
        if self.done or self._tokens[self._at][0] != kind or (among and self._tokens[self._at][1] not in among):
            return ""
        self._at += 1
        return self._tokens[self._at - 1][1]

    def sum(self) -> Term:
        term = self._product()
        while sign := self.take("sign", "+-"):
            term = Operation(sign, term, self._product())
        return term

    def _product(self) -> Term:
        term = self._atom()
        while sign := self.take("sign", "*/"):
            term = Operation(sign, term, self._atom())
        return term

    def _atom(self) -> Term:
        if self.take("sign", "("):
            term = self.sum()
            if not self.take("sign", ")"):
                raise Refused(f"{FORM}; a bracket is not closed")
            return term
        if text := self.take("number"):
            try:
                return Number(float(units.number(text)))
            except ValueError as error:
                raise Refused(str(error)) from error
        if text := self.take("metric"):
            member, _, metric = text.partition(".")
            if not is_claimable(metric):
                hint = fields.close(metric, METRICS) or "testbed/model/metrics.py lists them"
                raise Refused(f"there is no metric {units.shown(metric)}", hint)
            return Measured(member, metric)
        after = f" after {units.shown(self.before)}" if self._at else ""
        raise Refused(f"{FORM}; a number or member.metric is missing{after}")
