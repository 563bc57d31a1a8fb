"""Prompts of an exact number of tokens, without a common prefix: `token_prompt`, `TextPrompts`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np

from autoauto.load.tokens import TokenLoad
from autoauto.records.errors import BadInput

_WORDS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work number night point home water room mother area money story fact
month lot right study book eye job word business side kind head house service friend father power hour game line end
"""
WORDS = tuple(_WORDS.split())
"""Common English words: most tokenizers make one token of each."""


def token_prompt(load: TokenLoad, vocabulary_size: int, number: int) -> list[int]:
    """The token ids of a request's prompt, random below the size of the vocabulary."""
    return _random(load, vocabulary_size, number, load.input_tokens)


class TextPrompts:
    """Prompts as text of about so many tokens, for protocols that take no token ids."""

    def __init__(self, load: TokenLoad, n_words: int) -> None:
        self._load, self._n_words = load, n_words

    def __call__(self, number: int) -> str:
        """The prompt of a request."""
        return " ".join(WORDS[index] for index in _random(self._load, len(WORDS), number, self._n_words))

    @classmethod
    async def fitted(cls, load: TokenLoad, n_tokens: Callable[[str], Awaitable[int]]) -> TextPrompts:
        """Prompts of the length that the load asks for, by what the server counts in three others.

        A chat's template adds the same number of tokens to every prompt.

        Raises:
            BadInput: the template alone has more tokens.
        """
        n_short, n_long = 8, 16
        short, long = [await n_tokens(cls(load, n)(n)) for n in (n_short, n_long)]
        # Two counts give the tokens of a word; the rest are those of the template.
        per_word = (long - short) / (n_long - n_short)
        n_words = round(n_short + (load.input_tokens - short) / per_word) if per_word > 0 else 0
        if n_words < 1:
            raise BadInput(
                f"input_tokens must be more than the template of the chat adds, got {load.input_tokens} where a prompt "
                f"of {n_short} words has {short} tokens; try more, or completions"
            )
        n_given = await n_tokens(cls(load, n_words)(0))  # a third count corrects the line through two
        n_words = max(n_words + round((load.input_tokens - n_given) / per_word), 1)
        return cls(load, n_words)


def _random(load: TokenLoad, size: int, number: int, length: int) -> list[int]:
    """Integers below `size`, of which a share is that of all prompts, in front."""
    n_shared = round(length * load.shared_prefix_tokens / load.input_tokens)
    shared = np.random.default_rng((load.seed, 0)).integers(size, size=n_shared)
    own = np.random.default_rng((load.seed, 1, number)).integers(size, size=length - n_shared)
    return [*shared.tolist(), *own.tolist()]
