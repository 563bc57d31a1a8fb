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
    from autoauto.evaluate.export import export as export
    from autoauto.evaluate.flow import Flow as Flow
    from autoauto.evaluate.open import load_flow as load_flow
    from autoauto.graph.load import load_graph as load_graph
    from autoauto.plan.pipeline.optimal import optimal as optimal
    from autoauto.records.costs.correction import Estimator as Estimator
    from autoauto.records.errors import AutoautoError as AutoautoError
    from autoauto.records.errors import BadInput as BadInput
    from autoauto.records.errors import DoesNotFit as DoesNotFit
    from autoauto.records.errors import Infeasible as Infeasible
    from autoauto.records.errors import MeasurementsFailed as MeasurementsFailed
    from autoauto.records.errors import MissingExtra as MissingExtra
    from autoauto.records.errors import OutOfMemory as OutOfMemory
    from autoauto.records.errors import UnreadableModel as UnreadableModel
    from autoauto.records.errors import Unsupported as Unsupported
    from autoauto.records.errors import WorkerLost as WorkerLost
    from autoauto.records.hardware import Cluster as Cluster
    from autoauto.records.hardware import Period as Period
    from autoauto.records.layers import LayerGraph as LayerGraph
    from autoauto.records.plans.phased import PhasedPlan as PhasedPlan
    from autoauto.records.plans.plan import CutAt as CutAt
    from autoauto.records.plans.plan import Plan as Plan
    from autoauto.records.plans.plan import Stage as Stage
    from autoauto.records.plans.timeline import Run as Run
    from autoauto.records.plans.timeline import Runner as Runner
    from autoauto.records.plans.timeline import Timeline as Timeline
    from autoauto.records.schedule import Order as Order
    from autoauto.records.schedule import Schedule as Schedule
    from autoauto.records.target import Target as Target
    from autoauto.records.units import Precision as Precision
    from autoauto.schedule.orders.registry import make_schedule as make_schedule
    from autoauto.schedule.simulate.simulate import simulate as simulate
    from autoauto.server.client import connect as connect
    from autoauto.space.constraint import Constraint as Constraint
    from autoauto.space.knobs import Knobs as Knobs
    from autoauto.space.modes.mode import Strategy as Strategy
    from autoauto.space.objectives import Method as Method
    from autoauto.space.objectives import Objective as Objective
    from autoauto.space.space import SearchSpace as SearchSpace
    from autoauto.space.study_summary import StudySummary as StudySummary
    from autoauto.space.trial import Status as Status
    from autoauto.space.trial import Trial as Trial
    from autoauto.study.auto_pipeline import search_for_max_throughput as search_for_max_throughput
    from autoauto.study.run import SearchProgress as SearchProgress
    from autoauto.study.run import SearchResult as SearchResult
    from autoauto.study.run import run_search as run_search
    from autoauto.study.search import search as search
    from autoauto.study.search import search_flow as search_flow
    from autoauto.study.store.table import trials_dataframe as trials_dataframe
    from autoauto.targets.clusters import load_cluster as load_cluster
    from autoauto.targets.ipu.target import IpuTarget as IpuTarget

__version__ = VERSION
# The same names again: those above are for type checkers, these are imported.
_NAMES = {
    "autoauto.evaluate.export": "export",
    "autoauto.evaluate.flow": "Flow",
    "autoauto.evaluate.open": "load_flow",
    "autoauto.graph.load": "load_graph",
    "autoauto.plan.pipeline.optimal": "optimal",
    "autoauto.records.costs.correction": "Estimator",
    "autoauto.records.errors": "AutoautoError BadInput DoesNotFit Infeasible MeasurementsFailed MissingExtra "
    "OutOfMemory UnreadableModel Unsupported WorkerLost",
    "autoauto.records.hardware": "Cluster Period",
    "autoauto.records.layers": "LayerGraph",
    "autoauto.records.plans.phased": "PhasedPlan",
    "autoauto.records.plans.plan": "CutAt Plan Stage",
    "autoauto.records.plans.timeline": "Run Runner Timeline",
    "autoauto.records.schedule": "Order Schedule",
    "autoauto.records.target": "Target",
    "autoauto.records.units": "Precision",
    "autoauto.schedule.orders.registry": "make_schedule",
    "autoauto.schedule.simulate.simulate": "simulate",
    "autoauto.server.client": "connect",
    "autoauto.space.constraint": "Constraint",
    "autoauto.space.knobs": "Knobs",
    "autoauto.space.modes.mode": "Strategy",
    "autoauto.space.objectives": "Method Objective",
    "autoauto.space.space": "SearchSpace",
    "autoauto.space.study_summary": "StudySummary",
    "autoauto.space.trial": "Status Trial",
    "autoauto.study.auto_pipeline": "search_for_max_throughput",
    "autoauto.study.run": "SearchProgress SearchResult run_search",
    "autoauto.study.search": "search search_flow",
    "autoauto.study.store.table": "trials_dataframe",
    "autoauto.targets.clusters": "load_cluster",
    "autoauto.targets.ipu.target": "IpuTarget",
}
_MODULES = dict(sorted((name, module) for module, names in _NAMES.items() for name in names.split()))
__all__ = list(_MODULES)


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
