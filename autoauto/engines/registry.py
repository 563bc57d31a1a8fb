"""Every engine by its name: `ENGINES`, `engine_named`.

An engine is the `ENGINE` of a file of this folder, or what another package has in the group of entry points
"autoauto.engines".
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import autoauto.engines as engines_package
from autoauto.engines.engine import Engine
from autoauto.engines.metrics import ServerState, read_metrics, state_of
from autoauto.plugins import Registry
from autoauto.records.errors import BadInput, did_you_mean

DEFAULT_ENGINE = "vllm"


def _modules() -> list[ModuleType]:
    return [import_module(f"{engines_package.__name__}.{each.name}") for each in iter_modules(engines_package.__path__)]


def _of_this_folder() -> dict[str, Engine]:
    return {module.ENGINE.name: module.ENGINE for module in _modules() if hasattr(module, "ENGINE")}


ENGINES = Registry("engine", Engine, first=DEFAULT_ENGINE, own=_of_this_folder)


def engine_named(name: str) -> Engine:
    """An engine by its name; raises BadInput if there is none of this name."""
    if name not in ENGINES:
        hint = did_you_mean(name, ENGINES, f"try {DEFAULT_ENGINE}")
        raise BadInput(f"an engine is {', '.join(ENGINES)}, got {name!r:.40}; {hint}")
    return ENGINES[name]


def server_state(text: str) -> ServerState | None:
    """The state in a text of /metrics, None where no known engine has its names; raises as `read_metrics`."""
    values = read_metrics(text)
    for module in _modules():
        if hasattr(module, "METRICS"):
            state = state_of(values, module.METRICS)
            if state is not None:
                return state
    return None


def equal_groups_note() -> str:
    """A sentence: no engine has groups of several sizes."""
    return f"groups of one size in all stages and replicas, since {', '.join(ENGINES)} are each told one size"
