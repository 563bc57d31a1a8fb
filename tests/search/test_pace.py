"""How long measurements took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoauto.records.trial import Objective, SearchSpace
from autoauto.search.pace import known_pace
from autoauto.search.run import run_search
from autoauto.search.study import open_study

if TYPE_CHECKING:
    from tests.search.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3,), (1, 2, 3))
ABOUT = {"model_content": "a", "cluster_content": "b", "target": "ipu-5"}


def test_it_is_the_median_of_all_studies_about_the_same(storage: str, fake: Fake) -> None:
    assert known_pace(storage, ABOUT) is None
    slow = type(fake)(sleep_s=0.05)
    for name, about, target in (("one", ABOUT, slow), ("two", ABOUT, slow), ("other", {**ABOUT, "target": "x"}, fake)):
        run_search(SPACE, target, open_study(storage, name, Objective.THROUGHPUT, about), Objective.THROUGHPUT)
    pace = known_pace(storage, ABOUT)
    assert pace is not None
    assert pace.n_known == len(slow.calls)
    assert pace.seconds >= 0.05
    assert known_pace(storage, {**ABOUT, "model_content": "c"}) is None


@pytest.mark.parametrize("wrong", ["nonsense", "sqlite:////no/such/folder/x.db"])
def test_without_a_database_nothing_is_known(wrong: str) -> None:
    assert known_pace(wrong, ABOUT) is None
