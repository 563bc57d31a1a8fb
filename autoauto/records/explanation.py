"""Why a plan costs what it costs: `Explanation`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Move:
    """What a plan would cost if one cut lay elsewhere.

    Attributes:
        layer: the layer before which the cut would lie.
        cost_cycles: the cost of the plan then.
        excess_bytes: what the fullest device would then lack; 0 when all fits.
    """

    layer: int
    cost_cycles: int
    excess_bytes: int


@dataclass(frozen=True, slots=True)
class CutMoves:
    """A cut of a plan and the places next to it.

    Attributes:
        layer: the layer before which the cut lies.
        earlier, later: the nearest legal places on either side; None when the neighbouring stage would be left empty.
    """

    layer: int
    earlier: Move | None
    later: Move | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What binds a plan, and what its cuts could do instead.

    Attributes:
        compute_stages: the stages that compute longest; none when overlapped transfers take longer.
        transfer_stages: the stages that transfer longest; none when overlapped compute takes longer.
        memory_stage: the stage that leaves the fewest bytes of its limit.
        spare_bytes: how many it leaves.
        cuts: every cut between two stages.
    """

    compute_stages: tuple[int, ...]
    transfer_stages: tuple[int, ...]
    memory_stage: int
    spare_bytes: int
    cuts: tuple[CutMoves, ...]

    @property
    def next_best(self) -> Move | None:
        """The cheapest move that fits; None when there is none."""
        moves = [move for cut in self.cuts for move in (cut.earlier, cut.later) if move and not move.excess_bytes]
        return min(moves, key=lambda move: move.cost_cycles, default=None)
