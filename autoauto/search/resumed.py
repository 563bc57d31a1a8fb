"""What is not as it was when a study was last searched: `note_space`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from optuna import Study

from autoauto.records.constraint import Constraint
from autoauto.records.schedule import Order
from autoauto.records.trial import SearchSpace, Strategy
from autoauto.search.storage import reads, through_restarts
from autoauto.search.trials import finished_trials

SPACE = "space"
"""The attribute of a study that says what its last search searched, as JSON."""


@reads
@through_restarts
def note_space(study: Study, space: SearchSpace) -> str | None:
    """Keep in the study what is searched now; a line about what the last search had otherwise, None when nothing.

    Trials count wherever they lie in the new space, and none is lost: a search may go on in a wider or narrower one.
    """
    now = {field.name: list(getattr(space, field.name)) for field in fields(space)}
    now["constraints"] = [constraint.text for constraint in space.constraints]
    known = study.user_attrs.get(SPACE)
    study.set_user_attr(SPACE, json.dumps(now))
    before: dict[str, Any] = json.loads(known) if known else now
    changes = [
        f"{name} was {words(before[name])}, is {words(now[name])}" for name in now if before.get(name, ()) != now[name]
    ]
    trials = finished_trials(study)
    if not changes or not trials:
        return None
    n_inside = sum(knobs in space for knobs in trials)
    return (
        f"study {study.study_name} goes on in another space: {'; '.join(changes)}; {n_inside:,} of its {len(trials):,} "
        "finished trials are in it and are not measured again"
    )


def read_space(text: str) -> SearchSpace:
    """The space that `note_space` kept."""
    told = {name: tuple(values) for name, values in json.loads(text).items()}
    readers = {"schedule": Order, "strategy": Strategy, "constraints": Constraint}
    return SearchSpace(**told | {name: tuple(map(read, told[name])) for name, read in readers.items() if name in told})


def words(values: Sequence[object]) -> str:
    """Values of a knob as they are typed.

    >>> words([1, 2, 3, 4]), words([0.3, 0.6]), words([1, 2, 4]), words([])
    ('1:4', '0.3,0.6', '1,2,4', 'none')
    """
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(numbers) == len(values) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]}:{numbers[-1]}"
    return ",".join(map(str, values)) or "none"
