"""The types of messages from workers: pages, clients and the database read nothing else of workers.

Workers of this version send nothing else, so what does not fit is refused (400), and never stored.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct
from optuna.trial import FrozenTrial

from autoauto.records.errors import BadInput
from autoauto.records.files.fields import Number
from autoauto.records.target import Origin
from autoauto.server.store.searches import SearchState
from autoauto.server.store.study_copy import read_trial
from autoauto.space.numbers import NUMBERS
from autoauto.space.objectives import parse_objectives
from autoauto.study.store.study import STUDY_SCHEMA
from autoauto.study.store.trials import from_optuna

MAX_COUNT = 2**31 - 1
"""Maximum of whole numbers in a database."""
MAX_S = 1e9
MAX_TRIALS = 1_000
"""Maximum number of trials of one request."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_S)]
Word = Annotated[str, Meta(max_length=100)]
Text = Annotated[str, Meta(max_length=20_000)]
Process = Annotated[str, Meta(pattern=r"^[ -~]{1,240}:[0-9]{1,7}$")]
"""A machine and the number of a process of it (`this_process`)."""
Name = Annotated[str, Meta(min_length=1, max_length=500)]
"""The name of an attribute of a study or a trial."""

_BEST_FIELDS: list[Any] = [
    ("samples_per_s", Number),
    ("n_devices", Annotated[int, Meta(ge=1, le=MAX_COUNT)]),
    ("values", list[Number], []),
    ("output_tokens", Number | None, None),
]
_BEST_FIELDS += [(number.name, Number | None, None) for number in NUMBERS if number.name != "samples_per_s"]
Best = msgspec.defstruct("Best", _BEST_FIELDS, kw_only=True)
"""A configuration with its numbers; its knobs and stages are stored unchecked."""


class Progress(Struct, forbid_unknown_fields=True):
    """The current step of a search, and its best so far."""

    activity: Word
    done: Count
    total: Count
    left_s: Seconds | None
    n_measured: Count
    origin: Origin | None
    best: Best | None  # type: ignore[valid-type]


class StandingMessage(NamedTuple):
    """`Standing` of the queue."""

    progress: Progress
    n_measured: Count
    used_s: Seconds
    is_further: bool


class AnswerMessage(Struct):
    """The answer of a search in the form of `search --json`; fields that are not here are stored unchecked."""

    best: Best | None  # type: ignore[valid-type]
    lines: str
    exit_code: Annotated[int, Meta(ge=0, le=255)]
    ended_by: Literal["stop", "seconds", "measurements", "trials"] | None
    front: list[Best] = []  # type: ignore[valid-type]


class ClaimRequest(Struct):
    """A worker that asks for a search."""

    process: Process
    labels: dict[str, str] = {}
    max_running: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None


class StudyHead(Struct, forbid_unknown_fields=True):
    """Directions and attributes of a study."""

    directions: Annotated[list[Literal["MINIMIZE", "MAXIMIZE"]], Meta(min_length=1, max_length=10)]
    user: dict[Name, Any]
    system: dict[Name, Any]

    def __post_init__(self) -> None:
        objectives = parse_objectives(str(self.user.get("objective")))
        n_objectives = len(objectives) if isinstance(objectives, tuple) else 1
        if n_objectives != len(self.directions) or self.user.get("schema") != STUDY_SCHEMA:
            raise ValueError("the objective and the schema of a study must be those of this version")


class RenewRequest(Struct):
    """The progress of a search, and the trials of its study that the server does not have."""

    standing: StandingMessage | None = None
    head: StudyHead | None = None
    first: Count = 0
    trials: Annotated[list[str], Meta(max_length=MAX_TRIALS)] = []


class FinishRequest(Struct):
    """The end of a search."""

    state: SearchState
    answer: AnswerMessage | None
    reason: Text
    used_s: Seconds

    def __post_init__(self) -> None:
        if not self.state.has_ended:
            raise ValueError(f"a search that ends has ended, got {self.state}; release it")
        if self.state is SearchState.FINISHED and self.answer is None:
            raise ValueError("a search that has finished has an answer, got none; send it as failed")


class ReleaseRequest(Struct):
    """The reason why a worker gives a search back."""

    reason: Text = ""
    is_lost: bool = False


class TrialsRequest(Struct):
    """The first trial that a worker wants to read."""

    first: Count = 0


class TrialMessage(Struct, forbid_unknown_fields=True):
    """A trial that has ended, as a text of its own in JSON of Python, which has infinity."""

    state: Literal["COMPLETE", "PRUNED", "FAIL"]
    values: list[float] | None
    params: dict[Name, str | int | float | bool | None]
    distributions: dict[Name, str]
    user_attrs: dict[Name, Any]
    system_attrs: dict[Name, Any]
    times: tuple[datetime | None, datetime | None]


REQUESTS = (ClaimRequest, TrialsRequest, RenewRequest, FinishRequest, ReleaseRequest)


def checked_trial(text: str, n_objectives: int) -> FrozenTrial:
    """A trial that autoauto reads; raises BadInput for any other."""
    try:
        msgspec.convert(json.loads(text), TrialMessage)
        trial = read_trial(text)
        stored = from_optuna(trial)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:  # also of msgspec, and BadInput
        raise BadInput(f"a trial must be as a worker sends it: {error}; use this version") from error
    numbers = [getattr(stored, number.name) for number in NUMBERS]
    if not all(isinstance(value, int | float) for value in numbers if value is not None):
        raise BadInput("the numbers of a trial must be numbers, got another value; use this version")
    if trial.values is not None and len(trial.values) != n_objectives:
        raise BadInput(f"a trial has {n_objectives} values, as its study, got {len(trial.values)}; use this version")
    return trial
