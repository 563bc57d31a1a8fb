"""What one would run without a search."""

from autoauto.records.schedule import Order
from autoauto.records.trial import Knobs, SearchSpace, Strategy
from autoauto.search.default import default_knobs


def test_it_is_one_pipeline_of_all_devices_that_may_be_used() -> None:
    assert default_knobs(SearchSpace((1, 2, 4), (0.3, 1.0)), real=False) == Knobs(4, 0.6, 8)


def test_it_keeps_to_the_batch_sizes_of_the_search() -> None:
    assert default_knobs(SearchSpace((2,), (0.3,), (1, 2, 4)), real=False) == Knobs(2, 0.6, 4)
    assert default_knobs(SearchSpace((2,), (0.3,), (16, 32)), real=False) == Knobs(2, 0.6, 16)


def test_on_real_devices_it_is_one_that_may_use_all_its_memory() -> None:
    assert default_knobs(SearchSpace((1, 2), (0.5,), (4, 8, 16), replicas=(1, 2)), real=True) == Knobs(1, 1.0, 8)


def test_training_and_phases_take_the_first_values() -> None:
    training = SearchSpace((2,), (0.6,), (4,), (Order.GPIPE, Order.POPART), (True, False), (8, 16))
    assert default_knobs(training, real=False) == Knobs(2, 0.6, 4, Order.GPIPE, True, 8)
    phased = SearchSpace((1,), (0.6,), (8,), strategy=(Strategy.PHASED,), steps=(4, 8))
    assert default_knobs(phased, real=False) == Knobs(1, 0.6, 8, n_micro_batches=4, strategy=Strategy.PHASED)
