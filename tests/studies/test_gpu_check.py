"""The checks of GPUs as far as they run on cores, and what the script says without a GPU."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from autoauto.evaluate.open import load_flow
from autoauto.records.errors import AutoautoError
from autoauto.records.units import MIB
from autoauto.targets.clusters import cluster_toml
from autoauto.targets.host.detect import usable_cores
from autoauto.targets.host.gpu.gpus import gpus
from studies.custom_target import model_of
from studies.gpu_check import SKIPPED, Session, exported, fits_device, largest, open_flow, prediction, sessions, unlike
from tests.targets.host.conftest import unlike_of


def has_gpu() -> bool:
    try:
        return bool(gpus())
    except AutoautoError:
        return False


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU: run studies/gpu_check.py itself")
def test_without_a_gpu_it_says_so_in_one_line(run_script: Callable[..., list[str]]) -> None:
    (line,) = run_script("gpu_check", exit_codes=(SKIPPED,))
    assert line.startswith("not checked, there is no GPU to check: --device ")


@pytest.mark.parametrize("boundary", [0, 1, 2, 37, 64, 99])
def test_the_boundary_is_found_by_bisection(boundary: int) -> None:
    tried: list[int] = []

    def fits(batch_size: int) -> bool:
        tried.append(batch_size)
        return batch_size <= boundary

    assert largest(fits, most=99) == boundary
    assert max(tried, default=0) <= 99
    assert len(tried) == len(set(tried)) <= 14


def test_a_prediction_holds_within_its_bound() -> None:
    assert prediction("m", [Session(1, 109.0, 100.0), Session(8, 100.0, 109.0)]).holds
    check = prediction("m", [Session(1, 100.0, 125.0), Session(8, 100.0, 100.0)])
    assert not check.holds
    assert check.figures == "mean error 12.5 % (batch 1: 125.0/s, +25.0 %, batch 8: 100.0/s, +0.0 %)"


@pytest.mark.slow
def test_a_device_of_little_memory_has_a_boundary(tmp_path: Path) -> None:
    onnx.save(model_of(n_layers=2, width=512), tmp_path / "small.onnx")
    fits = fits_device(open_flow(str(tmp_path / "small.onnx"), None, memory_mib=24))
    assert fits(2)
    assert not fits(16_384)


@pytest.mark.slow
def test_sessions_are_estimated_and_measured(tmp_path: Path) -> None:
    onnx.save(model_of(n_layers=2, width=512), tmp_path / "small.onnx")
    flow = open_flow(str(tmp_path / "small.onnx"), None)
    (session,) = sessions(flow, [16])
    assert min(session.predicted_samples_per_s, session.samples_per_s) > 0


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="two devices need two cores")
def test_two_unlike_devices_both_compute(tmp_path: Path) -> None:
    onnx.save(model_of(n_layers=6, width=1024), tmp_path / "wide.onnx")
    (tmp_path / "unlike.toml").write_text(cluster_toml(unlike_of(256 * MIB, 16 * MIB), "a test"), encoding="utf-8")
    flow = load_flow(str(tmp_path / "wide.onnx"), str(tmp_path / "unlike.toml"), "host")
    check = unlike("wide", flow)
    assert check.holds
    assert f"layers on core of {16 * MIB}" in check.figures
    check = exported(str(tmp_path / "wide.onnx"), flow, 2)
    assert check.holds
    assert check.figures.count("of the largest value") == 2  # the program and the served processes
