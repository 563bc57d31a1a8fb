"""Values of a config of Hugging Face with the defaults of its class: `Values`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from autoauto.records.errors import UnreadableModel

_ASSUMED = ("vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings")


def whole_number(value: object, key: str, where: object, most: int, minimum: int = 1) -> int:
    """The value of a key, if it is a whole number within bounds, else `UnreadableModel`; `where` names the file."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= most:
        given = "none" if value is None else repr(value)[:40]
        raise UnreadableModel(f"{key} must be a whole number from {minimum} to {most:,}, got {given} in {where}")
    return value


class Values(NamedTuple):
    """Values of a config, with the defaults of its class."""

    name: str
    config: Mapping[str, Any]
    defaults: Mapping[str, int | None]

    def value(self, key: str, otherwise: object = None) -> Any:
        """The value of a key in the config; where it is missing `otherwise`, or else the default of the class."""
        if key in self.config:
            return self.config[key]
        if otherwise is not None:
            return otherwise
        return self.defaults.get(key)

    def count(self, key: str, otherwise: int | None = None, most: int = 2**31) -> int:
        """A positive number; `otherwise` where it is null, or missing and without a default.

        Raises UnreadableModel for anything else.
        """
        value = self.value(key)
        if value is None:
            value = otherwise
        return whole_number(value, key, self.name, most)

    def flag(self, key: str, otherwise: object = None) -> bool:
        """True or false; false where it is null, or missing and without a default.

        Raises:
            UnreadableModel: it is something else, as the text "false", which would count as true.
        """
        value = self.value(key, otherwise)
        if value not in (None, 0, 1):
            raise UnreadableModel(f"{key} must be true or false, got {value!r:.40} in {self.name}")
        return bool(value)

    def optional_count(self, key: str) -> int | None:
        """A positive number; None where it is null, 0 or missing; raises UnreadableModel for anything else."""
        return self.count(key) if self.config.get(key) else None

    def assumed(self) -> tuple[str, ...]:
        """A sentence on the values that the config leaves out, and the class has; none where it has them all."""
        taken: list[str] = []
        for key in _ASSUMED:
            default = self.defaults.get(key)
            if default and key not in self.config:
                taken.append(f"{key} {default:,}")
        if not taken:
            return ()
        return (f"The config leaves out what its class has: {', '.join(taken)}.",)

    def first_key(self, keys: Sequence[str]) -> str | None:
        """The first of some keys that the config has, or else its class; None where neither has one."""
        for values in (self.config, self.defaults):
            for key in keys:
                if values.get(key):
                    return key
        return None

    def per_block(self, key: str, n_layers: int) -> Sequence[Any] | None:
        """A list with an entry a block; None where the config has none.

        Raises UnreadableModel for another number of entries.
        """
        listed = self.config.get(key)
        if not isinstance(listed, list):
            return None
        if len(listed) < n_layers:
            raise UnreadableModel(f"{key} must have {n_layers} entries, got {len(listed)} in {self.name}")
        return listed[:n_layers]  # behind them those of blocks that predict more words
