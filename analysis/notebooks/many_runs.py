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
# # A study of many runs
#
# Repeats of scenarios as one data set. `STUDY` in the environment names the folder that holds the runs; without it all of
# `results`.
# Two variants to begin with:
#
#     ./run_experiment.py quickstart --repeat 5
#     ./run_experiment.py quickstart --repeat 5 --set transport.policy=oblivious

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import analysis
from analysis.compare import USABLE, compare
from analysis.variants import variants

STUDY = Path(os.environ.get("STUDY", "results"))
study = analysis.load([STUDY])
metrics = study.metrics.assign(variant=variants(study))
metrics.groupby("variant")["status"].value_counts().unstack(fill_value=0)

# %% [markdown]
# ## What may be used
#
# Runs that the machine decided, or that broke, are left out; how many is part of the result.

# %%
usable = metrics[metrics["status"].isin(USABLE)]
print(f"{len(usable)} of {len(metrics)} runs may be used")

# %% [markdown]
# ## How far do repeats agree?
#
# The coefficient of variation of each metric within its variant. A difference below it needs more runs, or pairs by seed.

# %%
shown = [name for name in ("goodput_ratio", "message_ms_p99", "recovery_rtts_max", "stall_rtts_max") if name in metrics]
spread = metrics.groupby("variant")[shown].agg(["mean", "std", "count"])
for name in shown:
    spread[(name, "cv")] = spread[(name, "std")] / spread[(name, "mean")]
spread.sort_index(axis=1)

# %% [markdown]
# ## Differences with their uncertainty
#
# The same as `python -m analysis compare`: 95 % bootstrap intervals of means and of differences to the first variant. Here
# invalid runs are let in so that the page can be made anywhere; `doubtful` names them.

# %%
if metrics["variant"].nunique() > 1:
    comparison = compare([STUDY], allow_invalid=True)
    print("must not be used:", ", ".join(comparison.doubtful) or "none")
    print(comparison.table.round(4).to_string(index=False))
else:
    print("one variant only: nothing to compare")

# %% [markdown]
# ## Any table of all runs
#
# `study.table` reads one table of every run, with the run's name in a column. Message completion times by variant:

# %%
messages = study.table("messages")
variant_of = dict(zip(metrics["run"], metrics["variant"], strict=True))
messages["variant"] = messages["run"].astype(str).map(variant_of)
done = messages[(messages["verdict"] == "ok") & messages["complete_ns"].notna()]
figure, axes = plt.subplots(figsize=(7, 3))
for variant, rows in done.groupby("variant"):
    took = np.sort((rows["complete_ns"] - rows["post_ns"]).to_numpy(dtype="float64")) / 1e6
    axes.step(took, np.arange(1, len(took) + 1) / len(took), where="post", label=f"{variant} ({len(took)})")
axes.set(xlabel="post to completion (ms)", ylabel="share of messages", xlim=(0, None))
axes.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Faults, one row each

# %%
faults = study.faults
if len(faults):
    print(faults.groupby("what")[["recovery_rtts", "stall_rtts", "packets_lost"]].describe().T.to_string())
