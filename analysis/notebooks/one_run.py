# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A tour of one run
#
# What is in a results folder, and how to ask it questions that the report does not answer. `RUN` in the environment names the
# folder; without it the newest quickstart is taken. Every column with its unit: `docs/results-format.md`.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import analysis
from analysis.judge import summary_of
from analysis.metrics.goodput import binned
from analysis.view import view

RUN = Path(os.environ.get("RUN", "results/quickstart/latest"))
run = analysis.load(RUN)
print(run.path.resolve().name, "-", run.scenario.name, "-", run.manifest.get("status"))
print("left out or unreadable:", sorted(run.missing) or "nothing")

# %% [markdown]
# ## The verdict first
#
# `view` joins the tables with the scenario: flows, faults as the kernel confirmed them, the fluid ideal. From it come the
# metrics and the fidelity, exactly as `summary.json` has them. Numbers of an invalid run say something about the machine, not
# the fabric.

# %%
seen = view(run)
summary = summary_of(seen)
print(summary["status"], summary["fidelity"]["verdict"], *summary["fidelity"]["reasons"], sep="\n  ")
for expectation in summary["expectations"]:
    print("holds " if expectation["passed"] else "missed", expectation["text"], expectation["actual"])

# %% [markdown]
# ## The tables
#
# One row per transmission, message, event, sample, port and interval. Times are nanoseconds of one clock for all hosts, so a
# one-way delay is a difference. `placed_ns` is null for what never arrived.

# %%
packets = run.packets
print(f"{len(packets)} transmissions, {len(run.messages)} messages, {len(run.events)} events, {len(run.ports)} rows of ports")
packets.head()

# %% [markdown]
# What became of them, by plane:

# %%
packets.groupby(["plane", "fate"], observed=True).size().unstack(fill_value=0)

# %% [markdown]
# ## Goodput against the ideal
#
# `binned` gives placed and ideal bytes per bin and flow; a gap in the records is NaN, not zero.

# %%
width = 200_000_000
edges = np.arange(seen.t0_ns, seen.end_ns + 1, width)
placed, ideal = binned(seen, edges)
seconds = (edges[:-1] - seen.t0_ns) / 1e9
figure, axes = plt.subplots(figsize=(8, 3))
axes.plot(seconds, placed.sum(axis=1) * 8e3 / width, label="placed")
axes.plot(seconds, ideal.sum(axis=1) * 8e3 / width, "--", label="fluid ideal")
for fault in seen.faults:
    end = fault.end_ns if fault.end_ns is not None else seen.end_ns
    axes.axvspan((fault.start_ns - seen.t0_ns) / 1e9, (end - seen.t0_ns) / 1e9, alpha=0.1, color="tab:red")
axes.set(xlabel="time (s)", ylabel="Mbit/s", ylim=(0, None))
axes.legend()
plt.show()

# %% [markdown]
# ## The life of one lost packet
#
# Every transmission of one PSN: where it went, what the sender learnt and when, and the transmission that replaced it.

# %%
lost = packets[packets["fate"] == "lost"]
if len(lost):
    first = lost.iloc[0]
    same = packets[(packets["flow"] == first["flow"]) & (packets["qp"] == first["qp"]) & (packets["psn"] == first["psn"])]
    story = same[["path", "sent_ns", "fate_ns", "placed_ns", "fate", "reason", "retransmission"]].copy()
    for column in ("sent_ns", "fate_ns", "placed_ns"):
        story[column] = (story[column] - first["sent_ns"]) / 1e6
    print("times in ms since its first transmission")
    print(story.to_string(index=False))
else:
    print("nothing was lost in this run")

# %% [markdown]
# ## What the sender concluded
#
# State changes of EVs, in order. `ASSUMED_BAD` is out of use until probes answer.

# %%
changes = run.events[run.events["kind"] == "ev_state"].assign(t_s=lambda frame: (frame["t_ns"] - seen.t0_ns) / 1e9)
changes[["t_s", "host", "peer", "ev", "before", "after", "reason"]].head(12)

# %% [markdown]
# ## One-way delay: which plane queues?

# %%
arrived = packets[packets["placed_ns"].notna()]
oneway_ms = (arrived["placed_ns"] - arrived["sent_ns"]).astype("int64") / 1e6
oneway_ms.groupby(arrived["plane"]).quantile(np.array([0.01, 0.5, 0.99])).unstack()

# %% [markdown]
# ## The busiest ports

# %%
inside = run.ports[(run.ports["t_ns"] > seen.start_ns) & (run.ports["t_ns"] <= seen.end_ns)]
sums = inside.groupby(["tier", "direction", "port"], observed=True)
busiest = sums["delivered_bytes"].sum() * 8 / ((seen.end_ns - seen.start_ns) / 1e9) / sums["rate_bps"].first()
busiest.sort_values(ascending=False).head(8)
