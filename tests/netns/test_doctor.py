"""What is missing is named with the keys that need it, and nothing is created."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import RunError
from testbed.fabric import doctor, kernelprobe, limits, srv6
from testbed.model import transport
from testbed.model.scenario import (
    LinkSpec,
    MeasureSpec,
    RoutingSpec,
    Scenario,
    TopologySpec,
)
from testbed.model.topology import build
from tests.netns import kit

pytestmark = pytest.mark.netns

SCENARIO = Scenario(
    name="small",
    description="",
    source="",
    topology=TopologySpec(1, 1, 1, 2),
    links=LinkSpec(10**6, 10**6, (10**6,), 4500, 24),
    switch=kit.switch(),
    routing=RoutingSpec(),
    transport=transport.default(),
    workload=(),
    faults=(),
    measure=MeasureSpec(0, 10**9, 10**8, 10**9),
    expect=(),
    seed=1,
    scale=None,
)
NO_DELAY = replace(SCENARIO, links=replace(SCENARIO.links, delay_ns=(0,)))
NEEDED = ("mptcpize", "ip", "tc", "ip6tables-restore", "clang", "mnexec", "bash", "tcpdump")


@pytest.fixture
def hide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH that holds only the tools we need; remove one to hide it."""
    for tool in NEEDED:
        found = shutil.which(tool)
        if found is not None:
            (tmp_path / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_nothing_is_missing_here_and_nothing_is_left() -> None:
    before = Path("/proc/self/mountinfo").read_text()
    assert doctor.missing(SCENARIO) == []
    assert Path("/proc/self/mountinfo").read_text() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_hidden_tool_is_named_with_the_key_that_needs_it(hide: Path) -> None:
    assert doctor.missing(SCENARIO) == []
    (hide / "tc").unlink()
    (missing,) = doctor.missing(SCENARIO)
    assert str(missing).startswith("tc: needed by links.rate (every scenario); run ./setup.sh")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("tool", ["ip", "tc"])
def test_a_tool_that_was_killed_is_not_a_missing_feature(hide: Path, tool: str) -> None:
    (hide / tool).unlink()
    (hide / tool).write_text("#!/bin/bash\nkill -KILL $$\n")
    (hide / tool).chmod(0o755)
    with pytest.raises(RunError, match=f"trying what this kernel can do: {tool} was killed \\(SIGKILL\\)"):
        doctor.missing(SCENARIO)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(("number", "raised"), [(signal.SIGKILL, RunError), (signal.SIGINT, KeyboardInterrupt)])
def test_neither_is_a_sandbox_that_was_ended(
    number: signal.Signals, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernelprobe, "_try_everything", lambda **_: os.kill(os.getpid(), number))
    with pytest.raises(raised):
        doctor.missing(SCENARIO)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_a_scenario_does_not_need_is_not_reported(hide: Path) -> None:
    """H-03: the scenario without delay still runs without the delay line's tool, and no scenario needs mnexec."""
    (hide / "mnexec").unlink()
    (hide / "ip6tables-restore").unlink()
    assert doctor.missing(NO_DELAY) == []
    assert [item.what for item in doctor.missing(NO_DELAY, cli=True)] == ["mnexec"]
    lacking = {item.what: item.needed_by for item in doctor.missing(SCENARIO)}
    if not any("netem" in note for note in doctor.notes()):
        assert lacking == {"ip6tables-restore": "links.delay (this kernel has no netem)"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_everything_missing_is_listed_at_once(hide: Path) -> None:
    for tool in ("ip", "tc", "mnexec"):
        (hide / tool).unlink()
    assert [item.what for item in doctor.missing(None)] == ["ip", "tc", "mnexec"]


def test_what_is_too_large_for_the_machine_is_said_before_anything_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 hosts on 8,192 links, where the hard limit is 256 and 1 GiB is free. What fits is not reported."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, 256))
    monkeypatch.setattr(limits, "available_memory", lambda: 1 << 30)
    assert limits.missing(build(SCENARIO.topology)) == []
    descriptors, memory = limits.missing(build(TopologySpec(8, 32, 16, 16)))
    assert descriptors.what == "1984 file descriptors (the hard limit is 256)"
    assert descriptors.needed_by == "topology (512 hosts, 8192 links)"
    assert memory.what == "15925 MiB of memory (1024 MiB are available)"


def test_without_root_that_is_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert [item.what for item in doctor.missing(SCENARIO)] == ["root"]
    assert doctor.notes() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_kernel_feature_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a kernel that takes the route but drops the flavor: pitfall H-10 found before a run, not in its results."""
    monkeypatch.setattr(srv6, "read_routes", lambda _link: (set(), set()))
    (missing,) = doctor.missing(SCENARIO)
    assert missing.what == "seg6local End with the NEXT-C-SID flavor"
    assert missing.needed_by == "routing: srv6"
    assert "not its flavor" in missing.remedy
