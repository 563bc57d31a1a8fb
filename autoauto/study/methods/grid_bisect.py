"""The search of [auto-pipeline], `grid_bisect`: every cell of the grid is bisected for its largest batch that fits.

For 7 batch sizes, of which 5 fit: the middle one is tried, and the half that cannot hold the boundary is dropped.

    1 2 3 4 5 6 7
    . . . y . . .     4 fits: the largest that fits is among 4 5 6 7
          . . n .     6 does not: among 4 5
          . y         5 fits: it is 5
"""

from __future__ import annotations

from autoauto.space.space import SearchSpace
from autoauto.study.methods.protocol import Proposal, Proposals, Proposer


def max_tries(n_candidates: int) -> int:
    """The maximum number of tries of a bisection among `n_candidates`: ceil(log2(n_candidates + 1)).

    n candidates have n + 1 answers ("none fits" is one of them), and every try halves the answers that remain.
    """
    return n_candidates.bit_length()


def grid_bisect(space: SearchSpace) -> Proposals:
    """Find the largest batch size that fits in every cell [auto-pipeline, max_throughput].

    It assumes that all smaller batches fit when a batch fits, and nothing about throughput: the best is the best
    measured. The progress jumps after a cell that takes fewer tries than the maximum. Unlike [auto-pipeline] it also
    tries a single size, and the smallest when all others are infeasible.
    """
    most_tries, cells = max_tries(len(space["batch_size"])), space.cells
    for index, cell in enumerate(cells):
        done = index * most_tries
        n_feasible, n_left = 0, len(cell)  # cell[:n_feasible] are feasible, cell[n_left:] are not
        while n_feasible < n_left:
            middle = (n_feasible + n_left) // 2
            observation = yield Proposal(cell[middle], done, len(cells) * most_tries)
            assert observation is not None
            done += 1
            if observation.score is not None:
                n_feasible = middle + 1
            else:
                n_left = middle


BISECTION = Proposer(lambda space, _: grid_bisect(space))
"""`grid_bisect` as a method; it has no name because it proposes the same configurations again."""
