r"""Which configuration to measure next, and which of those measured is the answer: `MeasureNext`.

A configuration's score is its forecast over its ratio, measured / forecast of a time. A bound on that time holds up to
a largest ratio, its limit. So the worth of a configuration falls with its ratio, and is 0 from the limit on:

    worth
      |  \
      |     \                            the belief in the ratio of a candidate, `Ratios`:
      |        \                              ____
      | - - - - - -\- - - best so far        /    \
      |             |  \                  __/      \__
      +-------------+----|--------> log ratio
               gain      limit

What is measured next has the largest expected improvement [expected-improvement]: the mean of what its worth is above
the best so far. Before anything keeps the bound the best is 0, and the improvement the expected worth.

Measurements scatter by a known noise. Then the worth of a measured configuration is expected as well, and one that
breaks its bound by less than `TOLERANCE` of the noise keeps it as far as can be told.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from autoauto.records.units import FloatArray
from autoauto.study.methods.engines.ratios import Belief, Ratios, normal_shares

TOLERANCE = 2.0
"""Noises by which a bound may be broken: what was measured one noise above it may keep it."""
MIN_GAIN = 0.02
"""The search ends when nothing else is likely better by this share."""
LIKELY = 0.01
"""Less probable is not likely. With 0.05 the search ends sooner, with answers that are 2 % worse in the mean."""
UNDECIDED = 0.2
"""A finalist that is better than the answer with this probability, or an answer that breaks its bounds with it, is
measured again."""
ACCEPTED = 0.7
"""An answer keeps its bounds with this probability or a larger one: so it may be measured one and a half noises above a
bound. With 0.5 it breaks a bound more often."""
ROUNDING = 1e-5
"""The logarithm by which a value may be above its bound: the bound may be the value itself."""


class MeasureNext:
    """Configurations of which some were measured.

    Args:
        scores: what is forecast of every configuration, above 0, more is better.
        limits: the largest log ratio with which its bounds hold; infinite without bounds.
        ratios: what is known of log ratios; gets what is measured.
        noise: share of a value that is noise.
    """

    def __init__(self, scores: FloatArray, limits: FloatArray, ratios: Ratios, noise: float = 0.0) -> None:
        self._log_scores = np.log(scores)
        self.ratios = ratios
        self._noise = noise
        self._ruled_out: set[int] = set()
        self.limit(limits)

    def limit(self, limits: FloatArray) -> None:
        """Replace the limits: measurements of bounded quantities, such as TPOT, say more of them than forecasts."""
        self._limits = limits + np.log1p(TOLERANCE * self._noise) + ROUNDING

    def rule_out(self, indices: Collection[int]) -> None:
        """Never measure some that were not: they fail."""
        self._ruled_out.update(indices)

    @property
    def measured(self) -> Sequence[int]:
        """The configurations that were measured, each once, in order."""
        return list(dict.fromkeys(self.ratios.measured))

    def candidate(self) -> int | None:
        """The unmeasured configuration to measure next, the first of equals; None when all were measured."""
        others = self._others()
        if not len(others):
            return None
        belief = self.ratios.belief()
        gains = expected_gains(belief, self._log_scores, self._limits, self._best(belief))
        return int(others[np.argmax(gains[others])])

    def finalist(self) -> int | None:
        """A measured configuration to measure again, since noise leaves open which is best; None if nothing is open.

        Without noise, a second measurement gives the same number.
        """
        answer = self.answer() if self._noise else None
        if answer is None:
            return None
        belief = self.ratios.belief()
        if self._keeps(belief)[answer] < 1 - UNDECIDED:
            return answer
        better = self._better(belief, self._best(belief))
        rivals = [index for index in self.measured if index != answer and better[index] >= UNDECIDED]
        if not rivals:
            return None
        return min([answer, *rivals], key=self.ratios.measured.count)

    def next(self) -> int | None:
        """The configuration to measure next, which may be one that was; None when nothing is worth it.

        As long as one that was not measured is likely better than the best by `MIN_GAIN`, it is `candidate`. Then noise
        may leave open which of the measured ones is best, or whether it keeps its bounds, and the one is measured again
        that decides that.
        """
        others = self._others()
        belief = self.ratios.belief()
        if len(others) and self._better(belief, self._best(belief))[others].max() >= LIKELY:
            return self.candidate()
        return self.finalist()

    def answer(self) -> int | None:
        """The best that was measured; None while none is known to keep its bounds."""
        belief = self.ratios.belief()
        keeps = self._keeps(belief)
        worths = self._worths(belief)
        keeping = [index for index in self.measured if keeps[index] >= ACCEPTED]
        return max(keeping, key=lambda index: float(worths[index]), default=None)

    def ties(self) -> list[int]:
        """Measured configurations, beside the answer, that may well be as good as it: their scores agree within noise.

        They keep their bounds, and are better than the answer with a probability of `UNDECIDED` or more.
        """
        answer = self.answer() if self._noise else None
        if answer is None:
            return []
        belief = self.ratios.belief()
        better = self._better(belief, float(self._worths(belief)[answer]), gain=0.0)
        keeps = self._keeps(belief)
        return [i for i in self.measured if i != answer and keeps[i] >= ACCEPTED and better[i] >= UNDECIDED]

    def _others(self) -> FloatArray:
        """The configurations that may be measured and were not, ascending."""
        return np.setdiff1d(np.arange(len(self._log_scores)), [*self.measured, *self._ruled_out])

    def _keeps(self, belief: Belief) -> FloatArray:
        """The probability that the bounds of a configuration hold."""
        return belief.share_below(self._limits)

    def _worths(self, belief: Belief) -> FloatArray:
        """The score that is expected of each by the mean of its ratio, times the probability that its bounds hold."""
        scores = np.exp(self._log_scores - belief.means)
        return belief.average(scores * normal_shares((self._limits - belief.means) / belief.deviations))

    def _best(self, belief: Belief) -> float:
        """The largest worth of a measured configuration; 0 without one."""
        if not self.measured:
            return 0.0
        return float(self._worths(belief)[self.measured].max())

    def _better(self, belief: Belief, best: float, gain: float = MIN_GAIN) -> FloatArray:
        """The probability that a configuration keeps its bounds and is better by a share."""
        if not best:
            return self._keeps(belief)
        return belief.share_below(np.minimum(self._limits, self._log_scores - np.log(best * (1 + gain))))


def expected_gains(belief: Belief, log_scores: FloatArray, limits: FloatArray, best: float) -> FloatArray:
    """The mean of max(0, score / ratio - best) where the log ratio is no more than its limit.

    With r normal of mean m and deviation s, and u the smaller of the limit and log(score / best):
    score exp(-m + s^2 / 2) Phi((u - m + s^2) / s) - best Phi((u - m) / s).
    """
    upper = limits
    if best:  # ratios above log(score / best) leave no gain
        upper = np.minimum(limits, log_scores - np.log(best))
    distances = (upper - belief.means) / belief.deviations
    means = np.exp(log_scores - belief.means + belief.deviations**2 / 2)
    return belief.average(means * normal_shares(distances + belief.deviations) - best * normal_shares(distances))
