"""A serving engine simulated one step at a time, in blocks of its cache: the oracle of `evaluate/serving/traffic`.

It shares no code with what it examines. `traffic_speed.py` and the tests of the room use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Rules:
    """Of an engine; names as those of vLLM's scheduler."""

    mixes: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int
    reserves_answer: bool = False
    reserves_running: float = 0.0
    first_chunk_only: bool = True
    retracts_shortest: bool = False
    asynchronous: bool = False


@dataclass
class Request:
    """On its way; `tokens` counts those that its blocks hold."""

    number: int
    arrival: float
    prompt: int
    answer: int
    cached: int
    tokens: int = 0
    emitted: int = 0
    goal: int = 0
    admitted: float | None = None
    first: float | None = None
    end: float | None = None
    seen: int = 0
    blocks: int = 0


@dataclass
class Engine:
    """Takes one step after the other."""

    rules: Rules
    decode_s: Callable[[int, float], float]
    prompts_s: Callable[[int, Sequence[tuple[int, int]]], float]
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    now: float = 0.0
    steps: int = 0
    preemptions: int = 0
    busy: float = 0.0

    def free_blocks(self) -> int:
        """Blocks that no sequence has."""
        return self.rules.num_blocks - sum(request.blocks for request in self.running)

    def grow(self, request: Request, tokens: int) -> bool:
        """Blocks for so many tokens more; False where there are none."""
        needed = -(-(request.tokens + tokens) // self.rules.block_size) - request.blocks
        if needed > self.free_blocks():
            return False
        request.blocks += needed
        return True

    def preempt(self) -> Request:
        """A sequence loses its blocks and comes first in the queue."""
        victim = self.running[-1]
        if self.rules.retracts_shortest:
            victim = min(self.running, key=lambda r: (r.emitted, -r.goal, -self.running.index(r)))
        self.running.remove(victim)
        victim.goal = victim.prompt + victim.emitted
        victim.tokens = victim.blocks = 0
        victim.seen = 0
        self.waiting.insert(0, victim)
        self.preemptions += 1
        return victim

    def is_decoding(self, request: Request) -> bool:
        """True if all that comes before its next token is computed."""
        return request.tokens >= request.goal

    def step(self) -> bool:
        """One step; False where there is nothing to do."""
        before = self.preemptions
        decoding = self.take_decoding() if self.rules.mixes else []
        parts = self.take_parts(self.rules.max_num_batched_tokens - len(decoding), admits=self.preemptions == before)
        if not self.rules.mixes and not parts:
            decoding = self.take_decoding()
        if not parts and not decoding:
            return False
        seconds = 0.0
        if decoding:
            seconds += self.decode_s(len(decoding), sum(r.tokens for r in decoding) / len(decoding))
        if parts:
            seconds += self.prompts_s(len(decoding), [(part, r.tokens) for r, part in parts])
        self.now += seconds
        self.busy += seconds
        self.steps += 1
        self.emit(decoding, parts)
        return True

    def take_decoding(self) -> list[Request]:
        """The sequences that get a token; the last ones are preempted where blocks lack."""
        decoding: list[Request] = []
        for request in [each for each in self.running if self.is_decoding(each)]:
            while request in self.running and not self.grow(request, 1):
                victim = self.preempt()
                if victim in decoding:
                    decoding.remove(victim)
            if request in self.running:
                decoding.append(request)
        return decoding

    def take_parts(self, budget: int, *, admits: bool) -> list[tuple[Request, int]]:
        """The parts of prompts that are computed, each with its tokens."""
        parts: list[tuple[Request, int]] = []
        for request in self.running:
            if self.is_decoding(request):
                continue
            room = (self.free_blocks() + request.blocks) * self.rules.block_size - request.tokens
            part = min(request.goal - request.tokens, budget, room)
            if part < 1:
                return parts
            assert self.grow(request, part)
            parts.append((request, part))
            budget -= part
        while admits and self.waiting and budget > 0 and self.may_admit(self.waiting[0], budget):
            request = self.waiting.pop(0)
            part = min(request.goal - request.cached, budget)
            self.running.append(request)
            assert self.grow(request, request.cached + part)
            request.tokens = request.cached
            if request.admitted is None:
                request.admitted = self.now
            parts.append((request, part))
            budget -= part
        return parts

    def may_admit(self, request: Request, budget: int) -> bool:
        """True if the engine admits the request that waits first."""
        rules = self.rules
        if not self.running:
            return True
        if len(self.running) >= rules.max_num_seqs or (rules.asynchronous and request.seen > self.steps):
            return False
        asked: float = request.goal
        if rules.first_chunk_only:
            asked = request.cached + min(request.goal - request.cached, budget)
        if rules.reserves_answer:
            asked += request.answer - request.emitted - 1
        asked += rules.reserves_running * sum(r.answer - max(r.emitted, 1) for r in self.running)
        return asked + rules.block_size <= self.free_blocks() * rules.block_size

    def emit(self, decoding: Sequence[Request], parts: Sequence[tuple[Request, int]]) -> None:
        """Tokens that a step made."""
        for request in decoding:
            request.tokens += 1
            request.emitted += 1
        for request, part in parts:
            request.tokens += part
            if request.tokens == request.goal:
                request.emitted += 1
                request.first = self.now if request.first is None else request.first
        for request in list(self.running):
            if request.emitted >= request.answer:
                request.end = self.now
                self.running.remove(request)


def simulate(engine: Engine, requests: Sequence[Request]) -> None:
    """Serve all requests, which are in the order of their arrival."""
    coming = list(requests)
    for request in coming:
        request.goal = request.prompt
    while coming or engine.waiting or engine.running:
        while coming and coming[0].arrival <= engine.now:
            request = coming.pop(0)
            request.seen = engine.steps + (request.arrival < engine.now)
            engine.waiting.append(request)
        if not engine.step():
            assert coming, "nothing can go on"
            engine.now = max(engine.now, coming[0].arrival)
