"""Selectors become links, seeded where they draw; directions are those of the named ends; what is dead when."""

from __future__ import annotations

from testbed.model import faults, load
from testbed.model.scenario import Scenario
from testbed.model.topology import Tier, build

TEXT = """
name: faults
topology: {planes: 2, t0_groups: 2, t1_per_plane: 3, hosts_per_t0: 2}
links: {rate: 5mbit, delay: 20ms}
workload:
  - {kind: permutation, message: 64KiB}
"""


def scenario(*entries: str, seed: int = 1) -> Scenario:
    return load.load_text(TEXT, "faults", [f"faults=[{', '.join(entries)}]"], seed)


def resolve(*entries: str, seed: int = 1) -> tuple[faults.PlannedFault, ...]:
    loaded = scenario(*entries, seed=seed)
    return faults.resolve(loaded, build(loaded.topology))


def test_one_link_named_from_either_end() -> None:
    one, other = resolve(
        "{at: 4s, link: 'p0t1-2:p0t0-1', action: down, for: 1s}", "{at: 7s, link: 'p0t0-1:p0t1-2', action: down}"
    )
    assert [link.name for link in one.links] == [link.name for link in other.links] == ["p0t0-1:p0t1-2"]
    assert (one.index, one.at_ns, one.until_ns, one.direction) == (0, 4 * 10**9, 5 * 10**9, "both")
    assert (other.index, other.until_ns) == (1, None)


def test_forward_is_from_the_first_named_end() -> None:
    up, down, by_tier = resolve(
        "{at: 4s, link: 'p0t0-1:p0t1-2', action: blackhole, direction: forward, for: 1s}",
        "{at: 4s, link: 'p0t1-2:p0t0-1', action: blackhole, direction: forward, for: 1s}",
        "{at: 8s, link: {tier: nic-t0, plane: 0}, action: blackhole, direction: backward}",
    )
    assert (up.direction, down.direction, by_tier.direction) == ("up", "down", "down")


def test_selectors() -> None:
    by_plane, by_switch, both = resolve(
        "{at: 4s, link: {tier: t0-t1, plane: 1}, action: down, for: 1s}",
        "{at: 6s, link: {switch: p0t0-0}, action: down, for: 1s}",
        "{at: 8s, link: {switch: p0t0-0, tier: nic-t0}, action: down, for: 1s}",
    )
    assert len(by_plane.links) == 6
    assert {link.plane for link in by_plane.links} == {1}
    assert [link.name for link in by_switch.links] == [
        "h0:p0t0-0",
        "h1:p0t0-0",
        "p0t0-0:p0t1-0",
        "p0t0-0:p0t1-1",
        "p0t0-0:p0t1-2",
    ]
    assert [link.name for link in both.links] == ["h0:p0t0-0", "h1:p0t0-0"]


def test_a_count_draws_by_seed_and_per_fault() -> None:
    entry = "{at: %ss, link: {tier: t0-t1, count: 3}, action: down, for: 1s}"
    drawn = [resolve(entry % 4, entry % 6, seed=seed) for seed in (1, 1, 2)]
    names = [[[link.name for link in fault.links] for fault in pair] for pair in drawn]
    assert names[0] == names[1]
    assert names[0] != names[2]
    assert names[0][0] != names[0][1]
    assert all(len(set(links)) == 3 for pair in names for links in pair)
    assert all(link.tier is Tier.T0_T1 for link in drawn[0][0].links)


def test_dead_links_at_a_moment() -> None:
    planned = resolve(
        "{at: 4s, link: 'p0t0-0:p0t1-0', action: down, for: 4s}",
        "{at: 6s, link: 'p0t0-0:p0t1-1', action: blackhole, direction: forward}",
        "{at: 8s, link: 'p0t0-0:p0t1-1', action: blackhole, direction: backward}",
    )
    second = 10**9
    assert faults.dead_links(planned, 4 * second - 1) == frozenset()
    assert faults.dead_links(planned, 4 * second) == {"p0t0-0:p0t1-0"}
    assert faults.dead_links(planned, 6 * second) == {"p0t0-0:p0t1-0", "p0t0-0>p0t1-1"}
    assert faults.dead_links(planned, 8 * second) == {"p0t0-0>p0t1-1", "p0t1-1>p0t0-0"}


def test_what_composes_is_allowed() -> None:
    link = "link: 'h0:p0t0-0'"
    one_after_the_other = (f"{{at: 4s, {link}, action: down, for: 2s}}", f"{{at: 6s, {link}, action: down, for: 2s}}")
    two_actions = (f"{{at: 10s, {link}, action: down, for: 2s}}", f"{{at: 10s, {link}, action: blackhole, for: 2s}}")
    assert faults.overlaps(resolve(*one_after_the_other, *two_actions)) == []


def test_more_that_composes() -> None:
    """A lossy link may be down, slow or rebooting; different directions are different settings."""
    link = "link: 'p0t0-0:p0t1-0'"
    lossy = (f"{{at: 4s, {link}, action: loss, ratio: 0.1}}", f"{{at: 4s, {link}, action: corrupt, ratio: 0.1}}")
    slow = (f"{{at: 4s, {link}, action: rate, to: 1mbit, for: 2s}}", f"{{at: 4s, {link}, action: down, for: 2s}}")
    two_ways = tuple(
        f"{{at: 9s, {link}, action: rate, to: {to}, direction: {way}}}"
        for to, way in (("1mbit", "forward"), ("2mbit", "backward"))
    )
    reboot = "{at: 6s, switch: p0t1-0, action: reboot, for: 3s}"
    assert faults.overlaps(resolve(*lossy, *slow, *two_ways, reboot)) == []


def test_a_reboot_hits_every_link_of_its_switch() -> None:
    (reboot,) = resolve("{at: 6s, switch: p1t0-1, action: reboot, for: 3s}")
    assert reboot.places == ("p1t0-1",)
    assert reboot.doing == "reboot"
    assert [link.name for link in reboot.links] == [
        "h2:p1t0-1",
        "h3:p1t0-1",
        "p1t0-1:p1t1-0",
        "p1t0-1:p1t1-1",
        "p1t0-1:p1t1-2",
    ]
    assert faults.dead_links([reboot], 7 * 10**9) == {link.name for link in reboot.links}


def test_what_is_left_of_a_link() -> None:
    loaded = scenario(
        "{at: 4s, link: 'p0t0-0:p0t1-0', action: loss, ratio: 0.2, for: 4s}",
        "{at: 6s, link: 'p0t1-0:p0t0-0', action: rate, to: 1mbit, direction: forward}",
        "{at: 6s, link: 'h0:p0t0-0', action: corrupt, ratio: 1, direction: forward, for: 1s}",
        "{at: 4s, link: 'h1:p0t0-0', action: down}",
    )
    planned = faults.resolve(loaded, build(loaded.topology))
    left = [faults.shares(planned, loaded.links, second * 10**9) for second in (3, 4, 6, 8)]
    assert left == [
        {},
        {"p0t0-0>p0t1-0": 0.8, "p0t1-0>p0t0-0": 0.8},
        {"p0t0-0>p0t1-0": 0.8, "p0t1-0>p0t0-0": 0.8 * 0.2, "h0>p0t0-0": 0.0},
        {"p0t1-0>p0t0-0": 0.2},
    ]
    assert faults.dead_links(planned, 6 * 10**9) == {"h1:p0t0-0"}
    assert [fault.doing for fault in planned] == ["loss 20%", "rate 1mbit", "corrupt 100%", "down"]


def test_the_line_of_a_fault_is_kept_and_does_not_make_two_differ() -> None:
    text = f"{TEXT}faults:\n  - {{at: 4s, link: 'h0:p0t0-0', action: down}}\n"
    (fault,) = load.load_text(text, "faults").faults
    (same,) = load.load_text(f"# one line more\n{text}", "faults").faults
    assert (fault.line, same.line) == (8, 9)
    assert fault == same
