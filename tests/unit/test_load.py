"""Scenario files become what they say, overrides and seeds are put in, and what is dumped loads back equal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.model import load
from testbed.model.scenario import BfdSpec, FaultAction, LinkSelector, Routing, RoutingSpec, Scenario, WorkloadKind
from testbed.model.suite import is_suite

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted(file for file in (ROOT / "scenarios").rglob("*.yaml") if not is_suite(file))
BASE = """
name: base
topology: {planes: 2, t0_groups: 2, t1_per_plane: 3, hosts_per_t0: 2}
links: {rate: 5mbit, delay: 20ms}
workload:
  - {kind: permutation, message: 64KiB}
"""


def base(*overrides: str, seed: int | None = None) -> Scenario:
    return load.load_text(BASE, "base.yaml", overrides, seed)


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_every_scenario_of_the_project_loads(file: Path) -> None:
    scenario = load.load(file)
    assert scenario.name == file.stem
    assert scenario.description
    assert load.load_text(load.dump(scenario), "dumped") == scenario


def test_the_readme_names_every_scenario() -> None:
    """But those of the paper: its suite has each (tests/unit/test_paper.py), and docs/paper.md what came of it."""
    text = (ROOT / "README.md").read_text()
    named = [file for file in SCENARIOS if file.parent.name != "paper"]
    assert [file.stem for file in named if f"`{file.stem}`" not in text and f"run_experiment.py {file.stem}" not in text] == []


def test_defaults() -> None:
    scenario = base()
    assert scenario.links.fabric_rate_bps == scenario.links.rate_bps == 5_000_000
    assert scenario.links.delay_ns == (20_000_000, 20_000_000)
    assert (scenario.links.mtu, scenario.links.overhead_bytes) == (4500, 24)
    frame = 4096 + 142 + 24
    switch = scenario.switch
    thresholds = (switch.ecn_min_bytes, switch.ecn_max_bytes, switch.trim_bytes, switch.trim_last_hop_bytes)
    assert thresholds == tuple(frame * frames for frames in (2, 6, 8, 12))
    assert (switch.trimming, switch.ecn, switch.trim_size) == (True, True, 128)
    transport = scenario.transport
    assert (transport.payload, transport.evs, transport.policy, transport.sack_bytes) == (4096, 128, "mrc", 16384)
    assert (transport.window_frames, transport.qps, transport.active_evs, transport.cc) == (0, 1, 0, "nscc")
    assert scenario.measure.drain_ns == 10 * 10**9 + 20 * 40_000_000
    (workload,) = scenario.workload
    assert (workload.kind, workload.hosts, workload.cross_group) == (WorkloadKind.PERMUTATION, (0, 1, 2, 3), True)
    assert (workload.depth, workload.start_ns, workload.stop_ns, workload.job) == (2, 0, None, "permutation")
    assert (scenario.seed, scenario.scale, scenario.faults, scenario.warnings) == (1, None, (), ())


@pytest.mark.parametrize(
    ("override", "field", "value"),
    [
        ("policy=reps", "policy", "reps"),
        ("active_evs=4", "active_evs", 4),
        ("active_evs=all", "active_evs", 0),
        ("replacement=any", "replacement", "any"),
        ("probes=false", "probes", False),
        ("probes={interval: 50ms}", "probe_interval_ns", 50_000_000),
        ("probes={count: 5}", "probe_count", 5),
        ("timeout=auto", "timeout_n", None),
        ("timeout=1024ns", "timeout_n", 0),
        ("timeout=1025ns", "timeout_n", 1),
        ("timeout=268435456ns", "timeout_n", 18),
        ("timeout=200ms", "timeout_n", 18),
        ("timeout=17179869184ns", "timeout_n", 24),
        ("timeout_linear=0", "timeout_linear", 0),
        ("timeout_exponential=forever", "timeout_exponential", 25),
        ("timeout_exponential=2", "timeout_exponential", 2),
        ("mpr=16", "mpr_dest", 16),
        ("mpr_dest=4", "mpr", 8),
        ("dynamic_mpr=true", "dynamic_mpr", True),
        ("max_wimm=2", "max_wimm_dest", 2),
    ],
)
def test_transport_keys_are_read_and_written_out(override: str, field: str, value: object) -> None:
    scenario = base(f"transport.{override}")
    assert getattr(scenario.transport, field) == value
    assert load.load_text(load.dump(scenario), "dumped") == scenario


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("{evs: 4, ev_list: [p0t1-0, p1t1-0]}", ["evs is unused: ev_list says which EVs there are"]),
        ("{policy: oblivious, probes: {count: 5}}", ["probes is unused: this policy takes no path out of use"]),
        ("{replacement: any}", ["replacement is unused: active_evs leaves no backup"]),
        (
            "{policy: single_path, active_evs: 4, reshuffle: false}",
            [
                "active_evs is unused: policy single_path has no rotation",
                "reshuffle is unused: policy single_path has no rotation",
            ],
        ),
        ("{replacement: any, active_evs: 4}", []),
    ],
)
def test_a_key_that_changes_nothing_is_reported_and_not_refused(section: str, says: list[str]) -> None:
    scenario = base(f"transport={section}")
    assert list(scenario.warnings) == [f"--set: transport.{warning}" for warning in says]
    assert load.load_text(load.dump(scenario), "dumped") == scenario


def test_a_resolved_scenario_reports_nothing_of_its_own() -> None:
    assert load.load_text(load.dump(base("transport.policy=single_path")), "dumped").warnings == ()


def test_integrity_is_always_expected() -> None:
    assert [line.text for line in base().expect] == ["messages_corrupt == 0", "messages_incomplete == 0"]
    replaced = base("expect=[messages_incomplete <= 3, goodput_ratio >= 0.5]").expect
    assert [line.text for line in replaced] == ["messages_incomplete <= 3", "goodput_ratio >= 0.5", "messages_corrupt == 0"]
    loosened = base("expect=[messages_corrupt <= 9]").expect
    assert "messages_corrupt == 0" in [line.text for line in loosened], "a corrupt message can never be expected"


def test_thresholds_count_frames_of_this_payload() -> None:
    switch = base("transport.payload=1024B", "links.overhead=0B", "switch.ecn_min=1.5", "switch.trim=10KiB").switch
    assert switch.ecn_min_bytes == 1.5 * (1024 + 142)
    assert switch.trim_bytes == 10240


def test_overrides_reach_into_lists_and_make_sections() -> None:
    scenario = base("workload.0.depth=4", "transport.window=40", "faults=[{at: 3s, link: 'h0:p0t0-0', action: down}]")
    assert scenario.workload[0].depth == 4
    assert scenario.transport.window_frames == 40
    assert scenario.faults[0].link == LinkSelector(ends=("h0", "p0t0-0"))
    assert scenario.faults[0].action is FaultAction.DOWN
    assert base("transport.window=16KiB").transport.window_frames == 4
    assert base("routing={kind: srv6}").routing == RoutingSpec()
    assert base("seed=5").seed == 5


def test_later_overrides_win_and_the_seed_argument_wins_over_all() -> None:
    assert base("seed=5", "seed=6").seed == 6
    assert base("seed=5", seed=7).seed == 7
    with pytest.raises(ScenarioError, match="--seed: seed: expected a whole number"):
        base(seed=-1)


def test_one_delay_per_plane() -> None:
    assert base("links.delay=[20ms, 200ms]").links.delay_ns == (20_000_000, 200_000_000)


def test_jobs_get_distinct_names() -> None:
    message = "message: 1KiB"
    stream = f"{{kind: stream, from: h0, to: h2, {message}}}"
    named = f"{{kind: stream, from: h1, to: h2, {message}, job: stream-2}}"
    jobs = [spec.job for spec in base(f"workload=[{stream}, {named}, {stream}, {named}]").workload]
    assert jobs == ["stream", "stream-2", "stream-3", "stream-2"]


def test_hosts_by_name_and_range() -> None:
    assert base("workload.0.hosts=[h3, h1]").workload[0].hosts == (1, 3)
    assert base("workload.0.hosts=h0-h3").workload[0].hosts == (0, 1, 2, 3)


def test_warnings_name_the_place() -> None:
    fault = "faults=[{at: 1s, link: 'h0:p0t0-0', action: down}]"
    first, second = base("switch={ecn: false, ecn_min: 1}", fault).warnings
    assert first == "--set: switch.ecn_min is unused: switch.ecn is false"
    assert second.startswith("--set: faults.0.at: nothing is measured before this fault")


def test_a_rhythm_that_draws_nothing_is_said() -> None:
    rare = "faults=[{at: 4s, link: {tier: t0-t1}, action: flap, poisson_per_minute: 0.001, for: 1s}]"
    assert base(rare).warnings == ("--set: faults.0.poisson_per_minute: draws no event in this time with this seed",)


def test_find_by_name_path_and_last_part(tmp_path: Path) -> None:
    for name in ("one", "paper/two", "paper/same", "other/same"):
        file = tmp_path / "scenarios" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"name: {file.stem}\ndescription: This is {name}.\n")
    (tmp_path / "scenarios" / "broken.yaml").write_text("a: [")
    assert load.find("one", tmp_path) == tmp_path / "scenarios/one.yaml"
    assert load.find("paper/two", tmp_path) == load.find("two", tmp_path) == tmp_path / "scenarios/paper/two.yaml"
    assert load.find("somewhere/else.yaml", tmp_path) == Path("somewhere/else.yaml")
    with pytest.raises(ScenarioError, match="did you mean one"):
        load.find("onee", tmp_path)
    with pytest.raises(ScenarioError, match=r"several scenarios.*other/same, paper/same"):
        load.find("same", tmp_path)
    listed = dict(load.available(tmp_path))
    assert list(listed) == ["broken", "one", "other/same", "paper/same", "paper/two"]
    assert listed["one"] == "This is one."
    assert "cannot be read" in listed["broken"]


def test_loading_imports_no_numeric_library() -> None:
    code = (
        "import sys; from pathlib import Path; from testbed.model import load, plan, flows, faults\n"
        f"load.load(Path({str(SCENARIOS[0])!r}))\n"
        "print([name for name in ('numpy', 'scipy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def rates(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(lambda value: f"{value}kbit")


def times(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(lambda value: f"{value}ms")


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Scenarios that are right, with about everything that can be written."""
    planes, per_t0 = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    message = draw(st.integers(1, 2**20).map(lambda value: f"{value}B"))
    payload = draw(st.integers(256, 4096))
    direction = draw(st.sampled_from(["both", "forward", "backward"]))
    optional: dict[str, Any] = {
        "description": draw(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co", "Zl", "Zp")))),
        "switch": {"ecn": draw(st.booleans()), "ecn_min": 0.25, "ecn_max": draw(st.integers(1, 9))},
        "transport": {
            "payload": f"{payload}B",
            "policy": draw(st.sampled_from(["mrc", "oblivious", "single_path"])),
            "window": draw(st.sampled_from(["auto", 12, f"{3 * payload}B"])),
        },
        "faults": [
            {"at": draw(times(2000, 2999)), "link": f"p0t0-0:p0t1-{draw(st.integers(0, 1))}", "action": "down", "for": "1s"},
            {"at": draw(times(5000, 9000)), "link": {"tier": "nic-t0", "plane": planes - 1, "count": 1}, "action": "down"},
            {
                "at": "4s",
                "link": "p0t1-0:p0t0-1",
                "action": "blackhole",
                "direction": direction,
            },
            {
                "at": "4s",
                "link": "p0t0-0:p0t1-0",
                "action": draw(st.sampled_from(["loss", "corrupt"])),
                "ratio": draw(st.sampled_from([0.0001, 0.025, 1, 0.333])),
            },
            {"at": "5s", "link": {"tier": "t0-t1"}, "action": "rate", "to": "1kbit", "direction": direction, "for": "1s"},
            {"at": "7s", "switch": "p0t1-1", "action": "reboot", "for": "3s"},
        ],
        "measure": {"warmup": draw(times(0, 3000)), "duration": "20s", "drain": draw(times(0, 9999))},
        "expect": ["goodput_ratio >= 0.5", draw(st.sampled_from(["messages_incomplete < 5", "jain_index > 0.123456"]))],
        "seed": draw(st.integers(0, 2**32 - 1)),
        "scale": {"link": draw(rates(1, 10**9)), "rtt": "8us"},
    }
    chosen = draw(st.sets(st.sampled_from(sorted(optional))))
    incast: dict[str, Any] = {"kind": "incast", "receiver": "h0", "message": message}
    if draw(st.booleans()) and per_t0 > 1:
        incast |= {"senders": ["h1"], "bystander": ["h2", "h1"]}
    streams = {"kind": "stream", "from": "h0", "to": f"h{per_t0}", "message": message, "start": draw(times(0, 5000))}
    return {
        "name": draw(st.from_regex(r"[a-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)),
        "topology": {"planes": planes, "t0_groups": 2, "t1_per_plane": 2, "hosts_per_t0": per_t0},
        "links": {"rate": draw(rates(1, 10**6)), "fabric_rate": draw(rates(2, 10**6)), "delay": [draw(times(1, 999))] * planes},
        "workload": [
            {"kind": "permutation", "message": message},
            streams | ({"stop": "6s"} if draw(st.booleans()) else {}),
            incast,
        ],
        **{key: optional[key] for key in sorted(chosen)},
    }


@settings(max_examples=60)
@given(documents())
def test_a_dump_loads_back_equal(document: dict[str, Any]) -> None:
    scenario = load.load_text(yaml.safe_dump(document, allow_unicode=True), "drawn")
    dumped = load.dump(scenario)
    again = load.load_text(dumped, "dumped")
    assert again == scenario
    assert load.dump(again) == dumped


PATHS = ["name", "topology", "topology.planes", "links", "links.rate", "links.delay", "links.mtu", "switch.trim", "routing"]
PATHS += ["transport.window", "workload", "workload.0", "workload.0.hosts", "faults", "measure.duration", "expect", "seed"]
PATHS += ["scale", "zzz"]
ODDITIES = st.from_regex(r"[\[{]?[a-z0-9.:, -]{0,12}[\]}]?", fullmatch=True)


@settings(max_examples=200)
@given(st.sampled_from(PATHS), st.one_of(st.text(max_size=30), ODDITIES))
def test_any_value_is_read_or_refused(path: str, value: str) -> None:
    """Nothing but a ScenarioError comes out of bad input, and it always says where."""
    problems = []
    try:
        base(f"{path}={value}")
    except ScenarioError as error:
        problems = error.problems
    assert all(problem.file == "--set" or problem.line for problem in problems)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("links.rate=yes", "links.rate: expected a rate such as 5mbit, found the boolean 'yes'"),
        ("links.rate=1e3", "links.rate: expected a rate such as 5mbit, found '1e3': no exponents; write the digits out"),
        ("links.rate='100'", "links.rate: expected a rate such as 5mbit, found '100': it has no unit"),
        ("links.rate=100MB", "links.rate: expected a rate such as 5mbit, found '100MB': units are"),
        ("links.rate=100Mb", "links.rate: expected a rate such as 5mbit, found '100Mb': units are"),
        ("links.rate=-5mbit", "links.rate: expected a rate such as 5mbit, found '-5mbit': no sign is allowed"),
        ("topology.planes=true", "topology.planes: expected a whole number such as 4, found the boolean 'true'"),
        ("measure.duration=010", "measure.duration: expected a time such as 20ms, found '010': no leading zeros"),
        ("switch.ecn=off", "switch.ecn: expected true or false, found the boolean 'off'"),
        ("faults=[{at: 3s, plane: 0, action: loss, ratio: off}]", "faults.0.ratio: expected a number such as 0.01, found the"),
        ("links.delays=1ms", "links.delays: unknown key (did you mean delay?)"),
    ],
)
def test_h25_a_value_of_another_type_is_refused_with_its_key_and_what_is_expected(override: str, says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        base(override)
    assert str(caught.value).startswith(f"--set: {says}")


def test_routing_is_a_word_or_a_mapping_and_its_seed_follows_the_scenario() -> None:
    s = 10**9
    kinds = base("transport.kind=rc", "routing=ecmp", seed=5).routing, base("transport.kind=rc", "routing=ecmp", seed=6).routing
    assert [found.kind for found in kinds] == [Routing.ECMP, Routing.ECMP]
    assert kinds[0].hash_seed != kinds[1].hash_seed
    assert min(kinds[0].hash_seed, kinds[1].hash_seed) > 0
    given = "routing={kind: bgp, keepalive: 1s, hold: 3s, bfd: true, hash_policy: 0, hash_seed: 424242}"
    scenario = base("transport.kind=rc", given)
    assert scenario.routing == RoutingSpec(Routing.BGP, 0, 424242, s, 3 * s, BfdSpec(300 * 10**6, 3))
    assert load.load_text(load.dump(scenario), "dumped") == scenario
    assert scenario.warnings == ()
    unused = (
        base("transport.kind=rc", "routing={kind: ecmp, hold: 9s}").warnings + base("routing={kind: srv6, bfd: true}").warnings
    )
    assert ["routing.hold" in unused[0], "routing.bfd" in unused[1]] == [True, True]
