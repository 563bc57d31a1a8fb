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

from autoauto.records.display import draw_with
from autoauto.records.installation import VERSION

if TYPE_CHECKING:
    from autoauto.evaluate.export import export
    from autoauto.evaluate.flow import Flow
    from autoauto.evaluate.open import load_flow
    from autoauto.graph.load import load_graph
    from autoauto.plan.pipeline.optimal import optimal
    from autoauto.records.costs.correction import Estimator
    from autoauto.records.errors import (
        AutoautoError,
        BadInput,
        DoesNotFit,
        Infeasible,
        MeasurementsFailed,
        MissingExtra,
        OutOfMemory,
        UnreadableModel,
        Unsupported,
        WorkerLost,
    )
    from autoauto.records.hardware import Cluster, Period
    from autoauto.records.layers import LayerGraph
    from autoauto.records.plans.phased import PhasedPlan
    from autoauto.records.plans.plan import CutAt, Plan, Stage
    from autoauto.records.plans.timeline import Run, Runner, Timeline
    from autoauto.records.schedule import Order, Schedule
    from autoauto.records.target import Target
    from autoauto.records.units import Precision
    from autoauto.schedule.orders.registry import make_schedule
    from autoauto.schedule.simulate.simulate import simulate
    from autoauto.server.client import connect
    from autoauto.space.constraint import Constraint
    from autoauto.space.knobs import Knobs
    from autoauto.space.modes.mode import Strategy
    from autoauto.space.objectives import Method, Objective
    from autoauto.space.space import SearchSpace
    from autoauto.space.study_summary import StudySummary
    from autoauto.space.trial import Status, Trial
    from autoauto.study.auto_pipeline import search_for_max_throughput
    from autoauto.study.run import SearchProgress, SearchResult, run_search
    from autoauto.study.search import search, search_flow
    from autoauto.study.store.table import trials_dataframe
    from autoauto.targets.clusters import load_cluster
    from autoauto.targets.ipu.target import IpuTarget

__version__ = VERSION
__all__ = [
    "AutoautoError",
    "BadInput",
    "Cluster",
    "Constraint",
    "CutAt",
    "DoesNotFit",
    "Estimator",
    "Flow",
    "Infeasible",
    "IpuTarget",
    "Knobs",
    "LayerGraph",
    "MeasurementsFailed",
    "Method",
    "MissingExtra",
    "Objective",
    "Order",
    "OutOfMemory",
    "Period",
    "PhasedPlan",
    "Plan",
    "Precision",
    "Run",
    "Runner",
    "Schedule",
    "SearchProgress",
    "SearchResult",
    "SearchSpace",
    "Stage",
    "Status",
    "Strategy",
    "StudySummary",
    "Target",
    "Timeline",
    "Trial",
    "UnreadableModel",
    "Unsupported",
    "WorkerLost",
    "connect",
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
    "trials_dataframe",
]

_MODULES = {
    "AutoautoError": "autoauto.records.errors",
    "BadInput": "autoauto.records.errors",
    "Cluster": "autoauto.records.hardware",
    "Constraint": "autoauto.space.constraint",
    "CutAt": "autoauto.records.plans.plan",
    "DoesNotFit": "autoauto.records.errors",
    "Estimator": "autoauto.records.costs.correction",
    "Flow": "autoauto.evaluate.flow",
    "Infeasible": "autoauto.records.errors",
    "IpuTarget": "autoauto.targets.ipu.target",
    "Knobs": "autoauto.space.knobs",
    "LayerGraph": "autoauto.records.layers",
    "MeasurementsFailed": "autoauto.records.errors",
    "Method": "autoauto.space.objectives",
    "MissingExtra": "autoauto.records.errors",
    "Objective": "autoauto.space.objectives",
    "Order": "autoauto.records.schedule",
    "OutOfMemory": "autoauto.records.errors",
    "Period": "autoauto.records.hardware",
    "PhasedPlan": "autoauto.records.plans.phased",
    "Plan": "autoauto.records.plans.plan",
    "Precision": "autoauto.records.units",
    "Run": "autoauto.records.plans.timeline",
    "Runner": "autoauto.records.plans.timeline",
    "Schedule": "autoauto.records.schedule",
    "SearchProgress": "autoauto.study.run",
    "SearchResult": "autoauto.study.run",
    "SearchSpace": "autoauto.space.space",
    "Stage": "autoauto.records.plans.plan",
    "Status": "autoauto.space.trial",
    "Strategy": "autoauto.space.modes.mode",
    "StudySummary": "autoauto.space.study_summary",
    "Target": "autoauto.records.target",
    "Timeline": "autoauto.records.plans.timeline",
    "Trial": "autoauto.space.trial",
    "UnreadableModel": "autoauto.records.errors",
    "Unsupported": "autoauto.records.errors",
    "WorkerLost": "autoauto.records.errors",
    "connect": "autoauto.server.client",
    "export": "autoauto.evaluate.export",
    "load_cluster": "autoauto.targets.clusters",
    "load_flow": "autoauto.evaluate.open",
    "load_graph": "autoauto.graph.load",
    "make_schedule": "autoauto.schedule.orders.registry",
    "optimal": "autoauto.plan.pipeline.optimal",
    "run_search": "autoauto.study.run",
    "search": "autoauto.study.search",
    "search_flow": "autoauto.study.search",
    "search_for_max_throughput": "autoauto.study.auto_pipeline",
    "simulate": "autoauto.schedule.simulate.simulate",
    "trials_dataframe": "autoauto.study.store.table",
}


if not TYPE_CHECKING:  # type checkers would take any name for one of the package

    def __getattr__(name: str) -> object:
        """Import a public name at its first use, so that `import autoauto` is quick."""
        if name not in _MODULES:
            raise AttributeError(f"module 'autoauto' has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """The public names, for completion and `help`, which read no others; and those that every module has."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def _html(record: object) -> str:
    """How notebooks show a record; the report is imported when the first is shown."""
    from autoauto.report.notebook import record_html

    return record_html(record)


draw_with(_html)
