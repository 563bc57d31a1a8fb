"""The configuration that options name."""

import pytest

from autoauto.cli.main import build_parser
from autoauto.cli.options.model import open_flow, requested_knobs
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs


def knobs_of(*words: str) -> Knobs:
    args = build_parser().parse_args(["predict", "resnet50", *words])
    return requested_knobs(args, open_flow(args))


def test_defaults() -> None:
    assert knobs_of() == Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1)
    assert knobs_of("--mode", "training") == Knobs(
        n_ipu=1, memory_proportion=0.6, batch_size=1, schedule=Order.POPART, recompute=False, n_micro_batches=16
    )


def test_options_of_training_are_refused_for_inference() -> None:
    with pytest.raises(BadInput, match="only training has schedule, recompute, got --mode inference"):
        knobs_of("--schedule", "gpipe", "--recompute")


def test_several_values_of_a_knob_are_for_a_search() -> None:
    with pytest.raises(BadInput, match="one configuration has one n_ipu and one schedule, got several; try search"):
        knobs_of("--mode", "training", "--schedule", "gpipe,1f1b", "--n-ipu", "1:2")
