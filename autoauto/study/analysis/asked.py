"""The options of a search in words: `asked_of`."""

from __future__ import annotations

from autoauto.space.objectives import objectives_text
from autoauto.space.requests.problem import Problem
from autoauto.space.requests.request import KnobValues, SearchRequest
from autoauto.study.store.study import format_values

_ALWAYS = ("model", "cluster", "target")


def asked_of(request: SearchRequest) -> dict[str, str]:
    """Options that differ from their defaults, by name; always with the model, cluster, target and objective."""
    problem, study = request.problem, request.study
    asked: dict[str, str] = {}
    defaults = Problem(target=problem.target).values
    for name, value in problem.values.items():
        if name in _ALWAYS or value not in (defaults.get(name), [], None):
            asked[name] = "; ".join(value) if isinstance(value, list | tuple) else str(value)
    space = study.space
    pairs = space.values.items() if isinstance(space, KnobValues) else space.pairs
    for name, values in pairs:
        asked[name] = format_values(values)
    if space.constraints:
        asked["constraints of knobs"] = "; ".join(constraint.text for constraint in space.constraints)
    asked["objective"] = objectives_text(study.objectives)
    others = {
        "method": study.method,
        "global_batch": space.global_batch if isinstance(space, KnobValues) else None,
        "time_budget": study.time_budget_s,
        "repeats": study.n_repeats,
        "noise": study.noise,
        "measure": study.measure.n_most or None,
        "strict": study.strict or None,
        "quick": study.quick or None,
    }
    for name, value in others.items():
        if value is not None:
            asked[name] = str(value)
    return asked
