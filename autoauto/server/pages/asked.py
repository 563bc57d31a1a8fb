"""What a search was asked for, in words: `asked_texts`, `labels_text`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autoauto.server.store.submission import Submission
from autoauto.space.objectives import objectives_text
from autoauto.space.problem import Problem
from autoauto.space.request import KnobValues
from autoauto.study.store.study import format_values

_ALWAYS = ("model", "cluster", "target")


def asked_texts(submission: Submission, names: Mapping[str, str]) -> dict[str, str]:
    """What differs from the defaults, and the model, the cluster, the target and the objective, by their names.

    Args:
        submission: what was asked for.
        names: of its uploaded files by their digests.
    """
    texts = dict(_pairs(submission))
    return texts | {what: f"{names[digest]} (sha256:{digest[:8]})" for what, digest in submission.uploads.items()}


def _pairs(submission: Submission) -> Iterator[tuple[str, str]]:
    problem, study = submission.request.problem, submission.request.study
    defaults = Problem(target=problem.target).values
    for name, value in problem.values.items():
        if name in _ALWAYS or value not in (defaults.get(name), [], None):
            yield name, "; ".join(value) if isinstance(value, list | tuple) else str(value)
    space = study.space
    pairs = space.values.items() if isinstance(space, KnobValues) else space.pairs
    yield from ((name, format_values(values)) for name, values in pairs)
    if space.constraints:
        yield "constraints of knobs", "; ".join(constraint.text for constraint in space.constraints)
    yield "objective", objectives_text(study.objectives)
    others = {
        **{"method": study.method, "global_batch": getattr(space, "global_batch", None)},
        **{"time_budget": study.time_budget_s, "repeats": study.n_repeats, "noise": study.noise},
        **{"measurements": submission.limits.measurements, "trials": submission.limits.trials},
    }
    yield from ((name, str(value)) for name, value in others.items() if value is not None)
    if submission.labels:
        yield "labels", labels_text(submission.labels)


def labels_text(labels: Mapping[str, str]) -> str:
    """What a worker must say of itself.

    >>> labels_text({"gpu": "h100", "site": "a"})
    'gpu=h100, site=a'
    """
    return ", ".join(f"{name}={value}" for name, value in labels.items())
