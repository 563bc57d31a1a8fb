"""Which tokens of prompts a prefix cache has: `cached_tokens`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from autoauto.records.costs.traffic.load import BLOCK_TOKENS
from autoauto.records.units import IntArray


class _PrefixCache:
    """The blocks of prompts that a replica has, the least recently used first."""

    def __init__(self, n_blocks: int) -> None:
        self._n_blocks, self._blocks = n_blocks, dict[Hashable, None]()

    def take(self, blocks: Sequence[Hashable]) -> int:
        """Count the first blocks of a prompt that are cached, then cache all of its blocks as far as there is room."""
        n_hits = 0
        while n_hits < len(blocks) and blocks[n_hits] in self._blocks:
            n_hits += 1
        for block in reversed(blocks):  # the last are given up first: they are of no use without those before them
            self._blocks.pop(block, None)
            self._blocks[block] = None
        while len(self._blocks) > self._n_blocks:
            del self._blocks[next(iter(self._blocks))]
        return n_hits


def cached_tokens(blocks: Sequence[Sequence[Hashable]], n_input: IntArray, kv_tokens: Sequence[int]) -> IntArray:
    """Tokens of each prompt that its replica has in its cache, where prompts go to one replica after the other.

        blocks of prompts, one after the other:   a b c | a b d | e | a b c
        one replica with room for all:            0       2 hits  0   3 hits
        with room for three blocks:               0       2 hits  0   2 hits     "c" made room for "d" and "e"
        two replicas with room for all:           0       0       0   2 hits     the second had "a b d" only

    A cache is taken to have room for as many tokens of prompts as the KV cache holds, whatever else is in it, and a
    prompt to be there as soon as it has come. The last token of a prompt is always computed.

    Args:
        blocks: of each prompt the names of its blocks of `BLOCK_TOKENS` tokens; a name stands for all before it, too.
        n_input: tokens of each prompt, shape (requests,), as the result.
        kv_tokens: what the KV cache of each replica holds.
    """
    caches = [_PrefixCache(n_tokens // BLOCK_TOKENS) for n_tokens in kv_tokens]
    n_hits = [caches[number % len(caches)].take(prompt) for number, prompt in enumerate(blocks)]
    return np.minimum(np.array(n_hits, dtype=np.int64) * BLOCK_TOKENS, n_input - 1)
