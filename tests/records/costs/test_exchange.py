"""What stages receive and send where any device reaches any other, against a list of tensors gone through by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from autoauto.records.costs.cost import Exchange, TensorUse
from autoauto.records.hardware import Link

TENSORS = (
    TensorUse(0, (1,), 1),
    TensorUse(0, (2, 4), 10),
    TensorUse(1, (3,), 100),
    TensorUse(3, (4, 5), 1000),
    TensorUse(5, (2, 3), 10_000),  # a gradient, which goes back
)
"""Of six layers. A byte takes a cycle, so cycles are sums whose digits say of which tensors."""
LINK = Link(1e9, 0)
EXCHANGE = Exchange(TENSORS, (LINK,) * 3, (LINK, Link(0.5e9, 0), LINK), 1e9)


@pytest.mark.parametrize(
    ("stage", "received", "sent"),
    [
        ((0, 6), 0, 0),
        ((0, 1), 0, 11),
        ((0, 2), 0, 110),  # the tensor of one byte stays
        ((0, 3), 10_000, 110),  # two readers on both sides: sent, and the gradient comes
        ((1, 3), 10_011, 100),
        ((2, 3), 10_010, 0),
        ((2, 4), 10_110, 1000),
        ((2, 5), 10_110, 1000),  # both readers of the second tensor: it comes once
        ((3, 6), 110, 10_000),
        ((4, 6), 1010, 10_000),
        ((5, 6), 1000, 10_000),
    ],
)
def test_a_tensor_is_received_once_and_sent_once(stage: tuple[int, int], received: int, sent: int) -> None:
    assert EXCHANGE.receive_cycles(0, *stage) == received
    assert EXCHANGE.send_cycles(0, *stage) == sent
    assert EXCHANGE.send_cycles(1, *stage) == 2 * sent, "this link is half as fast"


@pytest.mark.parametrize("cuts", [(0, 1, 2, 3, 4, 5, 6), (0, 2, 3, 6), (0, 4, 6)])
def test_all_ranges_at_once_are_those_one_by_one(cuts: tuple[int, ...]) -> None:
    received, sent = EXCHANGE.range_bytes(cuts)
    for start, stop in combinations(range(len(cuts)), 2):
        stage = cuts[start], cuts[stop]
        assert received[start, stop] == EXCHANGE.receive_cycles(0, *stage), stage
        assert sent[start, stop] == EXCHANGE.send_cycles(0, *stage), stage
    assert not np.tril(received).any()
    assert not np.tril(sent).any()


def test_a_part_has_the_links_of_its_devices() -> None:
    part = EXCHANGE.part(1, 3)
    assert part.send_links == EXCHANGE.send_links[1:]
    assert len(part.receive_links) == 2
    assert part.send_cycles(0, 0, 1) == 22
