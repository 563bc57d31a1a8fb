"""What a method of search would ask for next, so that several can measure at once: `look_ahead`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autoauto.records.trial import Knobs
from autoauto.search.steps import Steps, Tried

Guess = Callable[[Knobs], float | None]
"""The score that a configuration is expected to have; None when it is not expected to fit."""


def look_ahead(begin: Callable[[], Steps], known: Mapping[Knobs, Tried], guess: Guess | None, n: int) -> list[Knobs]:
    """The next `n` configurations that a method asks for, the first for sure, the others if the guesses hold.

    A method chooses by what it is sent alone, so it is begun anew, sent what is known, and where nothing is known what
    is guessed; without a guess, that it fits. Where a guess errs a measurement is made that need not have been: the
    method itself is only ever sent what was measured.
    """
    steps, coming = begin(), dict[Knobs, Tried]()
    tried: Tried | None = None
    while len(coming) < n:
        try:
            step = steps.send(tried)
        except StopIteration:
            break
        if step.knobs is None:
            tried = None
            continue
        if step.knobs not in known and step.knobs not in coming:
            coming[step.knobs] = Tried(1.0 if guess is None else guess(step.knobs), measured=True)
        tried = known[step.knobs] if step.knobs in known else coming[step.knobs]
    return list(coming)
