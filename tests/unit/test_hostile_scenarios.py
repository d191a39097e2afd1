"""Malformed and hostile scenario files, as a table: each is refused with the line it is wrong in, at once, and makes nothing.

A row is the text and what is said; the line that must be named carries HERE. `tests/errors` has whole texts of common mistakes,
this has what a hostile or careless hand could write.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.errors import ExitStatus, ScenarioError
from testbed.model import load
from testbed.run import cli
from tests.support import machine

ROOT = Path(__file__).resolve().parents[2]
HERE = "# here"
COST = 80  # units of `machine.speed`: two seconds where a unit is 25 ms
MANY = 1500
BASE = """\
name: base
topology: {planes: 2, t0_groups: 2, t1_per_plane: 3, hosts_per_t0: 2}
links: {rate: 5mbit, delay: 20ms}
workload:
  - {kind: stream, from: h0, to: h2, message: 64KiB}
"""
BIG = BASE.replace(
    "planes: 2, t0_groups: 2, t1_per_plane: 3, hosts_per_t0: 2", "planes: 32, t0_groups: 64, t1_per_plane: 8, hosts_per_t0: 8"
)
Case = tuple[str, str | bytes, str]


def fault(text: str) -> str:
    return f"{BASE}faults:\n  - {{at: 3s, link: 'p0t0-0:p0t1-0', action: down, for: 1s}}\n  - {{{text}}} {HERE}\n"


def many(unit: str) -> str:
    """`unit` again and again, numbered."""
    return "".join(unit.format(number) for number in range(MANY))


def lines(unit: str) -> str:
    return many(unit + "\n")


DOWN = "at: 3s, link: 'p0t0-0:p0t1-0', action: down"
FAULTS: tuple[tuple[str, str, str], ...] = (
    # types
    ("time-number", "at: 3, link: 'p0t0-0:p0t1-0', action: down", "expected a time such as 20ms"),
    ("time-boolean", "at: yes, link: 'p0t0-0:p0t1-0', action: down", "found the boolean 'yes'"),
    ("time-list", "at: [3s, 4s], link: 'p0t0-0:p0t1-0', action: down", "found a list"),
    ("time-sexagesimal", "at: 1:30, link: 'p0t0-0:p0t1-0', action: down", "expected a time"),
    ("link-number", "at: 3s, link: 7, action: down", "expected two node names"),
    ("link-list", "at: 3s, link: [p0t0-0, p0t1-0], action: down", "expected two node names"),
    ("link-null", "at: 3s, link: ~, action: down", "expected two node names"),
    ("action-boolean", "at: 3s, link: 'p0t0-0:p0t1-0', action: off", "expected one of"),
    ("action-list", "at: 3s, link: 'p0t0-0:p0t1-0', action: [down]", "expected one of"),
    ("ratio-quoted", "at: 3s, link: 'p0t0-0:p0t1-0', action: loss, ratio: '0.1'", "in quotes"),
    ("ratio-boolean", "at: 3s, link: 'p0t0-0:p0t1-0', action: loss, ratio: true", "found the boolean 'true'"),
    ("count-float", "at: 3s, link: {tier: t0-t1, count: 1.5}, action: down", "expected a whole number"),
    ("plane-word", "at: 3s, plane: zero, action: down", "expected a whole number"),
    ("host-number", "at: 3s, host: 0, action: kill", "expected text, found the number '0'"),
    ("switch-date", "at: 3s, switch: 2026-01-01, action: reboot", "expected text, found the date"),
    ("a-word", "", "this key is required"),
    # ranges
    ("time-negative", "at: -3s, link: 'p0t0-0:p0t1-0', action: down", "no sign is allowed"),
    ("time-huge", f"at: {'9' * 30}s, link: 'p0t0-0:p0t1-0', action: down", "is outside 0s to 86400s"),
    ("time-longer-than-any", f"at: {'9' * 5000}s, link: 'p0t0-0:p0t1-0', action: down", "longer than 32 characters"),
    ("time-fraction", "at: 0.0000000001s, link: 'p0t0-0:p0t1-0', action: down", "expected a time in whole ns"),
    ("time-exponent", "at: 1e3s, link: 'p0t0-0:p0t1-0', action: down", "no exponents"),
    ("for-zero", f"{DOWN}, for: 0s", "0s is outside 1ns"),
    ("ratio-nan", "at: 3s, link: 'p0t0-0:p0t1-0', action: loss, ratio: .nan", "expected a number"),
    ("ratio-infinite", "at: 3s, link: 'p0t0-0:p0t1-0', action: corrupt, ratio: .inf", "expected a number"),
    ("ratio-two", "at: 3s, link: 'p0t0-0:p0t1-0', action: loss, ratio: 2", "2 is outside 0.0001 to 1"),
    ("ratio-zero", "at: 3s, link: 'p0t0-0:p0t1-0', action: loss, ratio: 0", "0 is outside 0.0001 to 1"),
    ("count-zero", "at: 3s, link: {tier: t0-t1, count: 0}, action: down", "0 is outside 1 to"),
    ("count-huge", f"at: 3s, link: {{tier: t0-t1, count: {'1' * 31}}}, action: down", "is outside 1 to"),
    ("count-octal", "at: 3s, link: {tier: t0-t1, count: 010}, action: down", "no leading zeros"),
    ("count-hexadecimal", "at: 3s, link: {tier: t0-t1, count: 0x1}, action: down", "only decimal numbers"),
    ("rate-zero", "at: 3s, link: 'p0t0-0:p0t1-0', action: rate, to: 0mbit", "0bit is outside 1kbit"),
    ("duty-one", "at: 3s, link: 'p0t0-0:p0t1-0', action: flap, period: 1s, duty: 1", "1 is outside 0.001 to 0.999"),
    ("period-tiny", "at: 3s, link: 'p0t0-0:p0t1-0', action: flap, period: 1ns, duty: 0.5", "1ns is outside 10ms"),
    # unknown names
    ("key", f"{DOWN}, duration: 3s", "duration: unknown key"),
    ("key-escape", f'{DOWN}, "\\e[2J": 1', "\\x1b[2J: unknown key"),
    ("key-long", f"{DOWN}, {'k' * 1000}: 1", "kkk...: unknown key"),
    ("key-python", f"{DOWN}, __class__: x", "__class__: unknown key"),
    ("action", "at: 3s, link: 'p0t0-0:p0t1-0', action: explode", "expected one of down"),
    ("link", "at: 3s, link: 'p0t0-0:p0t1-3', action: down", "there is no link"),
    ("link-to-itself", "at: 3s, link: 'p0t0-0:p0t0-0', action: down", "there is no link"),
    ("link-across-planes", "at: 3s, link: 'p0t0-0:p1t1-0', action: down", "p0t0-0 is linked to"),
    ("link-empty", "at: 3s, link: ':', action: down", "expected two node names"),
    ("link-three", "at: 3s, link: 'h0:p0t0-0:p0t1-0', action: down", "expected two node names"),
    ("host", "at: 3s, host: h4, action: kill", "there is no host 'h4'"),
    ("host-is-a-switch", "at: 3s, host: p0t0-0, action: kill", "there is no host"),
    ("host-empty", "at: 3s, host: '', action: kill", "there is no host ''"),
    ("host-without-a-flow", "at: 3s, host: h1, action: pause, for: 1s", "no flow begins or ends at h1"),
    ("kill-without-a-flow", "at: 3s, host: h1, action: kill", "no flow begins or ends at h1"),
    ("switch-is-a-host", "at: 3s, switch: h0, action: reboot", "there is no switch"),
    ("switch-empty", "at: 3s, switch: '', action: hang", "there is no switch ''"),
    ("plane", "at: 3s, plane: 2, action: down", "there is no plane 2"),
    ("selector-switch", "at: 3s, link: {switch: p7t0-0}, action: down", "there is no switch"),
    ("selector-tier", "at: 3s, link: {tier: t1-t2}, action: down", "expected one of nic-t0, t0-t1"),
    # names that would hurt where they reached a path, a command or a terminal
    ("name-path", "at: 3s, host: ../../etc/passwd, action: kill", "there is no host '../../etc/passwd'"),
    ("name-shell", "at: 3s, switch: '$(touch /tmp/owned); `id` | sh', action: reboot", "there is no switch"),
    ("name-newline", 'at: 3s, host: "h0\\nh1", action: kill', "there is no host 'h0\\nh1'"),
    ("name-nul", 'at: 3s, switch: "p0t1-0\\0", action: hang', "there is no switch 'p0t1-0\\x00'"),
    ("name-escape", 'at: 3s, link: "\\e[2Jp0t0-0:p0t1-0", action: down', "there is no link '\\x1b[2Jp0t0-0:p0t1-0'"),
    ("name-look-alike", "at: 3s, host: \N{FULLWIDTH LATIN SMALL LETTER H}0, action: kill", "there is no host '\\uff480'"),
    ("name-long", f"at: 3s, host: {'h' * 50_000}, action: kill", "there is no host 'hhhh"),
    ("name-format", "at: 3s, host: '{0.__class__}%s%n', action: kill", "there is no host"),
    # impossible together
    ("two-places", f"{DOWN}, plane: 0", "a fault has one place"),
    ("no-place", "at: 3s, action: down", "a fault needs a place"),
    ("reboot-of-a-link", "at: 3s, link: 'p0t0-0:p0t1-0', action: reboot", "happens to a switch, not to a link"),
    ("kill-of-a-plane", "at: 3s, plane: 0, action: kill", "happens to a host, not to a plane"),
    ("kill-that-ends", "at: 3s, host: h0, action: kill, for: 1s", "stays dead"),
    ("down-one-way", f"{DOWN}, direction: forward", "both ends lose the carrier"),
    ("down-with-ratio", f"{DOWN}, ratio: 0.5", "takes no ratio"),
    ("rate-up", "at: 3s, link: 'p0t0-0:p0t1-0', action: rate, to: 6mbit", "6mbit is no less than the rate"),
    ("rate-same", "at: 3s, link: 'p0t0-0:p0t1-0', action: rate, to: 5mbit", "5mbit is no less than the rate"),
    ("too-many-links", "at: 3s, link: {tier: t0-t1, plane: 0, count: 7}, action: down", "7 links asked for, 6 match"),
    ("nothing-matches", "at: 3s, link: {tier: nic-t0, switch: p0t1-0}, action: down", "no link is of this tier"),
    ("every-link", "at: 3s, link: {count: 3}, action: down", "selects every link of the fabric"),
    ("after-the-end", "at: 20s, link: 'p0t0-0:p0t1-0', action: down", "the run of 20s is over"),
    ("ends-after-the-end", "at: 3s, link: 'p0t0-0:p0t1-0', action: down, for: 18s", "would end at 21s"),
    (
        "ends-before-it-begins",
        "at: 3s, until: 2s, link: 'p0t0-0:p0t1-0', action: flap, period: 1s, duty: 0.5",
        "must end after",
    ),
    ("two-rhythms", "at: 3s, plane: 0, action: flap, period: 1s, duty: 0.5, poisson_per_minute: 5", "another rhythm"),
    ("two-lengths", "at: 3s, plane: 0, action: flap, period: 1s, duty: 0.5, for: 1s", "leave `for` out"),
    ("too-many-events", "at: 0s, plane: 0, action: flap, period: 10ms, duty: 0.1", "makes 2000 events or more"),
    ("twice", "at: 3s, at: 4s, plane: 0, action: down", "the key is given twice"),
)

DEAD = f"{BASE}faults:\n  - {{at: 4s, host: h0, action: kill}}\n"
CASES: tuple[Case, ...] = (
    *((f"fault-{name}", fault(text), says) for name, text, says in FAULTS),
    ("fault-kill-twice", f"{DEAD}  - {{at: 5s, host: h0, action: kill}} {HERE}\n", "h0 was killed by fault 0 at 4s"),
    ("fault-pause-of-the-dead", f"{DEAD}  - {{at: 5s, host: h0, action: pause, for: 1s}} {HERE}\n", "a killed host stays dead"),
    ("faults-mapping", f"{BASE}faults: {{at: 3s}} {HERE}\n", "expected a list"),
    ("faults-word", f"{BASE}faults: none {HERE}\n", "expected a list"),
    ("faults-nothing", f"{BASE}faults: {HERE}\n", "expected a list"),
    ("faults-of-words", f"{BASE}faults: [down, down] {HERE}\n", "expected a mapping"),
    # paths
    *(
        (f"scenario-name-{name}", BASE.replace("name: base", f"name: {text} {HERE}"), "is no name")
        for name, text in (
            ("up", "../../outside"),
            ("absolute", "/etc/cron.d/x"),
            ("dots", ".."),
            ("hidden", ".ssh"),
            ("slash", "a/b"),
            ("newline", '"a\\nb"'),
            ("shell", "'a; rm -rf ~'"),
            ("nul", '"a\\0b"'),
            ("option", "'--out'"),
            ("long", "a" * 300),
            ("empty", "''"),
        )
    ),
    *(
        (f"policy-{name}", f"{BASE}transport: {{policy: {text}}} {HERE}\n", says)
        for name, text, says in (
            ("up", "'../own.py:Own'", "is not inside the scenario's folder"),
            ("up-inside", "'a/../../own.py:Own'", "is not inside the scenario's folder"),
            ("absolute", "'/etc/own.py:Own'", "is not inside the scenario's folder"),
            ("backslash", "'..\\own.py:Own'", "is not inside the scenario's folder"),
            ("newline", '"own\\n.py:Own"', "is not inside the scenario's folder"),
            ("nul", '"own\\0.py:Own"', "is not inside the scenario's folder"),
            ("long", f"'{'a' * 300}.py:Own'", "cannot be read: File name too long"),
            ("deep", f"'{'a/' * 3000}own.py:Own'", "cannot be read: File name too long"),
            ("dot", "'.py:Own'", "expected FILE.py:Class"),
            ("folder", "'folder.py:Own'", "there is no file"),
            ("pipe", "'pipe.py:Own'", "there is no file"),
            ("link-out", "'out.py:Own'", "is a link that leads out of the scenario's folder"),
            ("folder-link-out", "'outside/own.py:Own'", "is a link that leads out of the scenario's folder"),
            ("loop", "'loop.py:Own'", "loop.py"),
            ("device", "'zero.py:Own'", "is a link that leads out of the scenario's folder"),
        )
    ),
    ("job-path", BASE.replace("message: 64KiB}", f"message: 64KiB, job: ../../x}} {HERE}"), "is no name"),
    ("capture", f"{BASE}capture: [/etc/shadow] {HERE}\n", "capture: unknown key"),
    ("out", f"{BASE}out: /etc {HERE}\n", "out: unknown key"),
    # YAML as a weapon
    ("bomb", f"a: &a [x, x, x] {HERE}\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n", "anchors and aliases"),
    ("merge", f"{BASE}x: &x {{a: 1}} {HERE}\ny: {{<<: *x}}\n", "anchors and aliases"),
    ("alias-of-nothing", f"{BASE}faults: *faults {HERE}\n", "anchors and aliases"),
    ("itself", f"{BASE}faults: &f [*f] {HERE}\n", "anchors and aliases"),
    ("merge-key", f"{BASE}<<: {{seed: 3}} {HERE}\n", "unknown key"),
    ("python-object", f"{BASE}description: !!python/object/apply:os.system ['true'] {HERE}\n", "YAML tags such as"),
    ("python-name", f"{BASE}description: !!python/name:os.system {HERE}\n", "YAML tags such as"),
    ("own-tag", f"{BASE}description: !include /etc/passwd {HERE}\n", "YAML tags such as"),
    ("binary-tag", f"{BASE}description: !!binary aGVsbG8= {HERE}\n", "YAML tags such as"),
    ("set-tag", f"{BASE}faults: !!set {{a, b}} {HERE}\n", "YAML tags such as"),
    ("directive", f"%YAML 9.9 {HERE}\n---\n{BASE}", "found incompatible YAML document"),
    (
        "tag-directive",
        f"%TAG ! tag:yaml.org,2002:python/ \n---\n{BASE}description: !name:os.system x {HERE}\n",
        "YAML tags such as",
    ),
    ("two-documents", f"{BASE}--- {HERE}\n{BASE}", "a second YAML document"),
    ("deep-flow", f"a: {'[' * 60_000} {HERE}\n", "nested deeper than 16"),
    ("deep-map", f"a: {'{a: ' * 15_000} {HERE}\n", "nested deeper than 16"),
    ("deep-block", f"{'- ' * 30_000} {HERE}\n", "nested deeper than 16"),
    ("deep-question", f"{'? ' * 30_000} {HERE}\n", "nested deeper than 16"),
    ("complex-key", f"{BASE}? [a, b] {HERE}\n: x\n", "a key must be plain text"),
    ("duplicate", f"{BASE}links: {{rate: 1mbit, delay: 1ms}} {HERE}\n", "the key is given twice, first in line 3"),
    ("duplicate-quoted", f'{BASE}"links": {{rate: 1mbit, delay: 1ms}} {HERE}\n', "the key is given twice, first in line 3"),
    ("unclosed", f"{BASE}faults: [{{at: 3s\n", "not valid YAML"),
    ("unclosed-quote", f"{BASE}description: 'a\n", "not valid YAML"),
    ("tab", f"{BASE}expect:\n\t- a {HERE}\n", "indent with spaces"),
    ("control", f"{BASE}description: a\x07b {HERE}\n", "character 0x07 is not allowed"),
    ("surrogate", f'{BASE}description: "\\uD800" {HERE}\n', "half a surrogate pair is no character"),
    ("not-characters", f"{BASE}description: \ufffe {HERE}\n", "character 0xfffe is not allowed"),
    # bytes
    ("nul", f"{BASE}description: a\0b {HERE}\n", "character 0x00 is not allowed"),
    ("binary", bytes(range(256)) * 200, "is not UTF-8 text"),
    ("random", b"\x7fELF\x02\x01\x01" + bytes(4000), "character 0x7f is not allowed"),
    ("utf-16", BASE.encode("utf-16"), "is not UTF-8 text"),
    ("utf-16-plain", BASE.encode("utf-16-le"), "character 0x00 is not allowed"),
    ("utf-32", BASE.encode("utf-32"), "is not UTF-8 text"),
    ("latin-1", f"{BASE}description: caf\xe9 {HERE}\n".encode("latin-1"), "byte 0xe9 is not UTF-8 text"),
    ("overlong", f"{BASE}description: ".encode() + b"\xc0\xaf " + HERE.encode(), "byte 0xc0 is not UTF-8 text"),
    ("empty", "", "the file is empty"),
    ("mark-only", b"\xef\xbb\xbf", "the file is empty"),
    ("blank", "\n" * 1000, "the file is empty"),
    ("list", f"- {BASE.splitlines()[0]} {HERE}\n", "expected a mapping of scenario keys"),
    ("word", f"quickstart {HERE}\n", "expected a mapping of scenario keys"),
    # size
    ("ten-megabytes", "# filler\n" * 1_200_000, "the file is larger than 512KiB"),
    ("one-long-line", "a" * 10_000_000, "the file is larger than 512KiB"),
    ("many-keys", BASE + lines("k{}:"), "these are the first 50 problems"),
    ("many-twice", BASE + lines("seed: 1{}"), "these are the first 50 problems"),
    ("many-hosts", BASE.replace("stream, from: h0, to: h2", f"permutation, hosts: [{many('h0,')}h1]"), "h0 is listed twice"),
    ("many-evs", f"{BASE}transport: {{ev_list: [{many('p0t1-{},')}x]}}\n", "these are the first 50 problems"),
    ("many-denied", f"{BASE}transport: {{denylist: [{many('a:b{},')}x:y]}}\n", "these are the first 50 problems"),
    ("many-expectations", f"{BASE}expect:\n{lines('- x{} >= 1')}", "these are the first 50 problems"),
    ("more-values", f"{BASE}x: [{'a,' * 60_000}]\n", "more than 50000 values"),
    ("more-nothings", BASE + "x: {}\n" * 60_000, "more than 50000 values"),
    ("long-text", f"{BASE}seed: {'9' * 500_000} {HERE}\n", "longer than 32 characters"),
    ("long-blank", BASE + "\n" * 500_000 + f"x: 1 {HERE}\n", "unknown key"),
    (
        "many-pauses",
        f"{BASE}faults:\n{lines('- {{at: 3s, host: h0, action: pause, period: 10ms, duty: 0.5}}')}",
        "2000 events",
    ),
    ("many-kills", f"{BASE}faults:\n{lines('- {{at: 3s, host: h0, action: kill}}')}", "these are the first 50 problems"),
    ("many-wrong-links", BIG + "faults:\n" + lines("- {{at: 3s, link: 'p0t0-0:p0t1-9{}', action: down}}"), "first 50 problems"),
    (
        "many-big-draws",
        f"{BIG}faults:\n{lines('- {{at: 3s, link: {{tier: t0-t1, count: 1{}}}, action: down}}')}",
        "links to hit",
    ),
    (
        "many-flows",
        BIG.replace("stream, from: h0, to: h2", "all_to_all"),
        "261632 flows; at most 65536 fit on one machine",
    ),
    ("many-links", BIG.replace("t1_per_plane: 8", "t1_per_plane: 64"), "147456 links; at most 131072 fit on one machine"),
    ("many-hosts-wanted", BASE.replace("hosts_per_t0: 2", "hosts_per_t0: 99999999999"), "is outside 1 to 4096"),
)
THROUGH_THE_COMMAND = (
    "fault-host-without-a-flow",
    "fault-name-shell",
    "bomb",
    "python-object",
    "ten-megabytes",
    "nul",
    "policy-pipe",
)


@pytest.fixture(scope="module")
def unit() -> float:
    return machine.speed()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the scenarios lie, with what a policy's path could lead to beside them."""
    folder = tmp_path_factory.mktemp("hostile") / "scenarios"
    folder.mkdir()
    (folder.parent / "own.py").write_text("class Own:\n    def next(self, now): pass\n")
    (folder / "out.py").symlink_to(folder.parent / "own.py")
    (folder / "outside").symlink_to(folder.parent)
    (folder / "loop.py").symlink_to(folder / "loop.py")
    (folder / "zero.py").symlink_to("/dev/zero")
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    return folder


def written(folder: Path, name: str, content: str | bytes) -> tuple[Path, int | None]:
    """The file, and the line with HERE in it."""
    file = folder / f"{name}.yaml"
    raw = content if isinstance(content, bytes) else content.encode()
    file.write_bytes(raw)
    lines = [number for number, line in enumerate(raw.split(b"\n"), 1) if HERE.encode() in line]
    return file, lines[0] if lines else None


@pytest.fixture(autouse=True)
def nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No results folder, nor anything in the current folder."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "content", "says"), CASES, ids=[case[0] for case in CASES])
def test_is_refused_with_its_line_at_once(
    name: str, content: str | bytes, says: str, folder: Path, unit: float, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, line = written(folder, name, content)
    began = time.process_time()
    status = cli.main([str(file), "--validate"])
    cost = time.process_time() - began
    said = capsys.readouterr()
    assert status == ExitStatus.BAD_INPUT
    assert said.out == ""
    mine = [text for text in said.err.splitlines() if says in text]
    assert mine, said.err
    place = mine[0].removeprefix(f"{file}:").partition(":")[0]
    if "first 50" not in says:
        assert place.isdecimal()
        assert line is None or int(place) == line, said.err
    assert all(text.startswith(f"{file}:") or "first 50" in text for text in said.err.splitlines())
    assert said.err.replace("\n", "").isprintable()
    assert cost < COST * unit, f"{cost:.2f} s, {cost / unit:.0f} units"


def test_there_are_enough_and_each_is_one() -> None:
    assert len({name for name, _, _ in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("name", THROUGH_THE_COMMAND)
def test_the_command_itself_refuses(name: str, folder: Path, tmp_path: Path) -> None:
    (content, says) = next((content, says) for other, content, says in CASES if other == name)
    file, line = written(folder, name, content)
    command = [sys.executable, str(ROOT / "run_experiment.py"), str(file), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert line is None or done.stderr.startswith(f"{file}:{line}:")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "nothing", "loop", "long"])
def test_what_is_no_file_is_refused_and_not_waited_for(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("kinds") / "x.yaml"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "loop":
        file.symlink_to(file)
    elif kind == "long":
        file = file.with_name("x" * 300 + ".yaml")
    with pytest.raises(ScenarioError) as caught:
        load.load(file)
    assert str(caught.value).startswith(f"{file}: cannot be read: ")


def test_the_most_faults_load_and_what_is_dumped_of_them_too() -> None:
    """A results folder's scenario is longer than what was written, and is a scenario."""
    link = "{tier: t0-t1, plane: 1, switch: p1t1-0, count: 1}"
    entries = "".join(f"- {{at: 3s, link: {link}, action: loss, ratio: 0.5, for: {1 + number}ms}}\n" for number in range(1999))
    scenario = load.load_text(f"{BASE}faults:\n{entries}", "most")
    assert load.load_text(load.dump(scenario), "dumped") == scenario
