"""Servers of one configuration side by side, among which clients are shared: `ServerGroup`.

16 clients ──┬── 8 ──▶ server 0, cores 0 and 1
             └── 8 ──▶ server 1, cores 2 and 3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from math import isfinite
from time import perf_counter
from types import TracebackType
from typing import Self

from autoauto.evaluate.serving.live.readings import LoadReading
from autoauto.load.measure import measure_tokens
from autoauto.load.tokens import TokenLoad, TokenMeasurement
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.traffic.requests import Percentiles
from autoauto.records.errors import BadInput, MeasurementsFailed, Unsupported
from autoauto.records.target import LiveServer, RunsServers
from autoauto.space.knobs import Knobs

_EXTRA: Mapping[str, object] = {"cache_prompt": False}
"""Every prompt is computed whole, though the server keeps prompts."""


class ServerGroup:
    """The servers of a configuration, one a replica on cores of its own; a context in which they run.

    Raises:
        OutOfMemory, Unsupported: one of them does not come up.
    """

    def __init__(self, target: RunsServers, knobs: Knobs, requests: Workload) -> None:
        self._target, self._requests = target, requests
        self._n_loads, self._is_closed = 0, False
        numbers = [None] if knobs.replicas == 1 else range(knobs.replicas)
        with ExitStack() as started:
            self._servers: list[LiveServer] = [
                started.enter_context(target.serve(knobs.session, knobs.batch_size, requests, number))
                for number in numbers
            ]
            self._open = started.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all servers."""
        self._is_closed = True
        self._open.close()

    @property
    def is_alive(self) -> bool:
        """Whether all run."""
        return not self._is_closed and all(server.is_alive for server in self._servers)

    @property
    def cpu_s(self) -> float:
        """Seconds that all have computed."""
        return sum(server.cpu_s for server in self._servers)

    def warm_up(self, n_clients: int) -> None:
        """Requests of all clients with answers of two tokens: memory is touched, threads are there."""
        self._put_on(n_clients, 2)

    def load(self, n_clients: int) -> LoadReading:
        """A request of every client, each to one of the servers.

        Raises:
            OutOfMemory, Unsupported: a server has ended, refuses requests or answers wrongly.
        """
        return self._put_on(n_clients, self._requests.output_tokens)

    def _put_on(self, n_clients: int, output_tokens: int) -> LoadReading:
        self._n_loads += 1  # other prompts than before: the server keeps those
        start_cpu_s, start_s = self.cpu_s, perf_counter()
        measured = self._all_measured(n_clients, output_tokens)
        cpu_s, wall_s = self.cpu_s - start_cpu_s, perf_counter() - start_s
        n_tokens = sum(each.n_tokens for each in measured)
        return LoadReading(
            cpu_s=cpu_s / n_tokens,
            cores=cpu_s / wall_s,
            tokens_per_s=n_tokens / max(each.wall_s for each in measured),
            tpot_s=_mean(measured, lambda each: each.tpot_s),
            ttft_s=_mean(measured, lambda each: each.ttft_s),
            latency_s=_mean(measured, lambda each: each.latency_s),
        )

    def _all_measured(self, n_clients: int, output_tokens: int) -> list[TokenMeasurement]:
        n_servers = len(self._servers)
        loads: list[Future[TokenMeasurement]] = []
        with ThreadPoolExecutor(n_servers) as threads:
            for number, server in enumerate(self._servers):
                n_own = shared_out(n_clients, n_servers, number)
                if n_own:
                    seed = self._n_loads * n_servers + number
                    loads.append(threads.submit(self._measured, server, n_own, output_tokens, seed))
            try:
                return [load.result() for load in loads]
            except BaseException:
                self.close()  # so that the other loads end at once
                raise

    def _measured(self, server: LiveServer, n_clients: int, output_tokens: int, seed: int) -> TokenMeasurement:
        load = TokenLoad(
            n_clients=n_clients,
            input_tokens=self._requests.input_tokens,
            output_tokens=output_tokens,
            vocabulary_size=self._target.decoder.vocabulary_size,
            n_requests=n_clients,
            n_warmup=0,
            seed=seed,
            extra=_EXTRA,
        )
        try:
            measured = measure_tokens(server.address, load)
        except (MeasurementsFailed, BadInput, OSError) as error:
            raise server.failure() or Unsupported(f"the server fails: {error}") from None
        if measured.n_failed or measured.n_tokens != n_clients * output_tokens:
            reason = next(iter(measured.notes), f"answers have {measured.n_tokens} tokens together")
            raise server.failure() or Unsupported(f"the server answers wrongly: {reason}")
        return measured


def shared_out(n_clients: int, n_servers: int, number: int) -> int:
    """The clients of a server; the first have one more where they cannot be equal.

    >>> [shared_out(16, 3, number) for number in range(3)]
    [6, 5, 5]
    """
    return n_clients // n_servers + (number < n_clients % n_servers)


def _mean(measured: Sequence[TokenMeasurement], quantity: Callable[[TokenMeasurement], Percentiles]) -> float:
    """The mean over the requests of all servers; 0 where there is none, as of TPOT with answers of one token."""
    means = [(quantity(each).mean, each.n_requests) for each in measured]
    total = sum(mean * n_requests for mean, n_requests in means)
    return total / sum(n_requests for _, n_requests in means) if isfinite(total) else 0.0
