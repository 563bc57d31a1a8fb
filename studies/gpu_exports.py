"""Winners of random searches on GPUs, exported and checked: `python -m studies.gpu_exports --searches 40`.

A search is for a dense model or a mixture of experts and an engine, on 3 to 64 GPUs of one or two kinds, whose nodes
are said or not, with one length of prompts and answers. Every winner is written by `export` and read back by its
checks: options, variables and keys by the tables of the engines' own parsers (`data/engines/`), and replicas by the
nodes that the engine can be told. One line a search; the exit code is 1 where a winner cannot be exported, or a check
fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from autoauto.engines.registry import engine_named
from autoauto.evaluate.export import deployment
from autoauto.evaluate.open import load_flow
from autoauto.exporters.registry import write_artifact
from autoauto.records.errors import AutoautoError, DoesNotFit
from autoauto.study.defaults import default_space
from autoauto.study.search import search_flow
from autoauto.targets.gpu.systems import system_named

MODELS = (
    "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Meta-Llama-3.1-70B",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-235B-A22B",
)
SYSTEMS = ("a100_sxm", "b200_sxm", "h100_sxm", "h200_sxm", "l40s")
LENGTHS = ((128, 2048), (512, 128), (1024, 1024), (2000, 500), (8000, 1000))


class GpuSearch(NamedTuple):
    """What is asked.

    Attributes:
        model, cluster, engine: as on the command line.
        input_tokens, output_tokens: of a request.
    """

    model: str
    cluster: str
    engine: str
    input_tokens: int
    output_tokens: int


def searches(n: int, seed: int) -> list[GpuSearch]:
    """Random searches whose engine was measured on all of their GPUs."""
    random, asked = Random(seed), list[GpuSearch]()
    while len(asked) < n:
        systems = random.sample(SYSTEMS, random.choice((1, 1, 2)))
        able = set.intersection(*(set(system_named(name).engines) for name in systems))
        if able:
            clusters = "+".join(f"{name}-{_gpus(random, 64 // len(systems))}" for name in systems)
            lengths = random.choice(LENGTHS)
            asked.append(GpuSearch(random.choice(MODELS), clusters, random.choice(sorted(able)), *lengths))
    return asked


def _gpus(random: Random, most: int) -> str:
    """A number of GPUs, or that of each of some nodes, the last of which may have fewer."""
    if random.random() < 0.6:
        return str(random.randint(3, most))
    n_each, n_nodes = random.randint(2, 8), random.randint(2, most // 8)
    return "+".join(map(str, [*[n_each] * (n_nodes - 1), random.randint(1, n_each)]))


def answer(search: GpuSearch) -> tuple[str, bool]:
    """What came of a search, and whether it may be acted on: nothing that fits is an answer, too."""
    flow = load_flow(search.model, search.cluster, "gpu")
    given = {
        "engine": (search.engine,),
        "input_tokens": (search.input_tokens,),
        "output_tokens": (search.output_tokens,),
    }
    try:
        best = search_flow(flow, default_space(flow, given)).best
    except DoesNotFit as reason:
        return f"nothing fits: {reason}", True
    if best is None:
        return "nothing fits", True
    knobs, to = best.knobs, engine_named(search.engine).launcher.to
    shape = f"TP {knobs.session.group_size} x PP {knobs.n_ipu} x {knobs.replicas}, batch {knobs.batch_size}"
    with TemporaryDirectory() as folder:
        try:
            checks = write_artifact(deployment(flow, search.model, best), to, Path(folder) / "a", check=True)
        except AutoautoError as reason:
            return f"{shape}: NOT EXPORTED, {reason}", False
    failed = [each for each in checks if each.passed is False]
    lines = "".join(f"; FAILED {each.what}: {each.detail}" for each in failed)
    n_passed = sum(each.passed is True for each in checks)
    return f"{best.samples_per_s:,.0f} tokens/s, {shape}: {n_passed} checks passed{lines}", not failed


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for every search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=40, metavar="N", help="how many; default %(default)s")
    parser.add_argument("--seed", type=int, default=62, help="of the searches; default %(default)s")
    args = parser.parse_args(argv)
    n_good = 0
    for search in searches(args.searches, args.seed):
        text, is_good = answer(search)
        n_good += is_good
        asked = f"{search.model} {search.cluster} {search.engine} {search.input_tokens}/{search.output_tokens}"
        print(f"{asked}: {text}", flush=True)
    print(f"{n_good} of {args.searches} can be acted on")
    return 0 if n_good == args.searches else 1


if __name__ == "__main__":
    sys.exit(main())
