"""Who serves requests that arrive: `OnePool` of replicas, or `TwoPools`, prefill workers and replicas that decode.

    requests --> | prefill workers |   a request ends with its prompt
                          |   its keys and values move
                          v
                 | replicas        |   a request arrives then, with all of its prompt in the cache but the last token,
                                       so its first token comes after a step

In each pool requests go to one server after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np

from autoauto.evaluate.serving.traffic.balancer import serve
from autoauto.evaluate.serving.traffic.capacity import largest_rate
from autoauto.evaluate.serving.traffic.replica import Replica
from autoauto.records.costs.traffic.requests import Requests, Served, WaitsFor
from autoauto.records.units import FloatArray


class Servers(Protocol):
    """Servers that requests are sent to."""

    def serve(self, requests: Requests) -> Served:
        """When requests are answered; raises as `balancer.serve`."""

    def caches(self) -> Sequence[int]:
        """Tokens that the KV cache of each server of prompts holds."""

    def largest_rate(self, requests_at: Callable[[float], Requests], about: float) -> float:
        """Requests a second, near `about`, above which the queue certainly grows for ever; infinite if not known."""


class OnePool(NamedTuple):
    """Replicas that compute prompts and answers."""

    replicas: Sequence[Replica]

    def serve(self, requests: Requests) -> Served:
        """Implements `Servers`."""
        return serve(self.replicas, requests)

    def caches(self) -> Sequence[int]:
        """Implements `Servers`."""
        return [each.kv_tokens for each in self.replicas]

    def largest_rate(self, requests_at: Callable[[float], Requests], about: float) -> float:
        """Implements `Servers`."""
        return largest_rate(self.replicas, requests_at, about)


class TwoPools(NamedTuple):
    """Servers of prompts, and replicas that answer.

    Attributes:
        decode: the replicas; a step of theirs takes the last token of prompts that come, whatever the engine.
        transfer_s: of the keys and values of a token of a prompt.
    """

    prefill: Sequence[Replica]
    decode: Sequence[Replica]
    transfer_s: float

    def serve(self, requests: Requests) -> Served:
        """Implements `Servers`; a request counts as admitted when all that it waits in both pools has passed."""
        prompts = serve(self.prefill, prompts_of(requests))
        handed_s = prompts.end_s + self._transfers(requests)
        order = np.argsort(handed_s, kind="stable")
        answers = serve(self.decode, answers_of(requests)._replace(arrival_s=handed_s).chosen(order))
        back = np.argsort(order, kind="stable")
        waited_s = answers.admitted_s[back] - handed_s
        n_prefill, n_decode = len(self.prefill), len(self.decode)
        return Served(
            prompts.admitted_s + waited_s,
            answers.first_token_s[back],
            answers.end_s[back],
            busy_share=(n_prefill * prompts.busy_share + n_decode * answers.busy_share) / (n_prefill + n_decode),
            kv_share=answers.kv_share,
            n_waiting=prompts.n_waiting + answers.n_waiting,
            waits_for=WaitsFor(*map(sum, zip(prompts.waits_for, answers.waits_for, strict=True))),
            n_preempted=prompts.n_preempted + answers.n_preempted,
        )

    def caches(self) -> Sequence[int]:
        """Implements `Servers`."""
        return [each.kv_tokens for each in self.prefill]

    def largest_rate(self, requests_at: Callable[[float], Requests], about: float) -> float:
        """Implements `Servers`: that of the smaller pool.

        At the replicas requests may lack when the last one comes that are in workers, or on their way from these.
        """
        of_prompts = largest_rate(self.prefill, lambda rate: prompts_of(requests_at(rate)), about)
        longest_s = float(self._transfers(requests_at(about)).max())
        n_before = sum(each.n_sequences for each in self.prefill) + ceil(min(of_prompts, 1e6) * longest_s)
        of_answers = largest_rate(self.decode, lambda rate: answers_of(requests_at(rate)), about, n_before)
        return min(of_prompts, of_answers)

    def _transfers(self, requests: Requests) -> FloatArray:
        """Seconds of the transfer of each request, shape (requests,)."""
        return np.asarray(self.transfer_s * requests.input_tokens)


def prompts_of(requests: Requests) -> Requests:
    """The requests as prefill workers see them: with answers of one token."""
    return requests._replace(output_tokens=np.ones_like(requests.output_tokens))


def answers_of(requests: Requests) -> Requests:
    """The requests as replicas see them whose prompts others computed: only the last token is computed again."""
    return requests._replace(cached_tokens=requests.input_tokens - 1)
