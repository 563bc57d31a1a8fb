"""What `predict` says of 40 configurations without a pipeline, beside `estimate` of aiconfigurator [aiconfigurator].

    python -m studies.gpu_conformance [--searches | --mixtures | --pools]

With `--searches` both search: one line a model and cluster, with the package's own answer and ours, both in tokens/s
of all GPUs by its estimate, and ours relative to its own; "-" where it has no estimate of ours. Where a bound on the
TPOT decides, ours takes fewer sequences, since the host CPU is in our TPOT and not in theirs. `--mixtures` asks about
mixtures of experts, and prints the mean and the least of the ratios; sequences of a group are those of all its ranks.

With `--pools` both search two pools (docs/pools.md): prefill workers + replicas of each answer, both in tokens/s of all
GPUs by the package's estimate, which of its latencies of ours are beyond a bound, and by how much two pools give more
than one, by our search (`--pools 1,2` must say which) and by its own. Where not all sequences of our replicas fit by
its memory, its estimate is of as many as do; where it has none of ours it is said why.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from autoauto.engines.engine import HostCosts
from autoauto.engines.registry import engine_named
from autoauto.evaluate.serving.costs import session_of
from autoauto.evaluate.serving.fixed import FixedReplicas
from autoauto.evaluate.serving.pools.ways import prefill_knobs, prefill_of
from autoauto.evaluate.serving.rates import StageSteps, rates_of
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.decoder import WeightFormat, Workload
from autoauto.records.costs.profile import RESERVE
from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Trial
from autoauto.targets.gpu.costs import layer_costs
from autoauto.targets.gpu.session import GpuSession
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
_LARGE, _SMALL = "Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-30B-A3B"
_DEEPSEEK, _GPT_OSS = "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b"
_BOUNDS = (5.0, 0.05)
MIXTURES = tuple(
    Asked(name, system, engine, n_gpus, Workload(*requests), *bounds)
    for name, system, engine, n_gpus, requests, bounds in (
        (_LARGE, "h200_sxm", "vllm", 8, (4000, 1000), _BOUNDS),
        (_LARGE, "h200_sxm", "vllm", 8, (4000, 1000), ()),
        (_LARGE, "h200_sxm", "trtllm", 8, (4000, 1000), _BOUNDS),
        (_LARGE, "h200_sxm", "trtllm", 8, (1024, 1024), ()),
        (_LARGE, "h200_sxm", "sglang", 8, (1024, 1024), ()),
        (_LARGE, "h200_sxm", "sglang", 16, (4000, 1000), ()),
        (_LARGE, "h200_sxm", "vllm", 16, (8000, 500), ()),
        (_LARGE, "h200_sxm", "trtllm", 16, (8000, 500), ()),
        (_LARGE, "h100_sxm", "vllm", 16, (1024, 1024), ()),
        (_LARGE, "b200_sxm", "trtllm", 8, (4000, 1000), ()),
        (_LARGE, "b200_sxm", "vllm", 16, (2000, 500), _BOUNDS),
        (_LARGE, "h200_sxm", "trtllm", 32, (4000, 1000), ()),
        (_LARGE, "h200_sxm", "vllm", 64, (1024, 1024), ()),
        (_LARGE, "b200_sxm", "sglang", 32, (1024, 4096), ()),
        (_SMALL, "h100_sxm", "vllm", 8, (1024, 1024), ()),
        (_SMALL, "h100_sxm", "trtllm", 8, (4000, 1000), _BOUNDS),
        (_SMALL, "h200_sxm", "sglang", 8, (2000, 500), ()),
        (_SMALL, "h200_sxm", "trtllm", 16, (1024, 1024), ()),
        (_SMALL, "b200_sxm", "vllm", 8, (4000, 1000), ()),
        (_SMALL, "l40s", "vllm", 8, (1024, 256), ()),
        (_DEEPSEEK, "h200_sxm", "trtllm", 8, (1024, 1024), ()),
        (_DEEPSEEK, "h200_sxm", "sglang", 32, (4000, 1000), ()),
        (_DEEPSEEK, "h200_sxm", "vllm", 32, (4000, 1000), ()),
        (_DEEPSEEK, "b200_sxm", "trtllm", 16, (4000, 1000), _BOUNDS),
        (_GPT_OSS, "h100_sxm", "vllm", 8, (1024, 1024), ()),
        (_GPT_OSS, "b200_sxm", "trtllm", 8, (4000, 1000), _BOUNDS),
    )
)
_FP8_LLAMA, _DENSE = "nvidia/Llama-3.1-70B-Instruct-FP8", "Qwen/Qwen3-8B"
_TIGHT = (2.0, 0.03)
POOLED = tuple(
    Asked(name, system, engine, n_gpus, Workload(*requests), *bounds)
    for name, system, engine, n_gpus, requests, bounds in (
        (_QWEN, "h100_sxm", "vllm", 8, (4000, 1000), _BOUNDS),
        (_QWEN, "h200_sxm", "vllm", 16, (4000, 1000), _TIGHT),
        (_QWEN, "h100_sxm", "sglang", 16, (2000, 500), _BOUNDS),
        (_QWEN, "h200_sxm", "sglang", 8, (8000, 500), ()),
        (_QWEN, "h200_sxm", "trtllm", 8, (8000, 500), _BOUNDS),
        (_QWEN, "b200_sxm", "trtllm", 16, (4000, 1000), _TIGHT),
        (_QWEN, "h100_sxm", "trtllm", 32, (4000, 1000), _TIGHT),
        (_DENSE, "h100_sxm", "vllm", 8, (2000, 500), _TIGHT),
        (_DENSE, "h200_sxm", "sglang", 16, (8000, 500), _BOUNDS),
        (_DENSE, "b200_sxm", "trtllm", 8, (4000, 1000), ()),
        (_FP8_LLAMA, "h200_sxm", "vllm", 8, (4000, 1000), _BOUNDS),
        (_FP8_LLAMA, "h100_sxm", "trtllm", 16, (2000, 500), _BOUNDS),
        (_FP8_LLAMA, "b200_sxm", "sglang", 16, (8000, 500), _BOUNDS),
        (_FP8_LLAMA, "h200_sxm", "trtllm", 32, (4000, 1000), _TIGHT),
        (_SMALL, "h100_sxm", "vllm", 8, (4000, 1000), _BOUNDS),
        (_SMALL, "h200_sxm", "trtllm", 16, (2000, 500), _TIGHT),
        (_SMALL, "b200_sxm", "sglang", 8, (8000, 500), ()),
        (_DEEPSEEK, "h200_sxm", "trtllm", 32, (4000, 1000), _BOUNDS),
        (_DEEPSEEK, "b200_sxm", "sglang", 16, (2000, 500), _BOUNDS),
        (_DEEPSEEK, "h200_sxm", "sglang", 32, (8000, 500), ()),
    )
)
"""Of two pools."""
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
    parser.add_argument("--mixtures", action="store_true", help="the same of mixtures of experts")
    parser.add_argument("--pools", action="store_true", help="the same of prefill and decode apart")
    arguments = parser.parse_args()
    if find_spec("aiconfigurator") is None:
        raise SystemExit("the package aiconfigurator must be there; try: pip install --no-deps aiconfigurator==0.12.0")
    logging.disable(logging.WARNING)
    if arguments.pools:
        print_answers(POOLED, compared_pools)
        return
    if arguments.searches or arguments.mixtures:
        print_answers(MIXTURES if arguments.mixtures else ASKED, compared)
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


def print_answers(every: Sequence[Asked], compare: Callable[[Asked], tuple[str, float | None]]) -> None:
    """A line for all that is asked, then the mean and the least of the ratios."""
    ratios = []
    for asked in every:
        text, ratio = compare(asked)
        print(text, flush=True)
        if ratio is not None:
            ratios.append(ratio)
    if ratios:
        print(f"ours to its own, {len(ratios)} of {len(every)}: mean {mean(ratios):.1%}, least {min(ratios):.1%}")


def compared(asked: Asked) -> tuple[str, float | None]:
    """What was asked, both answers by the package's estimate, and their ratio; None where it has none."""
    own = their_answer(asked)
    mine, title = our_answer(asked, own[2]), _title(asked)
    if mine is None:
        return f"{title}: theirs {own[0]:,.0f} ({own[1]}); ours: nothing fits", None
    said, shape = in_their_estimate(asked, mine), shape_of(mine.knobs)
    answers = f"{title}: theirs {own[0]:,.0f} ({own[1]}); ours {mine.samples_per_s:,.0f} ({shape}), "
    if said is None:
        return f"{answers}-", None
    return f"{answers}{said:,.0f} by theirs, {said / own[0] - 1:+.1%}", said / own[0]


def compared_pools(asked: Asked) -> tuple[str, float | None]:
    """The same of two pools, and by how much two pools give more than one, by both searches."""
    title = _title(asked)
    try:
        configs = their_configs(asked)
    except (RuntimeError, ValueError) as error:
        return f"{title}: theirs: {error}", None
    if not {"agg", "disagg"}.issubset(name for name, table in configs.items() if len(table)):
        return f"{title}: theirs: no configuration of one pool and of two", None
    own = configs["disagg"].iloc[0]
    gain = _of_cluster(asked, own) / _of_cluster(asked, configs["agg"].iloc[0]) - 1
    kv_cache = _kv_cache(own["(d)kvcache"])
    single, mine, either = (our_answer(asked, kv_cache, pools) for pools in ("1", "2", "1,2"))
    n_copies = asked.n_gpus // int(own["num_total_gpus"])
    theirs_text = f"theirs {_of_cluster(asked, own):,.0f} ({_their_pools(own, n_copies)})"
    if single is None or mine is None or either is None:
        return f"{title}: {theirs_text}; ours: nothing fits", None
    says = "two" if session_of(either.knobs).prefill else "one"
    better = (
        f"two to one pool {mine.samples_per_s / single.samples_per_s - 1:+.1%} by ours, says {says}, "
        f"{gain:+.1%} by theirs"
    )
    ours_text = f"ours {mine.samples_per_s:,.0f} ({_our_pools(mine)})"
    try:
        said = pools_that_fit(asked, mine.knobs)
    except (RuntimeError, ValueError) as error:
        return f"{title}: {theirs_text}; {ours_text}, - by theirs: {str(error).split('. ')[0]}; {better}", None
    ratio = said.tokens_per_s / _of_cluster(asked, own)
    return f"{title}: {theirs_text}; {ours_text}, {said.text(asked)} by theirs, {ratio - 1:+.1%}; {better}", ratio


def _title(asked: Asked) -> str:
    bounds = "" if asked.ttft_s is None else f", TTFT {asked.ttft_s:g} s, TPOT {asked.tpot_s:g} s"
    lengths = f"{asked.requests.input_tokens}/{asked.requests.output_tokens}{bounds}"
    return f"{asked.name.split('/')[1]} {asked.n_gpus} {asked.system} {asked.engine} {lengths}"


def our_answer(asked: Asked, kv_cache: WeightFormat, pools: str = "1") -> Trial | None:
    """The best configuration of our search, in the format of the checkpoint, with keys and values in another."""
    bounds = {"ttft_s": asked.ttft_s, "tpot_s": asked.tpot_s}
    constraints = tuple(f"{name} <= {bound}" for name, bound in bounds.items() if bound)
    cluster, requests = f"{asked.system}-{asked.n_gpus}", asked.requests
    values = {"engine": (asked.engine,), "kv_cache_precision": (kv_cache,)}
    lengths = requests.input_tokens, requests.output_tokens
    try:
        return searched(gpu_pipelines.Asked(asked.name, cluster, *lengths, constraints), values, {"pools": pools})
    except BadInput:  # no room for two pools
        return None


def their_answer(asked: Asked) -> tuple[float, str, WeightFormat]:
    """Tokens/s of all GPUs of the package's best configuration of one pool, its shape, and its format of a KV cache."""
    best = their_configs(asked)["agg"].iloc[0]
    shape = _their_group(best, "") + f" x{asked.n_gpus // int(best['num_total_gpus'])} b{_their_sequences(best, '')}"
    return _of_cluster(asked, best), shape, _kv_cache(best["kvcache"])


def their_configs(asked: Asked) -> Mapping[str, Any]:
    """The package's best configurations, a table of one pool, `agg`, and one of two, `disagg`."""
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
    configs: Mapping[str, Any] = answers.best_configs
    return configs


def _of_cluster(asked: Asked, row: Mapping[str, Any]) -> float:
    return float(row["tokens/s/gpu_cluster"]) * asked.n_gpus


def _kv_cache(name: object) -> WeightFormat:
    return WeightFormat.FP8 if "fp8" in str(name) else WeightFormat.BF16


def _their_group(row: Mapping[str, Any], pool: str) -> str:
    """The group of a server of a pool, "(p)" or "(d)", or of the one pool, ""."""
    n_ranks, n_dealt = (int(row[pool + name]) for name in ("dp", "moe_ep"))
    return f"TP{row[pool + 'tp']}" + f" DP{n_ranks}" * (n_ranks > 1) + f" EP{n_dealt}" * (n_dealt > 1)


def _their_sequences(row: Mapping[str, Any], pool: str) -> int:
    return int(row[pool + "bs"]) * int(row[pool + "dp"])


def _their_pools(row: Mapping[str, Any], n_copies: int) -> str:
    """Both pools of the whole cluster, which has copies of them."""
    servers = (
        f"{_their_group(row, pool)} x{n_copies * int(row[pool + 'workers'])} b{_their_sequences(row, pool)}"
        for pool in ("(p)", "(d)")
    )
    return " + ".join(servers)


def _our_pools(trial: Trial) -> str:
    workers, replicas = map(shape_of, (prefill_knobs(trial.knobs), trial.knobs))
    return f"{workers.replace(' PP1', '')} + {replicas}"


def in_their_estimate(asked: Asked, trial: Trial) -> float | None:
    """Tokens/s of our configuration by the package; None where it cannot say."""
    from aiconfigurator.cli.api import cli_estimate

    knobs, session = trial.knobs, trial.knobs.session
    assert isinstance(session, GpuSession)
    try:
        estimate = cli_estimate(
            asked.name,
            asked.system,
            backend_name=asked.engine,
            isl=asked.requests.input_tokens,
            osl=asked.requests.output_tokens,
            batch_size=int(session.of_rank((knobs.batch_size,))[0]),
            tp_size=session.tensor_parallel,
            pp_size=knobs.n_ipu,
            attention_dp_size=session.attention_data_parallel,
            moe_tp_size=session.group_size // session.expert_parallel,
            moe_ep_size=session.expert_parallel,
        )
    except (RuntimeError, ValueError):  # a size of groups, or a number of blocks that stages do not divide
        return None
    return float(estimate.raw["tokens/s"]) * knobs.replicas


class Said(NamedTuple):
    """What the package estimates of our two pools.

    Attributes:
        tokens_per_s: of all GPUs.
        ttft_s, tpot_s: as it bounds them.
        n_fitting: sequences of a replica that fit its memory by the package; None where all of ours do.
    """

    tokens_per_s: float
    ttft_s: float
    tpot_s: float
    n_fitting: int | None = None

    def text(self, asked: Asked) -> str:
        """Tokens/s, sequences where not all fit, and latencies beyond a bound."""
        beyond = "" if self.n_fitting is None else f" with b{self.n_fitting}, more do not fit,"
        beyond += f", TTFT {self.ttft_s:.1f} s" * (asked.ttft_s is not None and self.ttft_s > asked.ttft_s)
        beyond += f", TPOT {self.tpot_s:.3f} s" * (asked.tpot_s is not None and self.tpot_s > asked.tpot_s)
        return f"{self.tokens_per_s:,.0f}{beyond}"


def pools_that_fit(asked: Asked, knobs: Knobs) -> Said:
    """Our two pools by the package, with as many sequences of a replica as fit by its memory.

    Raises:
        RuntimeError, ValueError: it has no estimate of them.
    """
    try:
        return pools_in_their_estimate(asked, knobs)
    except RuntimeError as error:
        failure = error
    n_ranks, said = session_of(knobs).attention_data_parallel, None
    low, high = 0, knobs.batch_size // n_ranks
    while high - low > 1:
        middle = (low + high) // 2
        try:
            said = pools_in_their_estimate(asked, replace(knobs, batch_size=middle * n_ranks))
        except RuntimeError:
            high = middle
        else:
            low = middle
    if said is None:
        raise failure
    return said._replace(n_fitting=low * n_ranks)


def pools_in_their_estimate(asked: Asked, knobs: Knobs) -> Said:
    """Our two pools by the package.

    Raises:
        RuntimeError, ValueError: it has no estimate of them.
    """
    from aiconfigurator.cli.api import cli_estimate

    session = session_of(knobs)
    prefill, decode = prefill_of(knobs).split, session.split
    estimate = cli_estimate(
        asked.name,
        asked.system,
        mode="disagg",
        backend_name=asked.engine,
        isl=asked.requests.input_tokens,
        osl=asked.requests.output_tokens,
        prefill_tp_size=prefill.tensor_parallel,
        prefill_attention_dp_size=prefill.attention_data_parallel,
        prefill_moe_tp_size=prefill.n_gpus // prefill.expert_parallel,
        prefill_moe_ep_size=prefill.expert_parallel,
        prefill_batch_size=prefill_of(knobs).batch_size,
        prefill_num_workers=prefill_of(knobs).workers,
        decode_tp_size=decode.tensor_parallel,
        decode_pp_size=knobs.n_ipu,
        decode_attention_dp_size=decode.attention_data_parallel,
        decode_moe_tp_size=decode.n_gpus // decode.expert_parallel,
        decode_moe_ep_size=decode.expert_parallel,
        decode_batch_size=int(session.of_rank((knobs.batch_size,))[0]),
        decode_num_workers=knobs.replicas,
    )
    return Said(float(estimate.raw["tokens/s"]), float(estimate.ttft) / 1e3, float(estimate.tpot) / 1e3)


if __name__ == "__main__":
    main()
