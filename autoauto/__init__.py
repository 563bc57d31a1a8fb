"""autoauto finds the pipeline configuration of a model on a cluster with the highest throughput: `search`.

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

from autoauto.records.installation import VERSION

if TYPE_CHECKING:
    from autoauto.evaluate.export import export
    from autoauto.evaluate.flow import Flow
    from autoauto.evaluate.load import load_flow
    from autoauto.graph.load import load_graph
    from autoauto.plan.pipeline.optimal import optimal
    from autoauto.records.knobs import Knobs, SearchSpace
    from autoauto.records.plan import Plan
    from autoauto.records.schedule import Order
    from autoauto.records.target import Target
    from autoauto.records.timeline import Run, Runner
    from autoauto.records.trial import Trial
    from autoauto.records.units import Precision
    from autoauto.schedule.orders.registry import make_schedule
    from autoauto.schedule.simulate.simulate import simulate
    from autoauto.study.auto_pipeline import search_for_max_throughput
    from autoauto.study.run import run_search
    from autoauto.study.search import search, search_flow
    from autoauto.targets.clusters import load_cluster
    from autoauto.targets.ipu.target import IpuTarget

__version__ = VERSION
__all__ = [
    "Flow",
    "IpuTarget",
    "Knobs",
    "Order",
    "Plan",
    "Precision",
    "Run",
    "Runner",
    "SearchSpace",
    "Target",
    "Trial",
    "export",
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
    "Flow": "autoauto.evaluate.flow",
    "IpuTarget": "autoauto.targets.ipu.target",
    "Knobs": "autoauto.records.knobs",
    "Order": "autoauto.records.schedule",
    "Plan": "autoauto.records.plan",
    "Precision": "autoauto.records.units",
    "Run": "autoauto.records.timeline",
    "Runner": "autoauto.records.timeline",
    "SearchSpace": "autoauto.records.knobs",
    "Target": "autoauto.records.target",
    "Trial": "autoauto.records.trial",
    "export": "autoauto.evaluate.export",
    "load_cluster": "autoauto.targets.clusters",
    "load_flow": "autoauto.evaluate.load",
    "load_graph": "autoauto.graph.load",
    "make_schedule": "autoauto.schedule.orders.registry",
    "optimal": "autoauto.plan.pipeline.optimal",
    "run_search": "autoauto.study.run",
    "search": "autoauto.study.search",
    "search_flow": "autoauto.study.search",
    "search_for_max_throughput": "autoauto.study.auto_pipeline",
    "simulate": "autoauto.schedule.simulate.simulate",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use, so that `import autoauto` is quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'autoauto' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
