"""autoauto: model -> graph -> profile -> estimate -> plan -> schedule -> measure -> search -> report.

>>> import autoauto
>>> flow = autoauto.Flow(autoauto.load_graph("resnet50"), autoauto.load_cluster("c600"), autoauto.IpuTarget())
>>> flow.predict(autoauto.Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4)).partition
(0, 121)
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "Flow": "autoauto.flow",
    "IpuTarget": "autoauto.targets.ipu",
    "Knobs": "autoauto.records.trial",
    "Order": "autoauto.records.schedule",
    "Outcome": "autoauto.records.trial",
    "Plan": "autoauto.records.plan",
    "Precision": "autoauto.records.units",
    "SearchSpace": "autoauto.records.trial",
    "load_cluster": "autoauto.targets.clusters",
    "load_graph": "autoauto.graph",
    "make_schedule": "autoauto.schedule",
    "optimal": "autoauto.plan",
    "run_search": "autoauto.search",
    "simulate": "autoauto.schedule",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that `import autoauto` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'autoauto' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
