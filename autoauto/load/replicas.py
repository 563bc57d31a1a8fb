"""Several servers of one model behind one load: `SharedServers`. A request goes to that with the fewest under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autoauto.engines.metrics import ServerState
from autoauto.load.openai import OpenAiEndpoint, StreamedAnswer


class SharedServers:
    """Servers of one model, one or more."""

    def __init__(self, endpoints: Sequence[OpenAiEndpoint]) -> None:
        self._endpoints = endpoints
        self._n_in_flight = [0] * len(endpoints)

    async def generate(
        self, prompt: Sequence[int] | str, n_tokens: int, on_event: Callable[[float], None]
    ) -> StreamedAnswer:
        """Send a prompt to one of them; see `OpenAiEndpoint.generate`."""
        chosen = self._n_in_flight.index(min(self._n_in_flight))
        self._n_in_flight[chosen] += 1
        try:
            return await self._endpoints[chosen].generate(prompt, n_tokens, on_event)
        finally:
            self._n_in_flight[chosen] -= 1

    async def server_state(self) -> ServerState | None:
        """The state of all servers together; None if one does not state its own."""
        states = [await endpoint.server_state() for endpoint in self._endpoints]
        known = [state for state in states if state is not None]
        return together(known) if len(known) == len(states) else None


def together(states: Sequence[ServerState]) -> ServerState:
    """Numbers of several servers added up; of the use of KV caches the largest.

    >>> together([ServerState("e", 1.0, 0.0, 0.2, None, 5.0), ServerState("e", 2.0, 1.0, 0.5, None, 6.0)])
    ServerState(engine='e', running=3.0, waiting=1.0, kv_usage=0.5, preemptions=None, output_tokens=11.0)
    """

    def combined(name: str, of: Callable[[list[float]], float]) -> float | None:
        values = [getattr(state, name) for state in states]
        return None if None in values else of(values)

    running = sum(state.running for state in states)
    waiting, kv_usage = combined("waiting", sum), combined("kv_usage", max)
    return ServerState(
        states[0].engine, running, waiting, kv_usage, combined("preemptions", sum), combined("output_tokens", sum)
    )
