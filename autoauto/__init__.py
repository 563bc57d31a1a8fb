"""autoauto: model -> graph -> profile -> estimate -> plan -> schedule -> measure -> search -> report.

>>> import autoauto
>>> space = autoauto.SearchSpace(n_ipu=(1,), memory_proportion=(0.6,), batch_size=(4,))
>>> best = autoauto.search("resnet50", "c600", space)
>>> best.knobs.batch_size, best.measured.partition
(4, (0, 121))

One configuration at a time:

>>> flow = autoauto.load_flow("resnet50", "c600")
>>> flow.predict(autoauto.Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4)).partition
(0, 121)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from autoauto.records.version import VERSION

if TYPE_CHECKING:
    from autoauto.flow import Flow
    from autoauto.graph import load_graph
    from autoauto.load import load_flow
    from autoauto.plan import optimal
    from autoauto.records.plan import Plan
    from autoauto.records.profile import Target
    from autoauto.records.progress import FinishedTrial
    from autoauto.records.run import Run, Runner
    from autoauto.records.schedule import Order
    from autoauto.records.trial import Knobs, Outcome, SearchSpace
    from autoauto.records.units import Precision
    from autoauto.schedule import make_schedule, simulate
    from autoauto.search.call import search, search_flow
    from autoauto.search.run import run_search
    from autoauto.search.upstream import search_for_max_throughput
    from autoauto.targets.clusters import load_cluster
    from autoauto.targets.ipu import IpuTarget
else:
    from autoauto import search  # the room, which can be called; its modules load when it is

__version__ = VERSION
__all__ = [
    "FinishedTrial",
    "Flow",
    "IpuTarget",
    "Knobs",
    "Order",
    "Outcome",
    "Plan",
    "Precision",
    "Run",
    "Runner",
    "SearchSpace",
    "Target",
    "load_cluster",
    "load_flow",
    "load_graph",
    "make_schedule",
    "optimal",
    "run_search",
    "search",
    "search_flow",
    "search_for_max_throughput",
    "simulate",
]

_HOMES = {
    "FinishedTrial": "autoauto.records.progress",
    "Flow": "autoauto.flow",
    "IpuTarget": "autoauto.targets.ipu",
    "Knobs": "autoauto.records.trial",
    "Order": "autoauto.records.schedule",
    "Outcome": "autoauto.records.trial",
    "Plan": "autoauto.records.plan",
    "Precision": "autoauto.records.units",
    "Run": "autoauto.records.run",
    "Runner": "autoauto.records.run",
    "SearchSpace": "autoauto.records.trial",
    "Target": "autoauto.records.profile",
    "load_cluster": "autoauto.targets.clusters",
    "load_flow": "autoauto.load",
    "load_graph": "autoauto.graph",
    "make_schedule": "autoauto.schedule",
    "optimal": "autoauto.plan",
    "run_search": "autoauto.search",
    "search_flow": "autoauto.search",
    "search_for_max_throughput": "autoauto.search.upstream",
    "simulate": "autoauto.schedule",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that `import autoauto` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'autoauto' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
