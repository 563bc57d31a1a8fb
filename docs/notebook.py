"""ResNet-50 on a Bow-2000: from a search to an answer within a latency bound.

A script with cells, for Jupyter (by Jupytext), VS Code and others; `python docs/notebook.py` runs it as it is. The last
line of a cell is what a notebook shows.
"""

# %% Search. The trials stay in a database, so that running this cell again resumes from them.
import autoauto

STORAGE = "sqlite:///studies/autoauto.db"
best = autoauto.search("resnet50", "bow-2000", storage=STORAGE, study_name="notebook")
print(f"{best.samples_per_s:,.1f} samples/s with {best.knobs.replicas} x {best.knobs.n_ipu} devices")
best

# %% The trials in pandas. Every study has the same columns; docs/python.md describes them.
trials = autoauto.trials_dataframe("notebook", STORAGE)
columns = ["number", "state", "n_ipu", "replicas", "memory_proportion", "batch_size", "samples_per_s", "latency_s"]
print(trials[columns].to_string(index=False))
trials[columns]

# %% Why this one: what binds it, and why the others do not count or lose. The equal search measures nothing again.
for reason in trials.loc[trials["state"] == "PRUNED", "reason"]:
    print(reason)
result = autoauto.search_flow(autoauto.load_flow("resnet50", "bow-2000"), storage=STORAGE, study_name="notebook")
result.summary

# %% The timeline of one pipeline.
timeline = best.timeline
assert timeline is not None  # phases have none
print(f"a micro-batch every {timeline.period_cycles:,.0f} cycles, bubble {timeline.bubble_fraction:.0%}")
timeline

# %% Within a latency bound.
bounded = autoauto.search("resnet50", "bow-2000", constraints=["latency_s <= 0.004"])
print(f"{bounded.samples_per_s:,.1f} samples/s within {1e3 * bounded.latency_s:.3f} ms")
try:
    small = autoauto.SearchSpace(n_ipu=(1,), memory_proportion=(0.6,), batch_size=(1, 2))
    autoauto.search("resnet50", "bow-2000", small, constraints=["latency_s <= 0.0001"])
except autoauto.Infeasible as nothing:
    print(nothing)
bounded
