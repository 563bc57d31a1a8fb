"""What `predict` says of 40 configurations without a pipeline, beside `estimate` of aiconfigurator [aiconfigurator].

    python -m studies.gpu_conformance [--searches]

With `--searches` both search: one line a model and cluster, with the package's own answer and ours, both in tokens/s
of all GPUs by its estimate, and ours relative to its own; "-" where it has no estimate of ours. Where a bound on the
TPOT decides, ours takes fewer sequences, since the host CPU is in our TPOT and not in theirs.

Needs the whole package, which is no extra of ours: `pip install --no-deps aiconfigurator==0.12.0`, and what its import
asks for. Without options, one line a model, system and engine: the largest difference of five configurations, of

    tokens/s, TPOT      as `predict` prints them
    steps alone         the same, with what differs on purpose taken out of both: see `REASONS`
    memory              of the fullest GPU, with activations of as many tokens a step as theirs has: it counts those of
                        its mixed step, ours counts the `max_batched_tokens` that an engine reserves

Both read the same tables of kernels.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from autoauto.engines.engine import HostCosts
from autoauto.engines.registry import engine_named
from autoauto.evaluate.serving.fixed import FixedReplicas
from autoauto.evaluate.serving.rates import StageSteps, rates_of
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.decoder import WeightFormat, Workload
from autoauto.records.costs.profile import RESERVE
from autoauto.space.trial import Trial
from autoauto.targets.gpu.costs import layer_costs
from autoauto.targets.gpu.systems import system_named
from autoauto.targets.gpu.tables import Serving
from studies import gpu_pipelines
from studies.gpu_pipelines import searched, shape_of

REQUESTS = Workload(1024, 512)
N_MAX_TOKENS = 8192
SHAPES = ((1, 8), (2, 8), (2, 64), (4, 8), (4, 64))
"""GPUs of a group, and sequences."""
NO_HOST = HostCosts(0.0, 0.0, 0.0, 0.0, 0.0)
REASONS = {
    "vllm": "ours adds the host CPU, as measured rows have it; theirs caps tokens/s by a TTFT with 0.8 ms a block",
    "sglang": "ours adds the host CPU and computes prompts first, theirs in mixed steps; theirs counts 3 of them less",
    "trtllm": "ours adds the host CPU; theirs counts three mixed steps less for words",
}
"""By engine, why the numbers differ."""
_NAMES = {WeightFormat.BF16: "bfloat16", WeightFormat.FP8: "fp8_static", WeightFormat.NVFP4: "nvfp4"}


class Model(NamedTuple):
    """A model on GPUs of a system.

    Attributes:
        name, system, engine: as on the command line.
        weights: their format.
    """

    name: str
    system: str
    engine: str
    weights: WeightFormat = WeightFormat.BF16


MODELS = (
    Model("meta-llama/Meta-Llama-3.1-70B", "h200_sxm", "vllm"),
    Model("meta-llama/Meta-Llama-3.1-70B", "h200_sxm", "trtllm", WeightFormat.FP8),
    Model("meta-llama/Meta-Llama-3.1-8B", "l40s", "vllm"),
    Model("Qwen/Qwen3-32B", "h100_sxm", "trtllm"),
    Model("Qwen/Qwen3-32B", "h200_sxm", "sglang"),
    Model("Qwen/Qwen3-32B", "b200_sxm", "vllm", WeightFormat.NVFP4),
    Model("Qwen/Qwen3-8B", "a100_sxm", "sglang"),
    Model("Qwen/Qwen3-30B-A3B", "h100_sxm", "vllm"),
)


class Asked(NamedTuple):
    """What both are asked.

    Attributes:
        name, system, engine: as on the command line.
        n_gpus: of the cluster.
        requests: their lengths.
        ttft_s, tpot_s: bounds; None where there is none.
    """

    name: str
    system: str
    engine: str
    n_gpus: int
    requests: Workload
    ttft_s: float | None = None
    tpot_s: float | None = None


_LLAMA, _QWEN = "meta-llama/Meta-Llama-3.1-70B", "Qwen/Qwen3-32B"
ASKED = tuple(
    Asked(name, system, engine, n_gpus, Workload(*requests), *bounds)
    for name, system, engine, n_gpus, requests in (
        (_QWEN, "h200_sxm", "vllm", 3, (2000, 500)),
        (_QWEN, "h200_sxm", "sglang", 8, (2000, 500)),
        (_QWEN, "h100_sxm", "trtllm", 6, (1024, 1024)),
        (_LLAMA, "h100_sxm", "vllm", 6, (1024, 1024)),
        (_LLAMA, "h200_sxm", "trtllm", 8, (4000, 1000)),
        ("Qwen/Qwen3-8B", "l40s", "vllm", 4, (1024, 256)),
    )
    for bounds in ((), (5.0, 0.05))
)
_NO_BOUND_MS = 1e6


class Numbers(NamedTuple):
    """What one side says.

    Attributes:
        tokens_per_s, tpot_s: as it prints them.
        step_s: the mean of its steps of kernels alone.
        memory_bytes: of a GPU.
    """

    tokens_per_s: float
    tpot_s: float
    step_s: float
    memory_bytes: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", action="store_true", help="compare the answers of both searches")
    arguments = parser.parse_args()
    if find_spec("aiconfigurator") is None:
        raise SystemExit("the package aiconfigurator must be there; try: pip install --no-deps aiconfigurator==0.12.0")
    logging.disable(logging.WARNING)
    if arguments.searches:
        for asked in ASKED:
            print(answers_line(asked), flush=True)
        return
    print(f"{'':52}  tokens/s    TPOT  steps alone  memory")
    for model in MODELS:
        pairs = [(ours(model, *shape), theirs(model, *shape)) for shape in SHAPES]
        tokens, tpot, step, memory = np.array([np.divide(*pair) - 1 for pair in pairs]).T
        name = f"{model.name.split('/')[1]} {model.weights} {model.system} {model.engine}"
        print(f"{name:52}", *(f"{_largest(ratios):+9.1%}" for ratios in (tokens, tpot, step, memory)))
    for engine, reason in REASONS.items():
        print(f"{engine}: {reason}")


def _largest(ratios: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(ratios[np.abs(ratios).argmax()])


def ours(model: Model, n_gpus: int, n_sequences: int) -> Numbers:
    """What `predict` says, and its steps in an engine that mixes prompts with decoding, without the host CPU."""
    decoder, batch = decoder_of(model.name), np.array([n_sequences])
    serving = Serving(model.system, model.engine, n_gpus, weights=model.weights)
    replicas = FixedReplicas(decoder, serving, REQUESTS, (decoder.n_layers,))
    few_tokens = replace(replicas, n_max_batched_tokens=REQUESTS.input_tokens + n_sequences)
    said, (held,) = replicas.rates(n_sequences), few_tokens.memory_bytes(n_sequences)
    engine = replace(engine_named(model.engine), host=NO_HOST, mixes=True)
    costs = layer_costs(decoder, serving, system_named(model.system), engine, REQUESTS, batch, N_MAX_TOKENS)
    decode, prompt = (each.sum(axis=0, keepdims=True) for each in (costs.decode_s, costs.prompt_s))
    steps = rates_of(StageSteps(decode, prompt, np.zeros((1, 1))), batch, REQUESTS, engine, N_MAX_TOKENS)
    return Numbers(
        said.tokens_per_s.item(),
        said.tpot_s.item(),
        steps.tpot_s.item(),
        sum(held.values()) - held[RESERVE],
    )


def theirs(model: Model, n_gpus: int, n_sequences: int) -> Numbers:
    """What `estimate` of the package says, and the mean of its steps."""
    from aiconfigurator.cli.api import cli_estimate  # type: ignore[import-not-found]  # it is no extra of ours

    name = _NAMES[model.weights]
    estimate = cli_estimate(
        model.name,
        model.system,
        backend_name=model.engine,
        isl=REQUESTS.input_tokens,
        osl=REQUESTS.output_tokens,
        batch_size=n_sequences,
        tp_size=n_gpus,
        moe_tp_size=n_gpus,
        moe_ep_size=1,
        gemm_quant_mode=name,
        moe_quant_mode=name.removesuffix("_static"),
        kvcache_quant_mode="bfloat16",
        fmha_quant_mode="bfloat16",
    )
    steps: Mapping[str, float] = estimate.per_ops_data["scheduling"]
    mixed, alone = steps["num_mix_steps"], steps["num_genonly_steps"]
    total_ms = mixed * steps["mix_step_latency_ms"] + alone * steps["genonly_step_latency_ms"]
    return Numbers(
        float(estimate.raw["tokens/s"]),
        float(estimate.tpot) / 1e3,
        total_ms / (mixed + alone) / 1e3,
        float(estimate.raw["memory"]) * 2**30,
    )


def answers_line(asked: Asked) -> str:
    """What was asked, both answers by the package's estimate, and their ratio."""
    own, mine = their_answer(asked), our_answer(asked)
    bounds = "" if asked.ttft_s is None else f", TTFT {asked.ttft_s:g} s, TPOT {asked.tpot_s:g} s"
    lengths = f"{asked.requests.input_tokens}/{asked.requests.output_tokens}{bounds}"
    title = f"{asked.name.split('/')[1]} {asked.n_gpus} {asked.system} {asked.engine} {lengths}"
    if mine is None:
        return f"{title}: theirs {own[0]:,.0f} ({own[1]}); ours: nothing fits"
    said, shape = in_their_estimate(asked, mine), shape_of(mine)
    ratio = "-" if said is None else f"{said:,.0f} by theirs, {said / own[0] - 1:+.1%}"
    return f"{title}: theirs {own[0]:,.0f} ({own[1]}); ours {mine.samples_per_s:,.0f} ({shape}), {ratio}"


def our_answer(asked: Asked) -> Trial | None:
    """The best configuration of our search, in the format of the checkpoint."""
    bounds = {"ttft_s": asked.ttft_s, "tpot_s": asked.tpot_s}
    constraints = tuple(f"{name} <= {bound}" for name, bound in bounds.items() if bound)
    cluster = f"{asked.system}-{asked.n_gpus}"
    return searched(gpu_pipelines.Asked(asked.name, cluster, *asked.requests, constraints), {"engine": (asked.engine,)})


def their_answer(asked: Asked) -> tuple[float, str]:
    """Tokens/s of all GPUs of the package's best configuration of one pool, and its shape."""
    from aiconfigurator.cli.api import cli_default

    answers = cli_default(
        asked.name,
        asked.n_gpus,
        asked.system,
        backend=asked.engine,
        isl=asked.requests.input_tokens,
        osl=asked.requests.output_tokens,
        ttft=1e3 * asked.ttft_s if asked.ttft_s else _NO_BOUND_MS,
        tpot=1e3 * asked.tpot_s if asked.tpot_s else _NO_BOUND_MS,
    )
    best = answers.best_configs["agg"].iloc[0]
    n_replicas = asked.n_gpus // int(best["num_total_gpus"])
    return float(best["tokens/s/gpu_cluster"]) * asked.n_gpus, f"TP{best['tp']} x{n_replicas} b{best['bs']}"


def in_their_estimate(asked: Asked, trial: Trial) -> float | None:
    """Tokens/s of our configuration by the package; None where it cannot say."""
    from aiconfigurator.cli.api import cli_estimate

    knobs = trial.knobs
    try:
        estimate = cli_estimate(
            asked.name,
            asked.system,
            backend_name=asked.engine,
            isl=asked.requests.input_tokens,
            osl=asked.requests.output_tokens,
            batch_size=knobs.batch_size,
            tp_size=knobs.session.cores_per_device,
            pp_size=knobs.n_ipu,
        )
    except (RuntimeError, ValueError):  # a size of groups, or a number of blocks that stages do not divide
        return None
    return float(estimate.raw["tokens/s"]) * knobs.replicas


if __name__ == "__main__":
    main()
