"""Requests that one replica serves, step by step by its engine's rules: `ReplicaRun`.

    arrivals      |     |  |            |
    steps         |p+d|d|d|d|p+d|p+d|d|d|d|d|d|d|p+d|...        p: parts of prompts, d: a token of every sequence
                        `--jump-'       `----jump---'

Between two events, which are an arrival that can be admitted, the end of an answer, or a cache that is full, all steps
have the same sequences, each a token longer: they are one jump. Its time is exact where attention is linear in the
length, which it is between two points of the grid, where a jump ends too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf, sqrt
from typing import NamedTuple

import numpy as np

from autoauto.engines.step_rules import StepRules, TakesBack
from autoauto.evaluate.serving.traffic.steps import Steps
from autoauto.records.costs.traffic.requests import Requests, WaitsFor
from autoauto.records.errors import Infeasible, Unsupported
from autoauto.records.units import FloatArray

_MANY_STEPS = 2**30
_KV, _TOKENS, _SEQUENCES = range(len(WaitsFor._fields))


class Replica(NamedTuple):
    """One replica of an engine.

    Attributes:
        n_sequences: that it has in flight at most.
        step_tokens: that a step computes at most, of all micro-batches and ranks together.
        part_tokens: of a prompt that a step computes at most.
        tokens_of_step: that a sequence gets of a step in the mean; more than 1 where drafts are accepted.
        verified_tokens: of a sequence that a step computes.
        request_s: CPU seconds of a request beside its steps.
        is_asynchronous: True if a step is prepared while the one before is computed, so that a request that comes then
            joins the step after it.
    """

    steps: Steps
    rules: StepRules
    mixes: bool
    n_sequences: int
    kv_tokens: int
    step_tokens: int
    part_tokens: int
    tokens_of_step: float = 1.0
    verified_tokens: int = 1
    request_s: float = 0.0
    is_asynchronous: bool = False


def check(replica: Replica, requests: Requests) -> None:
    """Make sure that a replica can serve each request alone.

    Raises:
        Infeasible: its cache does not hold the longest request.
        Unsupported: its steps have no room for a prompt beside a token of each of its sequences.
    """
    longest = int(np.max(requests.input_tokens + requests.output_tokens, initial=0))
    if longest + replica.rules.block_tokens > replica.kv_tokens:
        raise Infeasible(
            f"the KV cache of a replica must hold the longest request, {longest:,} tokens, got room for "
            f"{max(0, replica.kv_tokens):,}; try more GPUs a replica, or shorter requests",
            0,
        )
    n_verified = replica.n_sequences * replica.verified_tokens * replica.mixes
    if replica.n_sequences < 1 or replica.step_tokens <= n_verified:
        raise Unsupported(
            f"a replica needs steps of more tokens than its {n_verified:,} of sequences that decode, got "
            f"{replica.step_tokens:,}; try a smaller batch_size or a larger max_batched_tokens"
        )


@dataclass(slots=True)
class _Sequence:
    """A request on its way.

    Attributes:
        needed: tokens to compute before its next token: prompt, and after it was taken back also what it answered.
        cached: tokens of them that the prefix cache has.
        left: decode steps after the step that ends the prompt.
        from_step: the number of the first step in which it decodes; before that it is in `partial`.
        answered: tokens that it had answered when it was admitted last.
        ready: the number of the first step that it may join.
    """

    number: int
    needed: int
    cached: int
    left: int
    computed: int = 0
    from_step: int = -1
    order: int = -1
    answered: float = 0.0
    ready: int = 0


class AnswerTimes(NamedTuple):
    """When requests were admitted, and their first and last token came, each of shape (requests,); NaN until then."""

    admitted_s: FloatArray
    first_token_s: FloatArray
    end_s: FloatArray


class StepTimes:
    """The times of a replica's steps, looked up in its tables as plain lists: one value at a time."""

    def __init__(self, steps: Steps, n_sequences: int) -> None:
        self._lengths: list[float] = steps.lengths.tolist()
        counts = np.arange(n_sequences + 1)
        by_count = [np.interp(counts, steps.sequences, column) for column in steps.decode_s.T]
        self._decode: list[list[float]] = np.array(by_count).T.tolist()
        self._tokens: list[float] = steps.tokens.tolist()
        self._token_s: list[float] = steps.token_s.tolist()
        self._parts: list[float] = steps.parts.tolist()
        self._before: list[float] = steps.before.tolist()
        self._attention: list[list[float]] = steps.attention_s.tolist()
        self._n_ranks, self._n_stages = steps.n_ranks, steps.n_stages
        self._host_s = steps.host_s

    def decode(self, n: int, length: float) -> tuple[float, float, float]:
        """Seconds of a step of n sequences, what a token more of each adds, and up to which length that is so."""
        lengths, times = self._lengths, self._decode[n]
        right = min(max(bisect_right(lengths, length), 1), len(lengths) - 1)
        slope = (times[right] - times[right - 1]) / (lengths[right] - lengths[right - 1])
        return times[right - 1] + slope * (length - lengths[right - 1]), slope, lengths[right]

    def prompts(self, n_verified: int, parts: list[tuple[int, int]]) -> float:
        """Seconds that parts of prompts, each with the tokens before it, add to a step with other tokens."""
        n_side_by_side = min(self._n_ranks, len(parts))
        n_of_parts = sum(part for part, _ in parts) / n_side_by_side
        n_decoded = n_verified / (self._n_ranks * self._n_stages)
        if n_decoded:
            # The step reads the weights for its sequences anyway: parts add only what more tokens take.
            added = self._token(n_decoded + n_of_parts) - self._token(n_decoded)
        else:
            added = self._token(n_of_parts) + self._host_s
        attention, grid = 0.0, self._parts
        for part, before in parts:
            right = min(max(bisect_right(grid, part), 1), len(grid) - 1)
            weight = (part - grid[right - 1]) / (grid[right] - grid[right - 1])
            low = _linear(self._before, self._attention[right - 1], before)
            attention += (1 - weight) * low + weight * _linear(self._before, self._attention[right], before)
        return max(added, 0.0) + attention / n_side_by_side

    def _token(self, n: float) -> float:
        return _linear(self._tokens, self._token_s, n)


def _linear(grid: list[float], values: list[float], at: float) -> float:
    """Between the points of a grid, and in the direction of its last two beyond it."""
    if len(grid) == 1:
        return values[0]
    right = min(max(bisect_right(grid, at), 1), len(grid) - 1)
    weight = (at - grid[right - 1]) / (grid[right] - grid[right - 1])
    return (1 - weight) * values[right - 1] + weight * values[right]


class ReplicaRun:
    """A replica while it serves: requests are given to it in the order in which they arrive.

    Attributes:
        busy_s: that it computed.
        kv_token_s: tokens in its cache, summed over time.
        waited_s: that requests waited to be admitted, together.
        waited_for_s: of this the steps that took none of them, by what had no room: see `WaitsFor`.
    """

    def __init__(self, replica: Replica, requests: Requests, answers: AnswerTimes) -> None:
        self._replica, self._rules = replica, replica.rules
        self._times = StepTimes(replica.steps, replica.n_sequences)
        self._arrivals, self._inputs, self._outputs, self._cached = (column.tolist() for column in requests)
        self._answers = answers
        self._queue: deque[_Sequence] = deque()
        self._partial: dict[int, _Sequence] = {}  # admitted, prompt not complete, in the order of admission
        self._decoding: dict[int, _Sequence] = {}
        self._ends: list[tuple[int, int]] = []  # heap of the step after which a sequence ends, and its number
        self._now = 0.0
        self._step = 0  # of decoding
        self._n_steps = 0  # of any kind
        self._took_back = -1  # before which step a sequence was taken back last
        self._held = 0.0  # tokens in the cache of sequences that decode
        self._held_partial = 0
        self._left = 0.0  # tokens that sequences in flight still answer
        self._n_admitted = 0
        self._waiting_since: dict[int, float] = {}
        self._lacks: int | None = None  # what the next step has no room in for the first of the queue
        self.busy_s = self.kv_token_s = self.waited_s = 0.0
        self.waited_for_s = [0.0] * len(WaitsFor._fields)
        self.n_preempted = 0

    def take(self, number: int) -> None:
        """Take the next request, for whose arrival `advance` was called before."""
        arrival, n_input = self._arrivals[number], self._inputs[number]
        left = ceil((self._outputs[number] - 1) / self._replica.tokens_of_step)
        sequence = _Sequence(number, n_input, self._cached[number], left)
        if self._replica.is_asynchronous and self._now > arrival:  # a step was in progress, and the next was prepared
            sequence.ready = self._n_steps + 1
        self._queue.append(sequence)
        self._waiting_since[number] = arrival
        self._now = max(self._now, arrival)

    def advance(self, until_s: float) -> None:
        """Take steps until a time has come, at which the last may be in progress, or nothing is left to do."""
        replica = self._replica
        while self._now < until_s:
            # Sequences that the next step decodes have room before prompts are admitted to it.
            if self._decoding and (replica.mixes or not (self._partial or self._queue)):
                self._make_room()
            parts = self._parts()
            if parts:
                self._prompt_step(parts)
            elif self._decoding:
                self._make_room()
                self._jump(until_s)
            elif self._partial:
                # Prompts fill the cache and none can go on: one of them gives way.
                self._take_back()
            else:
                return

    @property
    def _n_in_flight(self) -> int:
        return len(self._partial) + len(self._decoding)

    def _free(self) -> float:
        """Tokens that the cache has room for; a sequence leaves half of a block empty in the mean."""
        unused = self._n_in_flight * (self._rules.block_tokens - 1) / 2
        return self._replica.kv_tokens - self._held - self._held_partial - unused

    def _room(self) -> float:
        """Tokens by which sequences that decode can grow.

        The cache is full when a sequence needs another block, not when the last token is written: about a block later
        than the mean of empty tokens says.
        """
        return self._free() + self._rules.block_tokens - 1

    def _make_room(self) -> None:
        while self._decoding and self._room() < len(self._decoding) * self._replica.tokens_of_step:
            self._take_back()

    def _take_back(self) -> None:
        """The sequence that loses its keys and values comes first in the queue."""
        every = [*self._decoding.values(), *self._partial.values()]
        if self._rules.takes_back is TakesBack.LAST_ADMITTED:
            victim = max(every, key=lambda each: each.order)
        else:
            victim = min(every, key=lambda each: (self._answered(each), -each.needed, -each.order))
        number = victim.number
        if self._decoding.pop(number, None) is not None:
            n_steps = self._step - victim.from_step
            grown = n_steps * self._replica.tokens_of_step
            self._held -= victim.needed + grown
            self._left -= (victim.left - n_steps) * self._replica.tokens_of_step
            victim.answered = self._answered(victim)
            # What it has answered is a part of the prompt that is computed again, at whose end a token comes.
            victim.needed += int(grown) + 1
            victim.left -= n_steps + 1
            assert victim.left >= 0
        else:
            del self._partial[number]
            self._held_partial -= victim.computed
            self._left -= victim.left * self._replica.tokens_of_step
        victim.computed = 0
        victim.from_step = -1
        self._queue.appendleft(victim)
        self._waiting_since[number] = self._now
        self._took_back = self._n_steps
        self.n_preempted += 1

    def _answered(self, sequence: _Sequence) -> float:
        if sequence.from_step < 0:
            return sequence.answered
        return sequence.answered + 1 + (self._step - sequence.from_step) * self._replica.tokens_of_step

    def _parts(self) -> list[tuple[_Sequence, int]]:
        """The parts of prompts of the next step: of those begun before, then of new ones as the engine admits them."""
        replica, rules = self._replica, self._rules
        n_decoding = len(self._decoding) if replica.mixes else 0
        budget = replica.step_tokens - n_decoding * replica.verified_tokens
        free = self._free() - n_decoding * replica.tokens_of_step
        parts: list[tuple[_Sequence, int]] = []
        self._lacks = None
        # Prompts that were begun come first, in the order of their admission.
        for sequence in self._partial.values():
            part = int(min(sequence.needed - sequence.computed, budget, replica.part_tokens, free))
            if part < 1:
                self._lacks = _TOKENS if budget < 1 else _KV
                return parts
            parts.append((sequence, part))
            budget -= part
            free -= part
        if self._took_back == self._n_steps and self._n_in_flight:
            self._lacks = _KV
            return parts  # none is admitted in a step for which one was taken back
        # Then the queue, whose first request waits for room while later ones wait behind it.
        while self._queue:
            if self._n_in_flight >= replica.n_sequences:
                self._lacks = _SEQUENCES
                break
            if budget <= 0:
                self._lacks = _TOKENS
                break
            sequence = self._queue[0]
            if sequence.ready > self._n_steps and (self._n_in_flight or parts):
                break  # the step was prepared before the request came
            part = int(min(sequence.needed - sequence.cached, budget, replica.part_tokens))
            own = sequence.left * replica.tokens_of_step
            asked: float = sequence.needed if rules.counts_whole_prompt else sequence.cached + part
            asked += rules.own_share * own + rules.running_share * self._left + rules.block_tokens
            # A request that is alone is admitted in any case: `check` has made sure that the cache holds it.
            if asked > free and self._n_in_flight:
                self._lacks = _KV
                break
            self._admit(self._queue.popleft())
            free -= sequence.cached + part
            budget -= part
            parts.append((sequence, part))
        return parts

    def _admit(self, sequence: _Sequence) -> None:
        number = sequence.number
        sequence.order, sequence.computed = self._n_admitted, sequence.cached
        self._n_admitted += 1
        self._partial[number] = sequence
        self._held_partial += sequence.cached
        self._left += sequence.left * self._replica.tokens_of_step
        self.waited_s += self._now - self._waiting_since.pop(number)
        if np.isnan(self._answers.admitted_s[number]):
            self._answers.admitted_s[number] = self._now

    def _prompt_step(self, parts: list[tuple[_Sequence, int]]) -> None:
        replica = self._replica
        n = len(self._decoding) if replica.mixes else 0
        seconds = self._times.decode(n, self._held / n)[0] if n else 0.0
        prompts = self._times.prompts(n * replica.verified_tokens, [(part, each.computed) for each, part in parts])
        grown = n * replica.tokens_of_step
        self._pass(seconds + prompts, grown)
        if n:
            self._decoded(1)
        # Steps take as long as the slowest stage; a first token comes once its prompt is through the others, too.
        rest = (replica.steps.through - 1) * prompts
        for sequence, part in parts:
            sequence.computed += part
            self._held_partial += part
            if sequence.computed == sequence.needed:
                self._begin(sequence, self._now + rest)

    def _begin(self, sequence: _Sequence, at_s: float) -> None:
        """The prompt is computed: a token comes, and the sequence decodes from now on."""
        number = sequence.number
        del self._partial[number]
        self._held_partial -= sequence.computed
        if np.isnan(self._answers.first_token_s[number]):
            self._answers.first_token_s[number] = at_s
        if sequence.left <= 0:
            self._answers.end_s[number] = at_s
            return
        self._held += sequence.needed
        sequence.from_step = self._step
        self._decoding[number] = sequence
        heappush(self._ends, (self._step + sequence.left, number))

    def _jump(self, until_s: float) -> None:
        """Steps that decode only, up to the next event."""
        replica, n = self._replica, len(self._decoding)
        per_step = replica.tokens_of_step
        length = self._held / n
        seconds, slope, until = self._times.decode(n, length)
        slope *= per_step
        self._drop_stale_ends()
        # Alike until the first answer ends, the cache is full, attention has another slope, or the next request comes.
        steps = min(self._ends[0][0] - self._step, int(self._room() / (n * per_step)))
        if until > length:  # beyond the grid the last slope goes on
            steps = min(steps, ceil((until - length) / per_step))
        steps = max(1, min(steps, _steps_until(until_s - self._now, seconds, slope)))
        if self._queue and (self._queue[0].ready > self._n_steps or self._took_back == self._n_steps):
            steps = 1  # a request that waits may join the step after this one
        total = steps * seconds + slope * steps * (steps - 1) / 2  # each step is longer than the one before
        self._pass(total, steps * n * per_step, steps)
        self._decoded(steps)

    def _drop_stale_ends(self) -> None:
        while self._ends:
            step, number = self._ends[0]
            sequence = self._decoding.get(number)
            if sequence is not None and sequence.from_step + sequence.left == step:
                return
            heappop(self._ends)

    def _pass(self, seconds: float, grown: float, n_steps: int = 1) -> None:
        self._n_steps += n_steps
        self._now += seconds
        self.busy_s += seconds
        if self._lacks is not None:
            self.waited_for_s[self._lacks] += seconds * len(self._queue)
        self.kv_token_s += seconds * (self._held + self._held_partial + grown / 2)

    def _decoded(self, n_steps: int) -> None:
        per_step = self._replica.tokens_of_step
        self._step += n_steps
        grown = n_steps * len(self._decoding) * per_step
        self._held += grown
        self._left -= grown
        while True:
            self._drop_stale_ends()
            if not self._ends or self._ends[0][0] > self._step:
                break
            _, number = heappop(self._ends)
            sequence = self._decoding.pop(number)
            self._held -= sequence.needed + sequence.left * per_step
            self._answers.end_s[number] = self._now


def _steps_until(gap_s: float, seconds: float, slope: float) -> int:
    """The number of steps, each longer than the one before by `slope`, after which a gap has passed; 1 or more."""
    if gap_s <= seconds:
        return 1
    if gap_s == inf:
        return _MANY_STEPS
    if slope * gap_s < 1e-9 * seconds * seconds:
        return ceil(gap_s / seconds)  # the root below would lose all digits
    # n steps take n seconds + slope n (n - 1) / 2: the positive root of a quadratic equation.
    half = seconds - slope / 2
    return max(1, ceil((sqrt(half * half + 2 * slope * gap_s) - half) / slope))
