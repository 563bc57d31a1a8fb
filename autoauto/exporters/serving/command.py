"""What an engine is started with: `Launch`, the `Command` that says it, and the options that the engine accepts."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.errors import BadInput

GPU_ORDER = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs a process sees, and in which order."""

MASTER = "${MASTER_ADDR}"
"""The address of the first machine of a replica, where it has several: a variable, for shells and Docker Compose."""


class Machines(NamedTuple):
    """The machines of a replica, and which of them a process is on.

    Attributes:
        n: machines.
        rank: that of the process, in the order of the stages.
        port: of the first, on which the others find it.
    """

    n: int = 1
    rank: int = 0
    port: int = 0


class Launch(NamedTuple):
    """What an engine is told of one replica.

    Attributes:
        model: its name on Hugging Face, or its folder.
        tensor_parallel: GPUs of a stage.
        blocks: of every stage.
        n_sequences: of a micro-batch; as many micro-batches as stages are in flight.
        max_batched_tokens: of a step.
        max_length: tokens of a prompt and its answer.
        memory_share: of the memory of a GPU, as the engine counts it.
        weights: the format that the engine makes of the checkpoint when it loads it; None is that of the checkpoint.
        kv_cache: the format of keys and values; None is what the checkpoint says.
        expert_parallel: among how many GPUs of a stage experts are dealt whole.
        machines: those of the replica.
    """

    model: str
    tensor_parallel: int
    blocks: tuple[int, ...]
    n_sequences: int
    max_batched_tokens: int
    max_length: int
    memory_share: float
    weights: WeightFormat | None = None
    kv_cache: WeightFormat | None = None
    expert_parallel: int = 1
    machines: Machines = Machines()

    @property
    def n_stages(self) -> int:
        """Stages of the pipeline."""
        return len(self.blocks)

    @property
    def n_in_flight(self) -> int:
        """Sequences of all micro-batches in flight."""
        return self.n_sequences * self.n_stages


class Command(NamedTuple):
    """A program with its options, and what it reads beside them.

    Attributes:
        words: the program and its options.
        environment: variables.
        files: by name, in the folder where it starts.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str] = {}

    @property
    def lines(self) -> tuple[str, ...]:
        """The words as a shell reads them, every option with its value in a line of its own."""
        starts = [index for index, word in enumerate(self.words) if word.startswith("--")]
        ends = pairwise([0, *starts, len(self.words)])
        return tuple(" ".join(map(quoted, self.words[start:stop])) for start, stop in ends)


def quoted(word: str) -> str:
    """A word as a shell reads it; `MASTER` stays a variable.

    >>> print(quoted("a b"), quoted(f"{MASTER}:29500"))
    'a b' "${MASTER_ADDR}:29500"
    """
    return f'"{word}"' if word.startswith(MASTER) else shlex.quote(word)


class CommandOption(NamedTuple):
    """An option of an engine, as its source defines it.

    Attributes:
        name: with its dashes.
        type: of its value; None where it has none.
        choices: the values that are accepted; empty where all of the type are.
    """

    name: str
    type: type[int] | type[float] | type[str] | None = str
    choices: tuple[str, ...] = ()


class CommandSyntax(NamedTuple):
    """How a program is called.

    Attributes:
        program: its first words.
        options: those that are used here, as the source of the engine defines them.
        takes_model: whether the model is a word without an option.
    """

    program: tuple[str, ...]
    options: tuple[CommandOption, ...]
    takes_model: bool = True

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """The value of every option of a command line, by name; "model" is that without an option.

        Raises:
            BadInput: the program would refuse the line.
        """
        n_words = len(self.program)
        if tuple(words[:n_words]) != self.program:
            raise BadInput(f"a command begins with {' '.join(self.program)}, got {' '.join(words[:n_words])}")
        try:
            known, unknown = self._parser().parse_known_args(list(words[n_words:]))
        except argparse.ArgumentError as error:
            raise BadInput(f"{' '.join(self.program)} refuses its options: {error}") from None
        if unknown:
            raise BadInput(f"{' '.join(self.program)} has no option {unknown[0]}")
        if self.takes_model and known.model is None:
            raise BadInput(f"{' '.join(self.program)} needs a model")
        return {name: value for name, value in vars(known).items() if value not in (None, False)}

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
        if self.takes_model:
            parser.add_argument("model", nargs="?")
        for option in self.options:
            if option.type is None:
                parser.add_argument(option.name, dest=option.name, action="store_true")
            else:
                choices = option.choices or None
                parser.add_argument(option.name, dest=option.name, type=option.type, choices=choices)
        return parser
