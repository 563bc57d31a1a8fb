"""Fits what the target gpu takes from measured rows: costs of the host CPU, and how far forecasts scatter.

    python studies/gpu_fit.py --rows FILE.csv

Rows have the columns of `systems/silicon_sample.csv` [aiconfigurator]; only those of which `zlib.crc32(id)` is even,
dense and in one pool, are read: the other half examines the result. Prints what `HOST_COSTS` of
`autoauto/engines/` and the priors of `autoauto/targets/gpu/calibration.py` hold.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from statistics import median, stdev
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from autoauto.engines.registry import ENGINES
from autoauto.evaluate.serving.measured import Row, measured_of, read_rows, replicas_of
from autoauto.records.errors import AutoautoError
from autoauto.records.units import FloatArray
from autoauto.targets.gpu.calibration import Group
from studies import gpu_accuracy

UNEXPLAINED = (
    ("Qwen/Qwen3-32B", "trtllm", "gb200", ""),  # 42 ms a word for one client, and four times that with more
    ("Qwen/Qwen3-32B", "vllm", "h100_sxm", "fp8"),  # answers sooner than its prompts can be computed: they were cached
    ("nvidia/Llama-3.1-8B-Instruct-FP8", "vllm", "h200_sxm", "fp8"),  # the same
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
        n_output_tokens: of an answer.
        decode_s: of a step of kernels.
        prompt_s: that a prompt adds.
        tpot_s, ttft_s: measured.
    """

    group: Group
    n_clients: int
    n_answered: int
    n_output_tokens: int
    decode_s: float
    prompt_s: float
    tpot_s: float
    ttft_s: float


def main() -> None:
    """Print the fitted constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    rows = read_rows(parser.parse_args().rows)
    even = [row for row in rows if gpu_accuracy.half(row) == "even"]
    samples = [sample for row in even for sample in samples_of(row)]
    explained = [sample for sample in samples if sample.group not in UNEXPLAINED]
    for engine in sorted({sample.group.engine for sample in explained}):
        of_engine = [sample for sample in explained if sample.group.engine == engine]
        step_s, sequence_s = host_costs(of_engine)
        first_s, together = first_words([each for each in of_engine if each.n_answered == each.n_clients])
        print(f"{engine}: step {step_s:.1e} sequence {sequence_s:.1e} first word {first_s:.2f} together {together:.2f}")
    for name, logs in scatters(even).items():
        scatter, middles = median(stdev(each) for each in logs), [median(each) for each in logs]
        near = 1.4826 * median(abs(middle) for middle in middles)  # the standard deviation of a normal distribution
        far = max(map(abs, middles))
        print(f"{name}: scatter {scatter:.2f} near {near:.2f} farthest {far:.2f}")


def samples_of(row: Row) -> Iterator[Sample]:
    """The sample of a row of a dense model; nothing where the tables do not have it."""
    if not any(name in row.text("model") for name in gpu_accuracy.DENSE):
        return
    try:
        replicas, n_clients = replicas_of(row, gpu_accuracy.decoder_of_row(row)), row.count("batch_size")
        n_answered = max(1, min(n_clients, replicas.max_sequences()))
        stages = zip(replicas.stages(n_answered), replicas.n_blocks, strict=True)
        decode_s, prompt_s = np.sum([stage.steps(np.array([n])) for stage, n in stages], axis=(0, 2))
    except AutoautoError:
        return
    measured = measured_of(row)
    yield Sample(
        group=gpu_accuracy.group_of(row),
        n_clients=n_clients,
        n_answered=n_answered,
        n_output_tokens=replicas.requests.output_tokens,
        decode_s=float(decode_s),
        prompt_s=float(prompt_s),
        tpot_s=measured.tpot_s or nan,
        ttft_s=measured.ttft_s or nan,
    )


def host_costs(samples: Sequence[Sample]) -> tuple[float, float]:
    """Seconds of a step and of a sequence in it, of least relative errors; a failed row weighs less."""
    mixes = ENGINES[samples[0].group.engine].mixes
    b = np.array([each.n_answered for each in samples])
    prompts = np.array([each.n_answered / each.n_output_tokens * each.prompt_s for each in samples]) * (
        1.0 if mixes else 0.5
    )
    kernels = np.array([each.decode_s for each in samples]) + prompts
    measured = np.array([each.tpot_s for each in samples])
    return _fitted(lambda x: np.log((kernels + 1e-3 * x[0] + 1e-5 * x[1] * b) / measured), (1e-3, 1e-5), 0.1)


def first_words(samples: Sequence[Sample]) -> tuple[float, float]:
    """Seconds of a first word, and the share of clients that ask together."""
    own = np.array([each.decode_s + each.prompt_s for each in samples])
    before = np.array([(each.n_clients - 1) / 2 * each.prompt_s for each in samples])
    measured = np.array([each.ttft_s for each in samples])
    return _fitted(lambda x: np.log((own + 0.1 * x[0] + x[1] * before) / measured), (0.1, 1.0), 0.2)


def _fitted(
    residuals: Callable[[FloatArray], FloatArray], units: tuple[float, float], scale: float
) -> tuple[float, float]:
    fit = least_squares(residuals, (0.5, 0.5), bounds=(0, np.inf), loss="soft_l1", f_scale=scale)
    return float(fit.x[0]) * units[0], float(fit.x[1]) * units[1]


def scatters(rows: Sequence[Row]) -> Mapping[str, list[list[float]]]:
    """Logarithms of measured over forecast, group by group."""
    tpot, ttft = defaultdict(list), defaultdict(list)
    for ratio in (ratio for row in rows for ratio in gpu_accuracy.ratios_of(row)):
        tpot[ratio.group].append(float(np.log(ratio.tpot or nan)))
        ttft[ratio.group].append(float(np.log(ratio.ttft or nan)))
    every = {"TPOT": tpot, "TTFT": ttft}
    return {name: [logs for logs in groups.values() if len(logs) >= _MIN_ROWS] for name, groups in every.items()}


if __name__ == "__main__":
    main()
