"""Studies: created, resumed, refused, loaded, with a changed space; on SQLite files and on a PostgreSQL server."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from sqlalchemy.engine import make_url

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.space.constraint import Constraint
from autoauto.space.modes.mode import Strategy
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.study.run import run_search
from autoauto.study.store import study as study_module
from autoauto.study.store.database import attributes_of, open_storage
from autoauto.study.store.study import STUDY_SCHEMA, load_study, note_space, open_study, read_space
from autoauto.study.store.table import trial_table
from autoauto.study.store.trial_storage import TrialStorage

if TYPE_CHECKING:
    from tests.study.conftest import Fake


SPACE = SearchSpace((1, 2), (0.3, 1.0), (1, 2, 4, 8, 16, 32, 64))
SMALL = SearchSpace((1, 2), (0.3,), (1, 2, 3))
FINGERPRINT = {"model": "abc", "cluster": "bow-2000"}


def test_a_new_study_has_its_attributes(storage: str, capfd: pytest.CaptureFixture[str]) -> None:
    open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT, {"command": "autoauto search"})
    study = optuna.load_study(study_name="bow", storage=storage)
    assert study.user_attrs == {
        "objective": "throughput",
        "schema": STUDY_SCHEMA,
        **FINGERPRINT,
        "command": "autoauto search",
    }
    assert study.metric_names == ["throughput (samples/s)"]
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE
    assert capfd.readouterr() == ("", "")


def test_a_study_that_another_search_makes_meanwhile_is_joined(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attributes of a study that was just made are written between two reads of them."""
    read, seen = attributes_of, list[dict[str, Any]]()

    def attributes(study: optuna.Study) -> dict[str, Any]:
        known = read(study)
        seen.append(known)
        if len(seen) == 1:
            open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
        return known

    monkeypatch.setattr(study_module, "attributes_of", attributes)
    assert open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT).user_attrs["model"] == "abc"
    assert seen[0] == {}


def test_of_two_searches_that_make_one_study_at_once_the_second_is_refused(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = TrialStorage.set_study_attrs

    def after_another(*given: Any, **options: Any) -> None:
        monkeypatch.setattr(TrialStorage, "set_study_attrs", write)
        open_study(storage, "bow", Objective.THROUGHPUT, {**FINGERPRINT, "model": "first"})
        write(*given, **options)

    monkeypatch.setattr(TrialStorage, "set_study_attrs", after_another)
    with pytest.raises(BadInput, match="was made with model 'first', this search has 'abc'"):
        open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    assert load_study(storage, "bow").user_attrs["model"] == "first"


def test_cost_per_device_is_minimised(storage: str) -> None:
    study = open_study(storage, "bow", Objective.PER_DEVICE, FINGERPRINT)
    assert study.direction is optuna.study.StudyDirection.MINIMIZE
    assert study.metric_names == ["cost (cycles x n_ipu / sample)"]


def test_a_resumed_study_has_its_trials(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT, {"command": "first"})
    run_search(SPACE, fake, study, Objective.THROUGHPUT)
    before = study.get_trials()
    resumed = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT, {"command": "second"})
    assert resumed.get_trials() == before
    assert resumed.user_attrs["command"] == "second"


@pytest.mark.parametrize(
    ("objective", "fingerprint", "message"),
    [
        (Objective.PER_DEVICE, FINGERPRINT, "objective 'throughput', this search has 'per-device'"),
        (Objective.THROUGHPUT, {**FINGERPRINT, "model": "xyz"}, "model 'abc', this search has 'xyz'"),
        (
            Objective.THROUGHPUT,
            {"model_content": "new", "cluster": "c600"},
            "model_content None, this search has 'new'; cluster 'bow-2000', this search has 'c600' "
            "(the model is another)",
        ),
        (Objective.THROUGHPUT, {**FINGERPRINT, "precision": "fp16"}, "precision None, this search has 'fp16'"),
    ],
)
def test_another_fingerprint_is_refused(
    storage: str, fake: Fake, objective: Objective, fingerprint: dict[str, str], message: str
) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    run_search(SPACE, fake, study, Objective.THROUGHPUT)
    with pytest.raises(BadInput) as caught:
        open_study(storage, "bow", objective, fingerprint)
    start = f"study 'bow' was made with {message}, and its trials do not compare with this search's"
    assert str(caught.value) == f"{start}; give another --study-name"
    attributes = load_study(storage, "bow").user_attrs
    same = {name: attributes[name] for name in ("objective", *FINGERPRINT)}
    assert same == {"objective": "throughput", **FINGERPRINT}
    assert "precision" not in attributes


def test_a_study_of_a_search_that_was_killed_at_once_is_resumed(storage: str) -> None:
    optuna.create_study(storage=open_storage(storage), study_name="bow", direction="maximize")
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    assert study.user_attrs == {"objective": "throughput", "schema": STUDY_SCHEMA, **FINGERPRINT}


def test_the_verbosity_of_optuna_is_restored(storage: str) -> None:
    before = optuna.logging.get_verbosity()
    open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    load_study(storage, "bow")
    assert optuna.logging.get_verbosity() == before


def test_an_unknown_study_is_refused(storage: str) -> None:
    open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    for name, hint in (("bowl", "did you mean 'bow'?"), ("x", "`autoauto studies` lists what there is")):
        with pytest.raises(BadInput, match=rf"^there is no study '{name}' in sqlite:.*; {re.escape(hint)}$"):
            load_study(storage, name)


def test_loading_creates_nothing(storage: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no database"):
        load_study(storage, "bow")
    assert list(tmp_path.iterdir()) == []


def test_a_study_of_another_tool_is_refused(storage: str) -> None:
    optuna.create_study(storage=open_storage(storage), study_name="theirs").add_trial(
        optuna.create_trial(
            params={"x": 1.0}, distributions={"x": optuna.distributions.FloatDistribution(0, 2)}, value=1
        )
    )
    with pytest.raises(BadInput, match="study 'theirs' was not made by `autoauto search`"):
        load_study(storage, "theirs")
    with pytest.raises(BadInput, match="study 'theirs' was made with objective None"):
        open_study(storage, "theirs", Objective.THROUGHPUT, FINGERPRINT)


def test_a_locked_database_is_one_line(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT).get_trials()
    for waits in ("retries", "sqlite"):
        monkeypatch.setattr(f"autoauto.database.{waits}.WAIT_S", 0)
    connection = sqlite3.connect(tmp_path / "studies/search.db", isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    with pytest.raises(
        BadInput, match=r"^the study's database cannot be used: database is locked; try another --storage$"
    ):
        open_study(storage, "other", Objective.THROUGHPUT, FINGERPRINT)
    connection.close()


def test_postgresql_holds_the_same(postgres: str, postgres_study_name: str, storage: str, fake: Fake) -> None:
    tables = []
    for url in (storage, postgres):
        study = open_study(url, postgres_study_name, Objective.THROUGHPUT, FINGERPRINT)
        result = run_search(SPACE, fake, study, Objective.THROUGHPUT)
        resumed = open_study(url, postgres_study_name, Objective.THROUGHPUT, FINGERPRINT)
        n_calls = len(fake.calls)
        assert run_search(SPACE, fake, resumed, Objective.THROUGHPUT) == result
        assert len(fake.calls) == n_calls
        times = ["datetime_start", "datetime_complete", "duration_s"]
        tables.append(trial_table(load_study(url, postgres_study_name)).drop(columns=times))
    assert tables[0].equals(tables[1])


def test_postgresql_refusals_are_one_line(postgres: str) -> None:
    for wrong in (make_url(postgres).set(port=1), make_url(postgres).set(database="no-such-database")):
        with pytest.raises(BadInput) as caught:
            open_study(wrong.render_as_string(hide_password=False), "bow", Objective.THROUGHPUT, FINGERPRINT)
        assert "\n" not in str(caught.value)
        assert "cannot be used: " in str(caught.value)


def test_a_database_in_memory_is_refused() -> None:
    for storage in ("sqlite://", "sqlite:///", "sqlite:///:memory:"):
        with pytest.raises(BadInput, match=f"a study is stored in a file or on a server, got {storage}; try"):
            open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)


def test_a_changed_space_gives_one_line_about_what_changed(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    assert note_space(study, SMALL) is None
    run_search(SMALL, fake, study, Objective.THROUGHPUT)
    assert note_space(study, SMALL) is None
    wider = SearchSpace((1,), (0.3, 0.6), (1, 2, 3))
    inside = sum(trial.params["n_ipu"] == 1 for trial in study.get_trials())
    assert note_space(study, wider) == (
        "study bow was last searched with other values: n_ipu was 1,2, is 1; memory_proportion was 0.3, is 0.3,0.6; "
        f"{inside} of its {len(study.trials)} finished trials count here, too, and are not tried again"
    )
    assert note_space(study, wider) is None


def test_a_stored_space_is_read_again(storage: str) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    training = SearchSpace(
        (1, 2),
        (0.3,),
        (1, 2),
        schedule=(Order.GPIPE,),
        recompute=(False, True),
        n_micro_batches=(8,),
        strategy=tuple(Strategy),
        steps=(4, 8),
    )
    bound = SMALL.with_values(constraints=(Constraint("n_ipu * batch_size <= 4"),))
    for space in (SMALL, training, bound):
        note_space(study, space)
        assert read_space(study.user_attrs["space"]) == space


def test_a_changed_space_without_trials_gives_no_line(storage: str) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    note_space(study, SMALL)
    assert note_space(study, SearchSpace((4,), (0.3,), (1,))) is None


def test_a_study_of_another_version_is_refused(storage: str) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    assert study.user_attrs["schema"] == STUDY_SCHEMA
    before = optuna.create_study(storage=storage, study_name="before")
    before.set_user_attr("objective", "throughput")
    study.set_user_attr("schema", STUDY_SCHEMA + 1)
    for name, schema in (("bow", f"{STUDY_SCHEMA + 1}"), ("before", "None")):
        refused = f"schema of study '{name}' must be {STUDY_SCHEMA}, got {schema}: .* use that version"
        with pytest.raises(BadInput, match=refused):
            load_study(storage, name)
        with pytest.raises(BadInput, match=refused):
            open_study(storage, name, Objective.THROUGHPUT, {})
