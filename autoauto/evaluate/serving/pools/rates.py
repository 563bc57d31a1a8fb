"""What a pool of prefill workers and one of decode replicas give together: `queue_s`, `transfer_s`.

    requests --> | prefill worker | --> KV cache of the prompt --> | decode replica | --> answers
                 | prefill worker |     over a link                | decode replica |
                   P workers, u requests/s each                      N replicas, v requests/s each

The rate of both is that of the slower, min(P u, N v). A decode step holds no prompts, so the time between tokens is
that of full batches of the decode pool, also where prompts come too slowly to fill them. The first token comes after

    a wait for a worker that is free, the prompt, the transfer of its keys and values, and a decode step
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoauto.records.costs.decoder import Decoder
from autoauto.records.hardware import Link
from autoauto.records.units import FloatArray
from autoauto.targets.gpu.costs import serving_by_kind
from autoauto.targets.gpu.memory import block_cache_bytes
from autoauto.targets.gpu.systems import CLOCK_HZ
from autoauto.targets.gpu.tables import Serving

_BUSIEST = 0.95
"""The largest share of the time that workers compute for which their queue is taken as steady."""


class PrefillRates(NamedTuple):
    """The rates of all prefill workers.

    Attributes:
        prompt_s: from a request to its first token where no other waits, with what the host does once a request.
        batch_s: that a worker computes a batch of prompts.
    """

    n_workers: int
    requests_per_s: float
    prompt_s: float
    batch_s: float


def queue_s(service_s: float, n_servers: int, busy_share: FloatArray) -> FloatArray:
    """How long requests wait for one of several servers in the mean [sakasegawa], each served in the same time.

    Of one server it is the formula of Pollaczek and Khinchine, r / (1 - r) / 2 of the time of a service:

    >>> queue_s(1.0, 1, np.array([0.5])), round(queue_s(1.0, 4, np.array([0.5])).item(), 3)
    (array([0.5]), 0.056)
    """
    busy = np.minimum(busy_share, _BUSIEST)
    exponent = np.sqrt(2 * (n_servers + 1)) - 1
    return np.asarray(service_s * busy**exponent / (n_servers * (1 - busy)) / 2, dtype=np.float64)


def transfer_s(decoder: Decoder, prefill: Serving, decode: Serving, n_stages: int, n_tokens: int, link: Link) -> float:
    """Seconds in which the keys and values of a prompt move from a prefill worker to a decode replica.

    Every GPU sends and receives over a link of its own, all at the same time, and those that have the most take the
    longest: where groups are larger than there are heads of keys and values, or where they are latent vectors, GPUs
    have copies.
    """
    sent = prompt_bytes(decoder, prefill, n_tokens)
    received = prompt_bytes(decoder, decode, n_tokens) / n_stages
    return float(link.idle_cycles / CLOCK_HZ + max(sent, received) / link.bytes_per_s)


def prompt_bytes(decoder: Decoder, serving: Serving, n_tokens: int) -> float:
    """Bytes of the keys and values of a prompt on one GPU of a group, if it has all blocks."""
    of_kinds = [block_cache_bytes(alike, of_kind, n_tokens) for alike, of_kind in serving_by_kind(decoder, serving)]
    return sum(of_kinds[kind] for kind in decoder.block_order)
