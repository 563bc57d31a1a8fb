"""Products that no plan within the bound on temporary memory exists for: told on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from autoauto.records.layers import LayerRange

if TYPE_CHECKING:
    from autoauto.flow import Flow
    from autoauto.records.trial import Knobs


def tell_unbounded(flow: Flow, knobs: Knobs) -> None:
    """Name the layers that were planned without the bound, as Poplar warns when it does so; say nothing without any."""
    names = unbounded(flow, knobs)
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(
            f"autoauto: no plan of {names[0]}{more} meets memory proportion {knobs.memory_proportion:g}, so the bound "
            "was dropped there; try a larger --memory-proportion or a smaller --batch-size",
            file=sys.stderr,
        )


def unbounded(flow: Flow, knobs: Knobs) -> list[str]:
    """The layers of which a product does not meet the bound on temporary memory."""
    from autoauto.targets.ipu import IpuTarget
    from autoauto.targets.ipu.compile import works_of

    if not isinstance(flow.target, IpuTarget):
        return []
    layers = LayerRange(0, len(flow.graph))
    works = works_of(flow.graph, layers, flow.cluster.devices[0], flow.options(knobs), flow.target.settings)
    return [name for name, work in zip(flow.names, works, strict=True) if not work.within_bound]
