"""Made-up inputs: those that say how long others are."""

from __future__ import annotations

import numpy as np
import pytest

from autoauto.records.layers import Port
from autoauto.targets.host.measure.examples import examples, lengths_of

SIGNAL = Port("audio_signal", (2, 80, 64), "float32")


@pytest.mark.parametrize(
    ("name", "others", "length"),
    [
        ("length", [SIGNAL], 64),
        ("audio_signal_lens", [SIGNAL, Port("ids", (2, 7), "int64")], 64),
        ("ids_length", [SIGNAL, Port("ids", (2, 7), "int64")], 7),
        ("x_lengths", [Port("x", (2, 0), "float32")], 1),
        ("seq_len", [Port("scale", (), "float32"), Port("hidden", (2,), "float32")], 1),
    ],
)
def test_lengths_are_never_0_and_no_more_than_what_they_count_has(name: str, others: list[Port], length: int) -> None:
    counting = Port(name, (2,), "int64")
    made = examples([*others, counting])
    assert made[name].tolist() == [length, length]
    assert list(made) == [*(port.name for port in others), name]


def test_only_whole_numbers_are_lengths() -> None:
    assert lengths_of([SIGNAL, Port("length", (2,), "float32"), Port("lengthy", (2,), "int64")]) == {}
    assert examples([Port("rate", (), "float64"), Port("n", (), "int64")])["rate"].dtype == np.float64
