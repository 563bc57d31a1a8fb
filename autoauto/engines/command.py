"""How an engine is started: a `Launcher` makes a `Command` of a `Launch`, and reads what a command says, `Limits`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from csv import DictReader
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from autoauto.engines.rules import GroupSplit, divisors
from autoauto.records.costs.decoder import Speculation, WeightFormat, Workload
from autoauto.records.errors import BadInput
from autoauto.records.installation import data_dir

GPU_ORDER = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs a process sees, and in which order."""
ALL_ADDRESSES = "0.0.0.0"
"""An engine listens on every address of its machine, so that others reach it."""
MASTER = "${MASTER_ADDR}"
"""The address of the first machine of a replica, where it has several: a variable, for shells and Docker Compose."""


class Machines(NamedTuple):
    """The machines of a replica."""

    n: int = 1  # how many
    rank: int = 0  # of the process, in the order of the stages
    port: int = 0  # of the first machine, on which the others find it


class PoolPart(NamedTuple):
    """The part of a process where some servers compute prompts and others answers.

    Attributes:
        address: of its machine, at which servers of the other pool find it.
        port: on which they ask for keys and values; the ports after it are of further ranks of the attention.
    """

    is_prefill: bool
    address: str
    port: int


class Launch(NamedTuple):
    """The settings of one replica, as an engine is started with them.

    Attributes:
        model: its name on Hugging Face, or its folder.
        n_sequences: of a micro-batch of a rank of the attention; as many micro-batches as stages are in flight.
        max_batched_tokens: of a step of a rank.
        max_length: tokens of the longest sequence that is accepted.
        memory_share: of the memory of a GPU, as the engine counts it.
        weights: the format that the engine makes of the checkpoint when it loads it; None is that of the checkpoint.
        kv_cache: the format of keys and values; None is what the checkpoint says.
        requests: whose answers are drafted, and whose prompts are cached.
        pool: what it computes, where prompts and answers have servers of their own; None where it computes both.
    """

    model: str
    split: GroupSplit
    blocks: tuple[int, ...]
    n_sequences: int
    max_batched_tokens: int
    max_length: int
    memory_share: float
    weights: WeightFormat | None = None
    kv_cache: WeightFormat | None = None
    machines: Machines = Machines()
    requests: Workload = Workload(1024, 1024)
    pool: PoolPart | None = None

    @property
    def drafts(self) -> Speculation:
        """How answers are drafted."""
        return self.requests.speculation

    @property
    def n_stages(self) -> int:
        """Stages of the pipeline."""
        return len(self.blocks)

    @property
    def n_in_flight(self) -> int:
        """Sequences of all micro-batches of a rank in flight."""
        return self.n_sequences * self.n_stages

    @property
    def n_ranks(self) -> int | None:
        """Ranks of the attention; None, the default of engines, where there is one."""
        n_ranks = self.split.attention_data_parallel
        return n_ranks if n_ranks > 1 else None

    @property
    def n_dealt(self) -> int | None:
        """Among how many GPUs experts are dealt; None, the default of engines, where none are."""
        return self.split.expert_parallel if self.split.expert_parallel > 1 else None


class Command(NamedTuple):
    """A program with its options, and what it reads beside them."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str] = {}  # by name, in the folder where it starts

    @property
    def lines(self) -> tuple[str, ...]:
        """The words as a shell reads them, every option with its value in a line of its own."""
        starts = [index for index, word in enumerate(self.words) if word.startswith("--")]
        ends = pairwise([0, *starts, len(self.words)])
        return tuple(" ".join(map(quoted, self.words[start:stop])) for start, stop in ends)


def quoted(word: str) -> str:
    """A word as a shell reads it; addresses of machines stay variables.

    >>> print(quoted("a b"), quoted(f"{MASTER}:29500"))
    'a b' "${MASTER_ADDR}:29500"
    """
    return f'"{word}"' if "${" in word else shlex.quote(word)


class CommandOption(NamedTuple):
    """An option of an engine, as its source defines it."""

    name: str  # with its dashes
    type: type[int] | type[float] | type[str] | None = str  # of its value; None for a switch
    choices: tuple[str, ...] = ()  # the values that it takes; empty for all of the type


class CommandTable(NamedTuple):
    """What an engine reads, by a file of `data/engines/`."""

    source: str  # where it was read, and its licence
    options: tuple[CommandOption, ...]  # of the command line
    others: frozenset[str]  # variables, and keys of files as "key" or "key.key"


_TYPES: Mapping[str, type[int] | type[float] | type[str] | None] = {
    "flag": None,
    "int": int,
    "float": float,
    "text": str,
}


@cache
def command_table(name: str) -> CommandTable:
    """Read a file of `data/engines/`, which `studies/engine_options.py` writes."""
    options: list[CommandOption] = []
    others: set[str] = set()
    with (data_dir() / "engines" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(DictReader(file))
    for row in rows:
        if row["kind"] in _TYPES:
            options.append(CommandOption(row["name"], _TYPES[row["kind"]], tuple(row["choices"].split())))
        else:
            others.add(row["name"])
    return CommandTable(rows[0]["source"], tuple(options), frozenset(others))


class CommandSyntax(NamedTuple):
    """How a program is called.

    Attributes:
        program: its first words.
        options: all that its source defines, or the name of their file in `data/engines/`.
        takes_model: whether the model is a word without an option.
    """

    program: tuple[str, ...]
    options: tuple[CommandOption, ...] | str
    takes_model: bool = True

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """The value of every option of a line, by name; "model" has no option; raises BadInput as the program would."""
        n_program = len(self.program)
        if tuple(words[:n_program]) != self.program:
            raise BadInput(f"a command begins with {' '.join(self.program)}, got {' '.join(words[:n_program])}")
        try:
            known, unknown = _parser(self).parse_known_args(list(words[n_program:]))
        except argparse.ArgumentError as error:
            raise BadInput(f"{' '.join(self.program)} refuses its options: {error}") from None
        if unknown:
            raise BadInput(f"{' '.join(self.program)} has no option {unknown[0]}")
        if self.takes_model and known.model is None:
            raise BadInput(f"{' '.join(self.program)} needs a model")
        return {name: value for name, value in vars(known).items() if value is not None and value is not False}

    def check_others(self, names: Iterable[str]) -> None:
        """Raise BadInput if the engine does not read one of these variables, or keys of files."""
        if isinstance(self.options, str):
            for name in names:
                if name not in command_table(self.options).others:
                    raise BadInput(f"{' '.join(self.program)} reads no {name}")


@cache
def _parser(syntax: CommandSyntax) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    if syntax.takes_model:
        parser.add_argument("model", nargs="?")
    options = command_table(syntax.options).options if isinstance(syntax.options, str) else syntax.options
    for option in options:
        if option.type is None:
            parser.add_argument(option.name, dest=option.name, action="store_true")
        else:
            choices = option.choices or None
            parser.add_argument(option.name, dest=option.name, type=option.type, choices=choices)
    return parser


class Limits(NamedTuple):
    """The limits that a command gives a configuration, as the engine counts them.

    Attributes:
        model: its name or folder.
        blocks: of every stage; () where there is one, which has all.
        n_gpus: of the process, on its machine.
        n_in_flight: sequences of all micro-batches of a rank of the attention.
        max_batched_tokens: of a step of a rank.
        max_length: of a sequence, in tokens.
        memory_share: of a GPU, as the engine counts it.
        expert_parallel: among how many GPUs of a stage experts are dealt whole.
        port: on which the process listens; None where another process of the replica answers.
        attention_data_parallel: ranks of a stage.
    """

    model: str
    blocks: tuple[int, ...]
    n_gpus: int
    n_in_flight: int
    max_batched_tokens: int
    max_length: int
    memory_share: float
    expert_parallel: int = 1
    port: int | None = None
    attention_data_parallel: int = 1


class Pools(NamedTuple):
    """The addresses of two pools, and where the program listens that is in front of them.

    Attributes:
        prefill: of every server of prompts: its URL without "http://", and the port of its `PoolPart`.
        decode: of every server of answers: its URL without "http://".
    """

    prefill: Sequence[tuple[str, int]]
    decode: Sequence[str]
    port: int


@dataclass(frozen=True, slots=True)
class PoolFront:
    """The program that sends a request first to a server of prompts and then to one of answers.

    Attributes:
        dynamo: the module of NVIDIA Dynamo that runs workers of the engine, and its image; None where it has none.
        llm_d_image: of the engine as llm-d has it; empty where it has none.
    """

    command: Callable[[Pools], Command]  # for the addresses of both pools
    image: str
    source: str  # where its options were read
    dynamo: tuple[str, str] | None = None
    llm_d_image: str = ""


@dataclass(frozen=True, slots=True)
class Placing:
    """How processes of an engine stand on GPUs.

    Attributes:
        spans_machines: True if a replica may have GPUs of several machines, with a process on each.
        ranks_first: True if a rank of the attention has neighbouring GPUs, one after the other for its stages; else the
            ranks of a stage are neighbours.
        splits_ranks: True if a rank of the attention may have several GPUs.
        experts_among: the numbers of GPUs among which whole experts can be dealt in a group of so many GPUs.
    """

    spans_machines: bool = True
    ranks_first: bool = False
    splits_ranks: bool = True
    experts_among: Callable[[int], Sequence[int]] = divisors


@dataclass(frozen=True, slots=True)
class Launcher:
    """A serving engine as a program that is started.

    Attributes:
        to: the name of the format of `autoauto export`.
        limits: reads a command and the files that it reads, by name.
        makes: the option for every format of weights that the engine makes of a checkpoint in bf16.
        own_options: the options that differ between replicas of one plan.
        ready_path: answers 200 over HTTP once the engine serves.
        remark: what is modelled, and no option says.
    """

    to: str
    source: str
    image: str
    syntax: CommandSyntax
    command: Callable[[Launch, int], Command]
    limits: Callable[[Command], Limits]
    makes: Mapping[WeightFormat, str]
    own_options: tuple[str, ...] = ("--port",)
    ready_path: str = "/health"
    placing: Placing = Placing()
    front: PoolFront | None = None
    remark: str = ""


def option_words(options: Sequence[tuple[str, object]]) -> tuple[str, ...]:
    """Options with their values; True is a switch without a value, and None and False are left out.

    >>> option_words([("--port", 8000), ("--headless", True), ("--nnodes", None)])
    ('--port', '8000', '--headless')
    """
    words: list[str] = []
    for name, value in options:
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words += [name, str(value)]
    return tuple(words)


def partition_variable(name: str, launch: Launch) -> dict[str, str]:
    """A variable with the blocks of every stage; none for one stage, which has all."""
    if launch.n_stages == 1:
        return {}
    return {name: ",".join(map(str, launch.blocks))}


def blocks_of_variable(name: str, command: Command, n_stages: int) -> tuple[int, ...]:
    """The blocks of every stage in a variable; () where there is one stage; raises BadInput as `checked_blocks`."""
    blocks: tuple[int, ...] = ()
    if text := command.environment.get(name, ""):
        blocks = tuple(map(int, text.split(",")))
    return checked_blocks(blocks, n_stages)


def checked_blocks(blocks: tuple[int, ...], n_stages: int) -> tuple[int, ...]:
    """The blocks of every stage, or ().

    Raises:
        BadInput: there are more or fewer numbers than stages, which engines refuse, too [vllm-pp], [sglang-pp].
    """
    if blocks and len(blocks) != n_stages:
        raise BadInput(f"a partition has a number for every stage, got {len(blocks)} for {n_stages} stages")
    return blocks
