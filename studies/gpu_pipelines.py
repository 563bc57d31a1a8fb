"""What pipelines give language models on GPUs beside tensor parallelism and replicas alone, all by one estimator.

    python -m studies.gpu_pipelines [--small]

One line a question: the best configuration, the best without a pipeline (PP 1), and the gain; of a cluster of several
kinds of GPUs also the best of each kind alone. The first answer of a line must be its best. Modelled numbers: the
times of kernels are measured, steps and memory are modelled (docs/gpu.md).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

from autoauto.evaluate.open import load_flow
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Trial
from autoauto.study.defaults import default_space
from autoauto.study.search import search_flow
from autoauto.targets.gpu.session import GpuSession

ROUNDING = 1e-6


class Asked(NamedTuple):
    """Requests for a decoder on a cluster, and bounds.

    Attributes:
        model, cluster: by name.
        input_tokens, output_tokens: of a request.
        bounds: constraints.
    """

    model: str
    cluster: str
    input_tokens: int
    output_tokens: int
    bounds: tuple[str, ...] = ()


COUNTS = (3, 5, 6, 7, 12)
"""Of GPUs: most are no power of two."""
LLAMA, QWEN = "meta-llama/Meta-Llama-3.1-70B", "Qwen/Qwen3-32B"
ASKED = (
    *(Asked(LLAMA, f"h100_sxm-{n}", 1024, 1024) for n in COUNTS),
    *(Asked(QWEN, f"{system}-{n}", 2000, 500) for system in ("l40s", "rtx_pro_6000_server") for n in COUNTS),
    Asked(LLAMA, "h100_sxm-6", 1024, 1024, ("tpot_s <= 0.05",)),
    Asked(QWEN, "l40s-8", 2000, 500, ("ttft_s <= 5", "tpot_s <= 0.1")),
    Asked(QWEN, "rtx_pro_6000_server-8", 2000, 500, ("ttft_s <= 5", "tpot_s <= 0.1")),
    Asked(QWEN, "h100_sxm-4+l40s-4", 2000, 500),
    Asked(QWEN, "h100_sxm-3+l40s-5", 2000, 500, ("tpot_s <= 0.05",)),
    Asked(QWEN, "b200_sxm-2+h100_sxm-6", 1024, 1024, ("tpot_s <= 0.03",)),
    Asked(QWEN, "rtx_pro_6000_server-4+l40s-4", 1024, 256, ("ttft_s <= 2",)),
    Asked(QWEN, "h100_sxm-4", 2000, 500),
)
SMALL = (Asked("Qwen/Qwen3-0.6B", "l40s-3", 512, 128), Asked("Qwen/Qwen3-0.6B", "h100_sxm-1+l40s-1", 512, 128))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one small decoder on three GPUs")
    for asked in SMALL if parser.parse_args().small else ASKED:
        start_s = process_time()
        best, flat = (searched(asked, values) for values in ({}, {"n_ipu": (1,)}))
        names = asked.cluster.split("+") if "+" in asked.cluster else ()
        parts = {name: searched(asked._replace(cluster=name), {}) for name in names}
        assert all(tokens_per_s(best) >= tokens_per_s(other) * (1 - ROUNDING) for other in (flat, *parts.values()))
        print(line(asked, best, flat), *(f"{name}: {answer(part)};" for name, part in parts.items()), end=" ")
        print(f"{process_time() - start_s:.1f} s of CPU", flush=True)


def tokens_per_s(trial: Trial | None) -> float:
    """Of the cluster; 0 where nothing fits."""
    return 0.0 if trial is None else trial.samples_per_s


def searched(
    asked: Asked, values: Mapping[str, Sequence[object]], options: Mapping[str, object] | None = None
) -> Trial | None:
    """The best configuration of a search, with some values of knobs and options; None where nothing fits."""
    bounds = tuple(map(Constraint, asked.bounds))
    flow = load_flow(asked.model, asked.cluster, "gpu", constraints=bounds, options=options)
    requests = {"input_tokens": (asked.input_tokens,), "output_tokens": (asked.output_tokens,)}
    space = default_space(flow, {**requests, **values})
    with tempfile.TemporaryDirectory() as folder:
        return search_flow(flow, space, storage=f"sqlite:///{Path(folder) / 'trials.db'}").best


def line(asked: Asked, best: Trial | None, flat: Trial | None) -> str:
    """A question and both answers."""
    gain = best.samples_per_s / flat.samples_per_s - 1 if best and flat else None
    bounds = f" {', '.join(asked.bounds)}" if asked.bounds else ""
    text = f"{asked.model} {asked.cluster} {asked.input_tokens}/{asked.output_tokens}{bounds}"
    return f"{text}: {answer(best)}; PP 1: {answer(flat)}; {'' if gain is None else f'{gain:+.1%}'};"


def shape_of(knobs: Knobs) -> str:
    """Groups, stages, replicas and sequences of a configuration."""
    session = knobs.session
    assert isinstance(session, GpuSession)
    ranks = f" DP{session.attention_data_parallel}" * (session.attention_data_parallel > 1)
    experts = f" EP{session.expert_parallel}" * (session.expert_parallel > 1)
    return f"TP{session.tensor_parallel}{ranks}{experts} PP{knobs.n_ipu} x{knobs.replicas} b{knobs.batch_size}"


def answer(trial: Trial | None) -> str:
    """A configuration and what it gives."""
    if trial is None or trial.tokens.tpot_s is None or trial.tokens.ttft_s is None:
        return "nothing fits"
    knobs = trial.knobs
    per_gpu = trial.samples_per_s / knobs.n_devices
    engine = knobs.session.values["engine"]
    return (
        f"{trial.samples_per_s:,.0f} tokens/s, {per_gpu:,.0f} a GPU used ({engine} {shape_of(knobs)}, "
        f"TPOT {1e3 * trial.tokens.tpot_s:.0f} ms, TTFT {trial.tokens.ttft_s:.2f} s)"
    )


if __name__ == "__main__":
    main()
