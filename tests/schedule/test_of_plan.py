from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.schedule import Order
from autoauto.records.trial import Knobs
from autoauto.schedule.of_plan import timeline_of

PLAN = Plan(tuple(Stage(LayerRange(s, s + 1), s, 10, 0, 1, 1, {}, 1) for s in range(2)))


def test_inference_is_long_enough_to_be_steady() -> None:
    timeline = timeline_of(Knobs(2, 1.0, 1), PLAN)
    assert timeline.schedule.n_micro_batches == 6
    assert timeline.period_cycles == PLAN.cost_cycles == 12


def test_training_is_one_step() -> None:
    knobs = Knobs(2, 1.0, 1, Order.GPIPE, n_micro_batches=5)
    timeline = timeline_of(knobs, PLAN)
    assert (timeline.schedule.order, timeline.schedule.n_micro_batches) == (Order.GPIPE, 5)
