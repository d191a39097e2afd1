"""Resolved quickstart, uSID plan, route tables and paths of a small fabric, as files (see `goldens.py`)."""

from __future__ import annotations

from testbed.model import load, paths, usid
from testbed.model.scenario import TopologySpec
from testbed.model.topology import build, host_name
from tests.support import goldens

GOLDEN = goldens.TESTS / "golden"
SMALL = build(TopologySpec(planes=2, t0_groups=2, t1_per_plane=2, hosts_per_t0=2))


def test_resolved_quickstart() -> None:
    scenario = load.load(goldens.TESTS.parent / "scenarios" / "quickstart.yaml")
    goldens.check(load.dump(scenario), GOLDEN / "quickstart.yaml")


def test_links_of_a_small_fabric() -> None:
    lines = [
        f"{link.name:<16}{link.tier:<8}plane {link.plane}  {link.lower.name} ({link.lower.ifindex}) - "
        f"{link.upper.name} ({link.upper.ifindex})\n"
        for link in SMALL.links
    ]
    goldens.check("".join(lines), GOLDEN / "small-links.txt")


def test_usid_plan_and_route_tables_of_a_small_fabric() -> None:
    lines: list[str] = []
    for host, table in usid.host_tables(SMALL).items():
        lines.append(f"{host} inner {table.inner}\n")
        lines += [f"  own {sid} on {port}\n" for port, sid in table.sids]
        lines += [f"  {route.prefix} via {route.port} ({route.neighbour})\n" for route in table.planes]
    for switch, switch_table in usid.switch_tables(SMALL).items():
        lines.append(f"{switch} uN {switch_table.own}\n")
        lines += [f"  {route.prefix} via {route.port} ({route.neighbour})\n" for route in switch_table.neighbours]
        lines.append(f"  {switch_table.blackhole} blackhole\n")
    goldens.check("".join(lines), GOLDEN / "small-tables.txt")


def test_paths_of_a_pair() -> None:
    lines: list[str] = []
    for source, target in ((0, 3), (0, 1)):
        lines.append(f"{host_name(source)} -> {host_name(target)}\n")
        for path in paths.paths(SMALL, source, target):
            hops, links = " ".join(path.hops), " ".join(path.links(source, target))
            lines.append(f"  EV {path.ev:#07x} {path.name} {path.address}  hops {hops}  links {links}\n")
    goldens.check("".join(lines), GOLDEN / "small-paths.txt")
