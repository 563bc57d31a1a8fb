"""What GPUs cost and draw at most that a configuration uses: numbers, bounds, objectives, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autoauto.evaluate.open import load_flow
from autoauto.records.errors import BadInput
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.trial import Status
from autoauto.study.arguments import check_objectives
from autoauto.targets.clusters import cluster_toml
from autoauto.targets.gpu.systems import cluster_named, prices_of
from tests.decoders import decoder_folder

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
PRICES = {"price": "h100=2.5,l40s=0.9"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoder_folder(tmp_path_factory.mktemp("models") / "small")


def serving(n_ipu: int = 1, replicas: int = 1, batch_size: int = 8, tensor_parallel: int = 1) -> Knobs:
    values: dict[str, Any] = {"engine": "vllm", "tensor_parallel": tensor_parallel}
    return Knobs(n_ipu, batch_size, replicas, **values, input_tokens=512, output_tokens=128)


def test_the_gpus_that_are_used_cost_and_those_that_are_idle_do_not(model: Path) -> None:
    flow = load_flow(model, "h100_sxm-8", "gpu", options=PRICES)
    trial = flow.evaluate(serving(replicas=2, tensor_parallel=2))
    assert trial.result.devices.usd_per_hour == 4 * 2.5
    assert trial.result.devices.power_limit_w == 4 * 700
    assert trial.result.derived["usd_per_million"] == pytest.approx(1e6 * 10 / 3600 / trial.tokens.tokens_per_s)
    assert trial.result.derived["max_joules"] == pytest.approx(2800 / trial.tokens.tokens_per_s)
    (forecast,) = flow.forecasts([serving(replicas=2, tensor_parallel=2)])
    assert forecast.result.derived == trial.result.derived


def test_of_several_kinds_those_count_on_which_pipelines_stand(model: Path) -> None:
    flow = load_flow(model, "h100_sxm-2+l40s-2", "gpu", options=PRICES)
    assert flow.evaluate(serving()).result.devices.usd_per_hour == 2.5, "one replica is on the faster kind"
    assert flow.evaluate(serving(replicas=4)).result.devices.usd_per_hour == pytest.approx(2 * 2.5 + 2 * 0.9)
    assert flow.evaluate(serving(replicas=4)).result.devices.power_limit_w == 2 * 700 + 2 * 350
    half = load_flow(model, "h100_sxm-2+l40s-2", "gpu", options={"price": "h100=2.5"})
    assert half.evaluate(serving()).result.devices.usd_per_hour == 2.5
    assert half.evaluate(serving(replicas=4)).result.devices.usd_per_hour is None, "nobody says what an L40S costs"
    with pytest.raises(BadInput, match=r"needs price_per_hour of every device, .* has none of l40s; "):
        check_objectives(half, Objective.COST)
    with pytest.raises(BadInput, match=r"needs devices of one price_per_hour, .* has kinds that differ; "):
        check_objectives(flow, Objective.COST)


def test_a_bound_on_the_price_holds_at_the_end_of_the_interval(model: Path) -> None:
    usd = load_flow(model, "h100_sxm-4", "gpu", options=PRICES).evaluate(serving()).result.derived["usd_per_million"]
    for factor, status in ((1.001, Status.CONSTRAINED), (2.0, Status.OK)):
        bounds = (Constraint(f"usd_per_million <= {factor * usd}"),)
        flow = load_flow(model, "h100_sxm-4", "gpu", options=PRICES, constraints=bounds)
        (forecast,) = flow.forecasts([serving()])
        assert forecast.status == flow.evaluate(serving()).status == status


def test_a_bound_on_the_price_takes_the_cheaper_kind(model: Path) -> None:
    mixed = "h100_sxm-2+l40s-2"
    assert load_flow(model, mixed, "gpu", options=PRICES).evaluate(serving()).result.devices.usd_per_hour == 2.5
    bounds = (Constraint("usd_per_hour <= 1"),)
    flow = load_flow(model, mixed, "gpu", options=PRICES, constraints=bounds)
    (forecast,) = flow.forecasts([serving()])
    assert forecast.result.devices.usd_per_hour == flow.evaluate(serving()).result.devices.usd_per_hour == 0.9
    assert flow.evaluate(serving(replicas=2)).status is Status.CONSTRAINED


def test_a_bound_on_what_nobody_says_is_refused(model: Path) -> None:
    with pytest.raises(BadInput, match=r"^the constraint 'usd_per_hour <= 20' needs price_per_hour of every device, "):
        load_flow(model, "h100_sxm-4", "gpu", constraints=(Constraint("usd_per_hour <= 20"),))


def test_a_file_of_a_cluster_says_prices_and_limits(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    text = cluster_toml(cluster_named("l40s-2"), "test")
    assert "price" not in text
    device = "power_limit_w = 350.0"
    path.write_text(text.replace(device, "price_per_hour = 0.5\npower_limit_w = 250.0"))
    trial = load_flow(model, path, "gpu").evaluate(serving(replicas=2))
    assert (trial.result.devices.usd_per_hour, trial.result.devices.power_limit_w) == (1.0, 500.0)
    path.write_text(text.replace(device, "price_per_hour = 0.5"))
    trial = load_flow(model, path, "gpu", options=PRICES).evaluate(serving(replicas=2))
    assert trial.result.devices.usd_per_hour == 1.8, "--price is the later word"
    assert trial.result.devices.power_limit_w == 700.0, "where the file says none it is that of the system"
    path.write_text(text.replace(device, "price_per_hour = 0"))
    with pytest.raises(BadInput, match="price_per_hour"):
        load_flow(model, path, "gpu")


@pytest.mark.parametrize(
    ("field", "value"), [("memory_bytes", "44"), ("memory_bytes", "48_000_000_000_000"), ("power_limit_w", "0.35")]
)
def test_memory_and_power_in_another_unit_are_refused(model: Path, tmp_path: Path, field: str, value: str) -> None:
    """GPUs of a cluster of several kinds that no block fits would be left out without a word."""
    path = tmp_path / "own.toml"
    text = cluster_toml(cluster_named("l40s-2"), "test")
    path.write_text(re.sub(rf"(?m)^{field} = .*$", f"{field} = {value}", text))
    with pytest.raises(BadInput, match=rf"^{field} of l40s must be within 16 times the .*; which unit"):
        load_flow(model, path, "gpu")


@pytest.mark.parametrize(
    ("text", "prices"),
    [(None, {}), ("h100_sxm=2.5", {"h100_sxm": 2.5}), ("H100 = 2.5,l40s=1e-1", {"h100_sxm": 2.5, "l40s": 0.1})],
)
def test_prices_are_read(text: str | None, prices: Mapping[str, float]) -> None:
    assert prices_of(text) == prices


@pytest.mark.parametrize("text", ["h100=0", "h100=-1", "h100=inf", "h100=nan", "h100", "h100=2,h100_sxm=3", "h100=x"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^--price is GPU=USD with a number above 0, every system once"):
        prices_of(text)


def test_an_unknown_system_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^GPUs are .*, got 'k80'"):
        prices_of("k80=1")


@pytest.mark.parametrize("objective", [Objective.COST, Objective.ENERGY])
def test_the_worth_of_a_forecast_is_in_proportion_to_its_score(model: Path, objective: Objective) -> None:
    flow = load_flow(model, "h100_sxm-4", "gpu", options=PRICES)
    trials = [flow.evaluate(serving(batch_size=n, tensor_parallel=tp)) for n, tp in ((1, 1), (32, 1), (32, 2))]
    ratios = [objective.worth(trial) / objective.score(objective.of(trial)) for trial in trials]
    assert ratios == pytest.approx([ratios[0]] * 3)
