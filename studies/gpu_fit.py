"""Fits what the target gpu takes from measured rows: costs of the host CPU, and how far forecasts scatter.

    python studies/gpu_fit.py --rows FILE.csv

Rows have the columns of `systems/silicon_sample.csv` [aiconfigurator]; only those of which `zlib.crc32(id)` is even,
dense and in one pool, are read: the other half examines the result. Prints what `HOST_COSTS` of
`autoauto/engines/` and the priors of `autoauto/targets/gpu/family_errors.py` hold.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from statistics import median, stdev
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from autoauto.evaluate.serving.costs import PositionCosts
from autoauto.evaluate.serving.fixed import FixedReplicas
from autoauto.evaluate.serving.measured import replicas_of
from autoauto.evaluate.serving.rates import StageSteps, rates_of
from autoauto.evaluate.serving.rows import Row, measured_of
from autoauto.records.errors import AutoautoError
from autoauto.records.units import FloatArray
from autoauto.targets.gpu.calibration import Group
from autoauto.targets.gpu.family_errors import DENSE
from studies import gpu_accuracy

UNEXPLAINED = (
    ("Qwen/Qwen3-32B", "trtllm", "gb200", "bf16", DENSE),  # 42 ms a word for one client, and four times that with more
    (
        "Qwen/Qwen3-32B",
        "vllm",
        "h100_sxm",
        "fp8",
        DENSE,
    ),  # answers sooner than its prompts can be computed: they were cached
    ("nvidia/Llama-3.1-8B-Instruct-FP8", "vllm", "h200_sxm", "fp8", DENSE),  # the same
)
"""Groups whose measurements no model of a step explains; they take part in the examination, not in the fit."""
_MIN_ROWS = 5
"""Of a group that tells how rows scatter."""


class Sample(NamedTuple):
    """A measured row and the times of its kernels, in seconds.

    Attributes:
        group: what shares a factor.
        n_clients: that ask.
        n_answered: sequences of a step, as many as the KV cache holds.
        prompts_of_step: that a sequence waits for between two tokens, in the mean.
        decode_s: of a step of kernels.
        prompt_s: that a prompt adds.
        first_s: of a first token without what is fitted.
        behind_s: that one prompt before its own adds; 0 where lengths vary.
        together_s: that the prompts of all others add, where they arrive together after the first wave; 0 likewise.
        tpot_s, ttft_s: measured.
    """

    group: Group
    n_clients: int
    n_answered: int
    prompts_of_step: float
    decode_s: float
    prompt_s: float
    first_s: float
    behind_s: float
    together_s: float
    tpot_s: float
    ttft_s: float


def main() -> None:
    """Print the fitted constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    rows = gpu_accuracy.one_pool_rows(parser.parse_args().rows)
    even = [row for row in rows if gpu_accuracy.half(row) == "even"]
    samples = [sample for row in even for sample in samples_of(row)]
    explained = [sample for sample in samples if sample.group not in UNEXPLAINED]
    for engine in sorted({sample.group.engine for sample in explained}):
        of_engine = [sample for sample in explained if sample.group.engine == engine]
        step_s, sequence_s = host_costs(of_engine)
        first_s, n_behind, together = first_tokens([each for each in of_engine if each.n_answered == each.n_clients])
        print(
            f"{engine}: step {step_s:.1e} sequence {sequence_s:.1e} first token {first_s:.3f} behind {n_behind:.1f} "
            f"together {together:.2f}"
        )
    for name, logs in scatters(even).items():
        scatter, middles = median(stdev(each) for each in logs), [median(each) for each in logs]
        near = 1.4826 * median(abs(middle) for middle in middles)  # the standard deviation of a normal distribution
        far = max(map(abs, middles))
        print(f"{name}: scatter {scatter:.2f} near {near:.2f} farthest {far:.2f}")


def samples_of(row: Row) -> Iterator[Sample]:
    """The sample of a row of a dense model; nothing where the tables do not have it."""
    if not any(name in row.text("model") for name in gpu_accuracy.MODELS):
        return
    try:
        replicas, n_clients = replicas_of(row, gpu_accuracy.decoder_of_row(row)), row.count("batch_size")
        n_answered = max(1, min(n_clients, replicas.max_sequences()))
        costs = replicas.stages(n_answered)
        decode_s, prompt_s = np.sum([costs[0].steps(np.array([replicas.n_blocks[0]]))], axis=(0, 2))
        first_s = [_first_token_s(replicas, costs[0], n_answered, *of) for of in ((0, 0), (1, 0), (0, 1))]
    except AutoautoError:
        return
    measured, engine = measured_of(row), replicas.engine
    together = replicas.arrivals.share_together(engine.host.together)
    yield Sample(
        group=gpu_accuracy.group_of(row),
        n_clients=n_clients + replicas.n_beyond,
        n_answered=n_answered,
        prompts_of_step=n_answered / replicas.requests.output_tokens * (1.0 if engine.mixes else 1 - together / 2),
        decode_s=float(decode_s),
        prompt_s=float(prompt_s),
        first_s=first_s[0],
        behind_s=first_s[1] - first_s[0],
        together_s=first_s[2] - first_s[0],
        tpot_s=measured.tpot_s or nan,
        ttft_s=measured.ttft_s or nan,
    )


def _first_token_s(
    replicas: FixedReplicas, costs: PositionCosts, n_sequences: int, n_behind: float, together: float
) -> float:
    """The time to the first token of one stage, with what is fitted given."""
    host = replicas.engine.host._replace(first_token_s=0.0, together=together, n_behind=n_behind)
    engine = replace(replicas.engine, host=host)
    decode, prompt = (each[None] for each in costs.steps(np.array([replicas.n_blocks[0]])))
    steps, n_tokens = StageSteps(decode, prompt, np.zeros((1, 1))), replicas.n_max_batched_tokens
    b = np.array([float(n_sequences)])
    return rates_of(steps, b, replicas.requests, engine, n_tokens, replicas.arrivals).ttft_s.item()


def host_costs(samples: Sequence[Sample]) -> tuple[float, float]:
    """Seconds of a step and of a sequence in it, of least relative errors; a failed row weighs less."""
    b = np.array([each.n_answered for each in samples])
    prompts = np.array([each.prompts_of_step * each.prompt_s for each in samples])
    kernels = np.array([each.decode_s for each in samples]) + prompts
    measured = np.array([each.tpot_s for each in samples])
    step_s, sequence_s = _fitted(
        lambda x: np.log((kernels + 1e-3 * x[0] + 1e-5 * x[1] * b) / measured), (1e-3, 1e-5), 0.1
    )
    return step_s, sequence_s


def first_tokens(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """Seconds of a first token, prompts behind which one is computed, and the share of clients that ask together."""
    base, behind, together, measured = np.array(
        [(each.first_s, each.behind_s, each.together_s, each.ttft_s) for each in samples]
    ).T
    first_s, n_behind, share = _fitted(
        lambda x: np.log((base + 0.1 * x[0] + x[1] * behind + x[2] * together) / measured), (0.1, 1.0, 1.0), 0.2
    )
    return first_s, n_behind, share


def _fitted(residuals: Callable[[FloatArray], FloatArray], units: Sequence[float], scale: float) -> list[float]:
    fit = least_squares(residuals, np.full(len(units), 0.5), bounds=(0, np.inf), loss="soft_l1", f_scale=scale)
    return [float(x) * unit for x, unit in zip(fit.x, units, strict=True)]


def scatters(rows: Sequence[Row]) -> Mapping[str, list[list[float]]]:
    """Logarithms of measured over forecast, group by group."""
    tpot, ttft = defaultdict(list), defaultdict(list)
    ratios = (ratio for row in rows for ratio in gpu_accuracy.ratios_of(row))
    for ratio in (ratio for ratio in ratios if ratio.group.family == DENSE):
        tpot[ratio.group].append(float(np.log(ratio.tpot or nan)))
        ttft[ratio.group].append(float(np.log(ratio.ttft or nan)))
    every = {"TPOT": tpot, "TTFT": ttft}
    return {name: [logs for logs in groups.values() if len(logs) >= _MIN_ROWS] for name, groups in every.items()}


if __name__ == "__main__":
    main()
