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


def test_faults_on_one_object_compose() -> None:
    """Any two may hold at one time: what is left multiplies, and what is dead is dead until the last ends."""
    link = "link: 'p0t0-0:p0t1-0'"
    loaded = scenario(
        f"{{at: 4s, {link}, action: down, for: 4s}}",
        f"{{at: 5s, {link}, action: down, for: 1s}}",
        f"{{at: 5s, {link}, action: loss, ratio: 0.5}}",
        f"{{at: 6s, {link}, action: loss, ratio: 0.5, direction: forward, for: 3s}}",
        "{at: 7s, switch: p0t1-0, action: reboot, for: 3s}",
    )
    planned = faults.resolve(loaded, build(loaded.topology))
    second = 10**9
    assert [("p0t0-0:p0t1-0" in faults.dead_links(planned, at * second)) for at in (4, 6, 8, 9, 10)] == [True] * 4 + [False]
    assert faults.shares(planned, loaded.links, 8 * second) == {"p0t0-0>p0t1-0": 0.25, "p0t1-0>p0t0-0": 0.5}


def test_nothing_happens_to_a_killed_host_any_more() -> None:
    planned = resolve(
        "{at: 3s, host: h1, action: pause, for: 1s}", "{at: 5s, host: h1, action: kill}", "{at: 6s, host: h2, action: kill}"
    )
    assert faults.after_a_kill(planned) == []
    assert faults.dead_links(planned, 7 * 10**9) == {"h1:p0t0-0", "h1:p1t0-0", "h2:p0t0-1", "h2:p1t0-1"}


def test_a_plane_is_all_of_its_links() -> None:
    (plane,) = resolve("{at: 4s, plane: 1, action: down, for: 1s}")
    assert plane.places == ("plane 1",)
    assert len(plane.links) == 4 + 6
    assert {link.plane for link in plane.links} == {1}


def test_a_rhythm_makes_an_event_per_period_until_its_end() -> None:
    planned = resolve("{at: 4s, link: 'h0:p0t0-0', action: flap, period: 2s, duty: 0.25, until: 9s}")
    s = 10**9
    assert [(event.at_ns, event.until_ns) for event in planned] == [
        (4 * s, 4.5 * s),
        (6 * s, 6.5 * s),
        (8 * s, 8.5 * s),
    ]
    assert [(event.index, event.entry) for event in planned] == [(0, 0), (1, 0), (2, 0)]
    (cut,) = resolve("{at: 4s, link: 'h0:p0t0-0', action: loss, ratio: 0.1, period: 2s, duty: 0.9, until: 5s}")
    assert cut.until_ns == 5 * s


def test_a_poisson_process_draws_times_and_one_link_of_the_selection_each() -> None:
    """Seeded; its rate is that of the whole selection: over 20 seeds, 10 a minute in 16 s give about 2.7 events each."""
    entry = "{at: 2s, link: {tier: t0-t1}, action: flap, poisson_per_minute: 10, for: 500ms}"
    first, again, *others = [resolve(entry, seed=seed) for seed in (1, 1, *range(2, 21))]
    assert first == again
    every = [*first, *(event for planned in others for event in planned)]
    assert 35 <= len(every) <= 75  # 53 expected, 3 standard deviations
    assert all(len(event.links) == 1 and event.links[0].tier is Tier.T0_T1 for event in every)
    assert all(event.at_ns >= 2 * 10**9 and event.until_ns == event.at_ns + 5 * 10**8 <= 20 * 10**9 for event in every)
    assert len({event.links[0].name for event in every}) > 5


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


def test_of_several_rates_the_lowest_holds() -> None:
    """As the port does it (testbed.fabric.faults); what is lost comes on top."""
    link = "link: 'p0t0-0:p0t1-0', direction: forward"
    loaded = scenario(
        f"{{at: 4s, {link}, action: rate, to: 2mbit, for: 4s}}",
        f"{{at: 5s, {link}, action: rate, to: 1mbit, for: 2s}}",
        f"{{at: 6s, {link}, action: loss, ratio: 0.5, for: 3s}}",
    )
    planned = faults.resolve(loaded, build(loaded.topology))
    left = [faults.shares(planned, loaded.links, second * 10**9)["p0t0-0>p0t1-0"] for second in (4, 5, 6, 7, 8)]
    assert left == [0.4, 0.2, 0.1, 0.2, 0.5]


def test_the_line_of_a_fault_is_kept_and_does_not_make_two_differ() -> None:
    text = f"{TEXT}faults:\n  - {{at: 4s, link: 'h0:p0t0-0', action: down}}\n"
    (fault,) = load.load_text(text, "faults").faults
    (same,) = load.load_text(f"# one line more\n{text}", "faults").faults
    assert (fault.line, same.line) == (8, 9)
    assert fault == same
