import sys
from dataclasses import replace

import pytest

from autoauto.estimate.learned import learned
from autoauto.records.correction import PLAIN_SUM, Correction, RangeExample, WholeRange
from autoauto.records.layers import LayerRange


class Memory:
    """Examples that are kept nowhere."""

    def __init__(self) -> None:
        self.found: list[RangeExample] = []
        self.kept = PLAIN_SUM

    def batch_sizes(self) -> dict[int, int]:
        return {4: len(self.found)} if self.found else {}

    def examples(self) -> list[RangeExample]:
        return self.found

    def correction(self) -> Correction:
        return self.kept

    def keep(self, correction: Correction) -> None:
        self.kept = correction


def test_a_correction_is_fitted_when_examples_have_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = []

    def fit(examples: list[RangeExample]) -> Correction:
        fitted.append(len(examples))
        return replace(PLAIN_SUM, n_examples=len(examples))

    monkeypatch.setattr(sys.modules["autoauto.estimate.learned"], "fit", fit)  # the room's name is the function
    store, n_examples = Memory(), []
    assert learned(store) == PLAIN_SUM
    for _ in range(20):
        store.found.append(RangeExample(WholeRange(LayerRange(0, 2), 1, 0, {}), 4, {"": 1}, {}, {}))
        n_examples.append(learned(store).n_examples)
    assert fitted == [1, 2, 4, 8, 16]
    assert n_examples[-1] == 16
