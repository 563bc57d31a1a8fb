"""The orders in which a model trains where nobody says one: `default_orders`."""

from __future__ import annotations

from autoauto.estimate.sums import cut_allowed, cuts_around
from autoauto.evaluate.setting import Setting
from autoauto.records.schedule import Order
from autoauto.space.modes.training import SCHEDULE


def default_orders(setting: Setting, n_ipu: int) -> tuple[Order, ...]:
    """The default of `SCHEDULE`; on several devices a ring where that has more places to cut a model than a line has.

    So it is where the first and the last layers read one weight, as embedding and head of GPT-2 do.
    """
    tied = [layer.tied for layer in setting.graph.layers]
    in_line, around = cut_allowed(tied).sum(), max(cuts.sum() for cuts in cuts_around(tied))
    return (Order.POPART_RING,) if n_ipu > 1 and around > in_line else (SCHEDULE.default,)
