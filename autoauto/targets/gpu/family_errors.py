"""The errors of forecasts of families of decoders against measured rows: `priors_of`, `error_notes`.

    family, engine, format, system     the errors of its own even rows
    family, engine, format             on another system: as on the measured systems, and wider
    family                             by another engine or in another format: as wide as families differ

Decode steps of servers whose prompts others compute are a family of their own: `decoding_family`.

`data/errors/gpu.csv` has what `studies/gpu_family_errors.py` fitted to the even half of measured rows [aiconfigurator].
Plain dense decoders are one family: costs were fitted to their rows, so their forecasts stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from csv import DictReader
from functools import cache
from math import exp, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

from autoauto.records.costs.blocks import Attention, Dense
from autoauto.records.costs.decoder import Decoder
from autoauto.records.installation import data_dir

DENSE = "dense"
"""The family of decoders whose blocks attend to all tokens and have a dense feed-forward layer."""
CONTRADICTED, SCATTERED = 1 / 3, 0.3
"""Times of a group count as contradicted if, without its factor, the median forecast is so far off, or if its rows
scatter so much."""
_LARGEST_GROUP = 8
"""GPUs of the groups in which experts were measured; larger ones are extrapolated."""
MIN_ROWS = 10
"""Minimum number of rows of a group whose times may count as contradicted."""
_WITHIN = NormalDist().inv_cdf(0.9)
"""Standard deviations within which 80 % of rows lie."""
_NEAR_TPOT, _NEAR_TTFT, _FAR, _P_FAR = 0.06, 0.13, 0.9, 0.02
"""With these 77 % of the even rows of a source that was left out, and 83 % of others, lie in intervals of TPOT."""


class Prior(NamedTuple):
    """The prior distribution of measured over forecast times of a group, as standard deviations of logarithms.

    Attributes:
        scatter: deviation of rows around the mean of their group.
        near: deviation of the means of most groups around the centre.
        far: deviation of the means of the other groups.
        p_far: the probability that a group is one of the others.
        centre: the logarithm of the ratio around which most groups lie.
    """

    scatter: float
    near: float
    far: float
    p_far: float = 0.15
    centre: float = 0.0


class Priors(NamedTuple):
    """The priors of the time between two tokens, and of the time to the first token."""

    tpot: Prior
    ttft: Prior


TPOT_PRIOR = Prior(0.08, 0.06, 0.9, p_far=0.06)
TTFT_PRIOR = Prior(0.24, 0.13, 0.9)
"""The priors of dense models, by `studies/gpu_fit.py` on the even half of the measured rows: the deviation in a group,
by its median, and the deviation of the groups' medians; far groups lie as far as those that the program names."""


class ErrorKey(NamedTuple):
    """The configurations that share their errors; an empty text stands for all others."""

    family: str = ""  # of the decoder
    engine: str = ""
    precision: str = ""  # the format of weights
    system: str = ""


class FamilyErrors(NamedTuple):
    """The errors of forecasts by even rows.

    Attributes:
        median: median of the measured over the forecast time between two tokens.
        factor: factor by which forecasts of that time are multiplied.
        tpot_spread: standard deviation of the logarithms of its rows around the factor.
        ttft_spread: standard deviation of the logarithms of the time to the first token around the forecast.
    """

    n_rows: int
    median: float
    factor: float
    tpot_spread: float
    ttft_spread: float

    @property
    def is_contradicted(self) -> bool:
        """True if enough rows are far from their forecasts, or from each other."""
        is_far = abs(1 / self.median - 1) >= CONTRADICTED or self.tpot_spread >= SCATTERED
        return self.n_rows >= MIN_ROWS and is_far

    @property
    def ends(self) -> tuple[float, float]:
        """The ends between which 80 % of rows have their measured over their forecast time between two tokens."""
        width = exp(_WITHIN * self.tpot_spread)
        return self.factor / width, self.factor * width

    @property
    def priors(self) -> Priors:
        """The errors as priors.

        The configuration of a user has another mean than the rows. For TTFT that is part of the spread already, so it
        is taken out of the scatter.
        """
        near = min(_NEAR_TTFT, self.ttft_spread / 2)
        ttft = Prior(sqrt(self.ttft_spread**2 - near**2), near, _FAR, _P_FAR)
        return Priors(Prior(self.tpot_spread, _NEAR_TPOT, _FAR, _P_FAR, centre=log(self.factor)), ttft)


@cache
def error_table() -> Mapping[ErrorKey, FamilyErrors]:
    """The rows of the file."""
    table = {}
    with (data_dir() / "errors" / "gpu.csv").open(encoding="utf-8", newline="") as file:
        for row in DictReader(file):
            key = ErrorKey(*(row[name] for name in ErrorKey._fields))
            table[key] = FamilyErrors(int(row["n_rows"]), *(float(row[name]) for name in FamilyErrors._fields[1:]))
    return table


def family_of(decoder: Decoder) -> str:
    """`DENSE`, or the class of the decoder.

    >>> family_of(Decoder("", "LlamaForCausalLM", 8192, 80, 64, 8, 128, 28672, 128256, is_tied=False))
    'dense'
    """
    for kind in decoder.block_kinds:
        attention = kind.attention
        plain = isinstance(attention, Attention) and attention.window is None and isinstance(kind.feed_forward, Dense)
        if not plain:
            return decoder.architecture
    return DENSE


def decoding_family(family: str, n_gpus: int) -> str:
    """The name of a family whose prompts are computed by other servers, so that its errors are those of decode steps.

    Groups over several nodes have other errors, because the times of their exchange of tokens have.

    >>> decoding_family("A", 8), decoding_family("A", 32), decoding_family("dense", 8)
    ('A decoding', 'A decoding in large groups', 'dense')
    """
    if family == DENSE:
        return DENSE
    if n_gpus > _LARGEST_GROUP:
        return f"{family} decoding in large groups"
    return f"{family} decoding"


def errors_of(key: ErrorKey) -> FamilyErrors:
    """Errors of a group that is not `DENSE`: by its own rows, or else by those of any system, or else by all rows."""
    table = error_table()
    return table.get(key) or table.get(key._replace(system="")) or table[ErrorKey()]


@cache
def priors_of(key: ErrorKey) -> Priors:
    """The distributions of forecast errors that hold until a user has measured something."""
    if key.family == DENSE:
        return Priors(TPOT_PRIOR, TTFT_PRIOR)
    return errors_of(key).priors


def error_notes(decoder: Decoder, engines: Iterable[str], systems: Sequence[str]) -> tuple[str, ...]:
    """The errors of forecasts of a decoder in the format of its checkpoint, a sentence each."""
    family, weights = family_of(decoder), str(decoder.checkpoint.weights)
    if family == DENSE:
        return ()
    what = f"{decoder.architecture} in {weights}"
    contradicted, by_others = [], []
    measured, not_measured = [], []
    for engine in engines:
        for system in systems:
            key = ErrorKey(family, engine, weights, system)
            where = f"{engine} on {system}"
            errors = error_table().get(key)
            if errors is None:
                not_measured.append(where)
                factor = errors_of(key).factor
                if round(factor, 2) != 1:
                    by_others.append(f"TPOT of {what} by {where} is multiplied by {factor:.2f}, as on other GPUs")
                continue
            measured.append(f"{where} times {errors.factor:.2f} ({errors.n_rows} rows)")
            if errors.is_contradicted:
                low, high = errors.ends
                contradicted.append(
                    f"times of {what} by {where} are not trusted: 80 % of {errors.n_rows} measured rows have "
                    f"{low:.2f} to {high:.2f} times their TPOT"
                )
    notes = contradicted
    if measured:
        notes.append(f"TPOT of {what} is multiplied by what measured rows say: {', '.join(measured)}")
    notes += by_others
    if not_measured:
        notes.append(f"intervals are wide where no row of {what} was measured: {', '.join(not_measured)}")
    return tuple(notes)
