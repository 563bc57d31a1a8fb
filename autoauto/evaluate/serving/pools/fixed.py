"""Two pools whose cuts are given, as measured rows have them: `FixedPools`."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np

from autoauto.evaluate.serving.fixed import FixedReplicas
from autoauto.evaluate.serving.pools.rates import PrefillRates, queue_s, transfer_s
from autoauto.evaluate.serving.rates import Rates
from autoauto.targets.gpu.systems import system_named

_N_HALVINGS = 40
_N_SIZES = 96
"""So many batch sizes of the decode pool are tried; between them rates are interpolated."""


class FixedPools(NamedTuple):
    """Prefill workers and decode replicas on GPUs of one system."""

    prefill: FixedReplicas  # the workers, whose requests have answers of one token
    decode: FixedReplicas  # the replicas, whose requests have prompts that are cached
    n_prompts: int  # that a worker computes at a time

    @staticmethod
    def of(prefill: FixedReplicas, decode: FixedReplicas, n_prompts: int) -> FixedPools:
        """Two pools of replicas that are given as if each computed whole requests."""
        requests = prefill.requests
        of_prompts, of_answers = requests._replace(output_tokens=1), requests._replace(cached_share=1.0)
        return FixedPools(replace(prefill, requests=of_prompts), replace(decode, requests=of_answers), n_prompts)

    @property
    def n_gpus(self) -> int:
        """GPUs of both pools."""
        return self.prefill.n_gpus + self.decode.n_gpus

    def prefill_rates(self) -> PrefillRates:
        """The rates of the workers; raises as `layer_costs`."""
        rates, n_workers = self.prefill.rates(self.n_prompts), self.prefill.n_replicas
        per_s = rates.requests_per_s.item()
        return PrefillRates(n_workers, per_s, rates.ttft_s.item(), n_workers * self.n_prompts / per_s)

    def closed_loop(self, n_clients: int) -> Rates:
        """The rates for clients that wait for an answer before they ask again.

        Of C clients x wait for tokens and the others for their prompts, as many as by Little's law are in the pool of
        prompts while x get answers. The prompts of all come at once in the first of their waves.

        Raises:
            Unsupported: not one sequence fits, or as `layer_costs`.
        """
        prefill, n_pipelines = self.prefill_rates(), self.decode.n_replicas * len(self.decode.n_blocks)
        self.prefill.check_holds(self.n_prompts)
        most = min(self.decode.check_holds(), -(-n_clients // n_pipelines))
        sizes = np.unique(np.geomspace(1, most, _N_SIZES).round().astype(np.int64))
        system, decoding = system_named(self.decode.serving.system), self.decode.serving
        link = system.link(same_node=self.n_gpus <= system.n_gpus_per_node)
        n_tokens, n_stages = self.decode.requests.input_tokens, len(self.decode.n_blocks)
        moved_s = transfer_s(self.decode.decoder, self.prefill.serving, decoding, n_stages, n_tokens, link)
        tpot_s = self.decode.rates(sizes).tpot_s
        n_between = max(1, self.decode.requests.output_tokens - 1)

        def at(n_decoding: float) -> tuple[float, float, float]:
            """Answers a second, TPOT and TTFT where so many clients wait for tokens."""
            between_s = float(np.interp(n_decoding / n_pipelines, sizes, tpot_s))
            per_s = n_decoding / (n_between * between_s)
            busy = per_s / prefill.requests_per_s
            waits_s = inf if busy >= 1 else queue_s(prefill.batch_s, prefill.n_workers, np.array(busy)).item()
            return per_s, between_s, prefill.prompt_s + waits_s + moved_s + between_s

        low, high = 0.0, float(min(n_clients, most * n_pipelines))
        for _ in range(_N_HALVINGS):
            middle = (low + high) / 2
            per_s, _, first_s = at(middle)
            # By Little's law `per_s * first_s` clients wait for their first token.
            if middle + per_s * first_s < n_clients:
                low = middle
            else:
                high = middle
        per_s, between_s, _ = at(low)
        first_wave_s = n_clients / prefill.requests_per_s / 2 + self.prefill.arrivals.warm_up_s
        first_s = (n_clients - low) / per_s + first_wave_s / self.prefill.arrivals.n_waves
        return Rates(
            period_s=np.atleast_1d(between_s / n_stages),
            tpot_s=np.atleast_1d(between_s),
            ttft_s=np.atleast_1d(first_s),
            tokens_per_s=np.atleast_1d(per_s * self.decode.requests.output_tokens),
            requests_per_s=np.atleast_1d(per_s),
        )
