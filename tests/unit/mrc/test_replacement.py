"""What steps in for a retired or denied EV: a backup of its plane, or of any; and what the planes then carry."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from testbed.transport.common.config import PortConfig
from testbed.transport.common.ports import PortClock
from testbed.transport.mrc.ev import EvState
from testbed.transport.mrc.paths import Path, PathSet
from testbed.transport.mrc.planes import PlaneCause

PLANES, UPLINKS = 4, 6
RTT_NS = 1000


def path_set(*, policy: str = "mrc", active_evs: int = 0, replacement: str = "same_plane", seed: int = 1) -> PathSet:
    ports = [PortClock(PortConfig(plane, 10**9), 4000, 24) for plane in range(PLANES)]
    return PathSet(
        [Path(plane << 16 | up, plane, f"{plane}:{up}", ports[plane]) for plane in range(PLANES) for up in range(UPLINKS)],
        policy=policy,
        active_evs=active_evs,
        replacement=replacement,
        reshuffle=True,
        rtt_base_ns=RTT_NS,
        probe_interval_ns=1000,
        rng=random.Random(seed),
        on_state=lambda *_: None,
        on_plane=lambda *_: None,
    )


def used(paths: PathSet, packets: int) -> tuple[Counter[int], Counter[int]]:
    """Packets by EV and by plane, the ports always having room."""
    chosen = [path for now in range(packets) if (path := paths.next(now)) is not None]
    assert len(chosen) == packets
    return Counter(path.ev for path in chosen), Counter(path.plane for path in chosen)


def test_a_backup_of_the_same_plane_takes_over_and_planes_stay_equal() -> None:
    paths = path_set(active_evs=8)
    before, _ = used(paths, 80)
    assert set(before.values()) == {10}
    lost = next(iter(before))
    paths.lost(paths.by_ev[lost], 0)
    after, planes = used(paths, 80)
    (new,) = set(after) - set(before)
    assert lost not in after
    assert new >> 16 == lost >> 16
    assert set(planes.values()) == {20}


def test_without_a_backup_the_plane_keeps_its_share() -> None:
    paths = path_set()
    paths.lost(paths.all[0], 0)
    used_by_ev, planes = used(paths, 400)
    assert set(planes.values()) == {100}
    assert {ev for ev in used_by_ev if ev >> 16 == 0} == {1, 2, 3, 4, 5}


def test_with_any_replacement_every_active_ev_has_the_same_share() -> None:
    seen = set[tuple[int, ...]]()
    for seed in range(20):
        paths = path_set(active_evs=8, replacement="any", seed=seed)
        for path in [plane.active[0] for plane in paths.planes[:2]]:
            paths.lost(path, 0)
        by_ev, planes = used(paths, 160)
        assert set(by_ev.values()) == {20}, "still eight active EVs"
        seen.add(tuple(planes[plane] for plane in range(PLANES)))
    assert any(len(set(shares)) > 1 for shares in seen), "planes are no longer equal, which is the point"


def test_with_any_replacement_and_no_backup_a_plane_loses_its_share() -> None:
    paths = path_set(replacement="any")
    for path in paths.all[:3]:
        paths.lost(path, 0)
    _, planes = used(paths, 21 * 10)
    assert planes == {0: 30, 1: 60, 2: 60, 3: 60}
    paths.restore(paths.all[0], 1)
    _, planes = used(paths, 22 * 10)
    assert planes == {0: 40, 1: 60, 2: 60, 3: 60}


def test_with_any_replacement_a_restored_ev_waits_as_a_backup_while_the_active_set_is_whole() -> None:
    paths = path_set(active_evs=8, replacement="any")
    path = paths.planes[0].active[0]
    paths.lost(path, 0)
    paths.restore(path, 1)
    assert path.state is EvState.GOOD
    assert path in paths.planes[0].backup
    assert sum(len(plane.active) for plane in paths.planes) == 8


def test_the_floor_counts_only_what_the_operator_allows() -> None:
    """24 paths, 20 of them denied: of the four left all but one may be retired (a quarter)."""
    paths = path_set()
    for path in paths.all[:20]:
        paths.deny(path, 0)
    for path in paths.all[20:]:
        paths.lost(path, 0)
    assert [path.state for path in paths.all[20:]] == [EvState.ASSUMED_BAD] * 3 + [EvState.GOOD]
    for path in paths.all[:20]:
        paths.allow(path, 1)
    assert paths.min_active == 6


@pytest.mark.parametrize("policy", ["mrc", "oblivious", "reps", "single_path"])
def test_no_policy_sends_on_a_denied_path(policy: str) -> None:
    for seed in range(10):
        paths = path_set(policy=policy, seed=seed)
        used(paths, 5)
        denied = [path for path in paths.all if path.ev % 3]
        for path in denied:
            paths.acknowledged(path, marked=False)
            paths.deny(path, 0)
        by_ev, _ = used(paths, 50)
        assert not by_ev.keys() & {path.ev for path in denied}


def test_an_unknown_replacement_is_refused() -> None:
    with pytest.raises(ValueError, match="replacement must be one of same_plane, any"):
        path_set(replacement="both")


@pytest.mark.parametrize("replacement", ["same_plane", "any"])
def test_the_last_usable_path_is_not_denied_though_no_port_is_up(replacement: str) -> None:
    paths = path_set(replacement=replacement, active_evs=8)
    for plane in range(PLANES):
        paths.port_event(plane, PlaneCause.PORT_DOWN, 0)
    *others, last = paths.all
    for path in others:
        paths.deny(path, 0)
    with pytest.raises(ValueError, match="last usable path"):
        paths.deny(last, 0)
    paths.port_event(last.plane, PlaneCause.PORT_UP, 1)
    paths.port_event(last.plane, PlaneCause.PROBE_ANSWERED, 2)
    assert paths.next(3) is last


def test_planes_that_leave_use_do_not_take_the_floor_with_them() -> None:
    """A quarter of 24 may be left of them, a whole plane's paths among those retired; of six in use, one must be usable."""
    paths = path_set()
    for path in paths.all[:6]:
        paths.lost(path, 0)
    assert not paths.planes[0].active
    for plane in (1, 2, 3):
        paths.port_event(plane, PlaneCause.PORT_DOWN, 1)
    assert paths.usable == paths.min_active == 1
    assert paths.next(2) is paths.all[0], "the first that was left"
    assert len(paths.bad) == 5
