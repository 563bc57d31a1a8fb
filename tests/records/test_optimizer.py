"""What optimizers hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.costs.profile import Optimizer, WeightUpdate
from autoauto.records.units import Precision

N = 1000  # weights


@pytest.mark.parametrize(
    ("optimizer", "master", "bytes_in_fp16", "bytes_in_fp32"),
    [
        (Optimizer.SGD, False, 0, 0),
        (Optimizer.SGD, True, 4, 0),  # weights in fp32 need no copy
        (Optimizer.MOMENTUM, False, 2, 4),
        (Optimizer.ADAM, False, 8, 8),
        (Optimizer.LAMB, True, 12, 8),
    ],
)
def test_states_have_formats_of_their_own(
    optimizer: Optimizer, master: bool, bytes_in_fp16: int, bytes_in_fp32: int
) -> None:
    update = WeightUpdate(optimizer, master)
    for precision, expected in ((Precision.FP16, bytes_in_fp16), (Precision.FP32, bytes_in_fp32)):
        assert sum(update.state_bytes(N * precision.n_bytes, precision).values()) == expected * N


@given(st.sampled_from(Optimizer), st.booleans(), st.integers(1, 64), st.integers(0, 10**9))
def test_shards_hold_everything_together(optimizer: Optimizer, master: bool, n_shards: int, n_weights: int) -> None:
    whole, shard = (
        WeightUpdate(optimizer, master, n).state_bytes(2 * n_weights, Precision.FP16) for n in (1, n_shards)
    )
    assert whole.keys() == shard.keys()
    assert all(whole[name] <= n_shards * shard[name] < whole[name] + n_shards for name in whole)
