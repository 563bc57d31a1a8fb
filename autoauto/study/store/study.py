"""A study in a database: opened for a search, or loaded to be read."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import optuna
from optuna import Study
from optuna.exceptions import ExperimentalWarning

from autoauto.records.constraint import Constraint
from autoauto.records.errors import BadInput
from autoauto.records.knobs import Aim, SearchSpace, Strategy, aim_name, objectives_of
from autoauto.records.schedule import Order
from autoauto.records.units import format_bytes
from autoauto.study.objectives import direction, metric_name
from autoauto.study.store.database import (
    existing_storage,
    in_memory,
    open_storage,
    reads,
    storage_errors,
    through_restarts,
)
from autoauto.study.store.trials import finished_trials

_CONTENTS = {"model_content": "the model is another", "cluster_content": "the devices are others"}
"""What it means when a digest is not the same."""


def open_study(
    storage: str,
    study_name: str,
    aim: Aim,
    fingerprint: Mapping[str, str],
    notes: Mapping[str, str] | None = None,
) -> optuna.Study:
    """Create the study called `study_name` in the database at the URL `storage`, or resume it.

    Args:
        storage: for example "sqlite:///studies/autoauto.db"; a new SQLite file is made with its folder.
        study_name: its name in that database.
        aim: decides the directions; part of the fingerprint.
        fingerprint: what trials must share to be comparable (model digest, cluster, target version, ...); kept as user
            attributes of the study.
        notes: what is told of the last search only (the command, the version of autoauto); user attributes too.

    Raises:
        BadInput: the database cannot be used, or the study was made with another fingerprint.
        MissingExtra: the database's driver is not installed.
    """
    if in_memory(storage):
        raise BadInput(f"a study is kept in a file or on a server, got {storage}; try sqlite:///studies/autoauto.db")
    backend = open_storage(storage)
    with storage_errors(f"study {study_name!r}"), _quiet():
        directions = list(map(direction, objectives_of(aim)))
        study = optuna.create_study(storage=backend, study_name=study_name, directions=directions, load_if_exists=True)
        _identify(study, {"objective": aim_name(aim), **fingerprint})
        if study.metric_names is None:
            study.set_metric_names(list(map(metric_name, objectives_of(aim))))
        _set_attributes(study, notes or {})
    return study


def load_study(storage: str, study_name: str) -> optuna.Study:
    """Load a study to read it; nothing is made or changed.

    Raises:
        BadInput: there is no such database or no such study; the message names the studies there are.
        MissingExtra: the database's driver is not installed.
    """
    backend = existing_storage(storage)
    with storage_errors(f"study {study_name!r}"), _quiet():
        names = optuna.get_all_study_names(backend)
        if study_name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise BadInput(f"there is no study {study_name!r} in this database; the studies are: {known}")
        study = optuna.load_study(study_name=study_name, storage=backend)
    if "objective" not in study.user_attrs:
        raise BadInput(f"study {study_name!r} was not made by `autoauto search`; give the name of another")
    return study


def join_study(storage: str, study_name: str) -> optuna.Study:
    """Load a study to measure for the search that made it.

    Raises:
        BadInput: there is no such database or no such study; the message names the studies there are.
        MissingExtra: the database's driver is not installed.
    """
    load_study(storage, study_name)
    with storage_errors(f"study {study_name!r}"), _quiet():
        return optuna.load_study(study_name=study_name, storage=open_storage(storage))


@reads
def _identify(study: optuna.Study, fingerprint: Mapping[str, str]) -> None:
    """Refuse another fingerprint; a study without trials may lack fields (new, or killed before it had them all)."""
    known = study.user_attrs
    has_trials = bool(study.get_trials(deepcopy=False))
    changed = [name for name in fingerprint if known.get(name) != fingerprint[name] and (name in known or has_trials)]
    if changed:
        told = (f"{name} {known.get(name)!r}, this search has {fingerprint[name]!r}" for name in changed)
        contents = [what for name, what in _CONTENTS.items() if name in changed]
        why = f" ({' and '.join(contents)})" if contents else ""
        raise BadInput(
            f"study {study.study_name!r} was made with {'; '.join(told)}{why}, and its trials do not compare with this "
            "search's; give another --study-name"
        )
    _set_attributes(study, fingerprint)


def _set_attributes(study: optuna.Study, attributes: Mapping[str, str]) -> None:
    known = study.user_attrs
    for name, value in attributes.items():
        if known.get(name) != value:
            study.set_user_attr(name, value)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna's log lines and its warning that metric names are experimental to ourselves."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


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


_GIT_S = 10.0  # a hung file system must not hang a search


def provenance(packages: tuple[str, ...] = ("numpy", "optuna", "onnxruntime")) -> dict[str, str]:
    """Versions, the state of the checkout of autoauto when it runs from one, and the machine; no name of it.

    Args:
        packages: whose versions are told, where they are installed.
    """
    told = {"python": platform.python_version(), "machine": machine()}
    for package in packages:
        try:
            told[package] = version(package)
        except PackageNotFoundError:
            continue
    state = git_state(Path(__file__).parents[2])
    return told | ({} if state is None else {"git": state})


def machine() -> str:
    """System, processor, cores that this process may use, and memory."""
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    n_cores = len(os.sched_getaffinity(0))
    return f"{platform.system()} {platform.machine()}, {_processor()}, {n_cores} cores, {format_bytes(n_bytes)}"


def git_state(root: Path) -> str | None:
    """The commit of a checkout and whether files in it were changed since; None where there is no checkout or no git.

    Only `root` itself counts, not a folder around it: what is installed below somebody else's project is none of it.
    """
    if not (root / ".git").exists():
        return None
    commit, changed = (_git(root, *words) for words in (("rev-parse", "HEAD"), ("status", "--porcelain")))
    if not commit:
        return None
    return f"{commit}, {'changed since' if changed else 'clean'}"


def _git(root: Path, *words: str) -> str | None:
    command = ["git", "-C", str(root), "--no-optional-locks", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown processor")
