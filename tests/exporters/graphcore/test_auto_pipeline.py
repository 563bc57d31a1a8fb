"""The files of auto_pipeline, and the plans that no runtime of Graphcore runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoauto.estimate.table import cost_table
from autoauto.exporters.exporter import Deployment
from autoauto.exporters.registry import write_artifact
from autoauto.plan.pipeline.optimal import optimal
from autoauto.profile.importers.auto_pipeline import (
    cluster_from_auto_pipeline,
    planning_proportion_from_auto_pipeline,
    profile_from_auto_pipeline,
)
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.records.units import Precision
from tests.exporters.graphcore.conftest import Deploy

FORMATS = ("popart", "poptorch", "tensorflow-ipu", "auto-pipeline")


def test_what_is_written_can_be_planned_from(deploy: Deploy, tmp_path: Path) -> None:
    plan = deploy(2, "resnet50")
    checks = write_artifact(plan, "auto-pipeline", tmp_path / "artifact", check=True)
    assert [check.passed for check in checks] == [True, True, True, None]
    read: Any = lambda name: json.loads((tmp_path / "artifact" / name).read_text(encoding="utf-8"))  # noqa: E731
    profile = profile_from_auto_pipeline(read("model_info.json"))
    cluster = cluster_from_auto_pipeline(read("cluster_info.json"))
    proportion = planning_proportion_from_auto_pipeline(read("config.json"))
    planned = optimal(cost_table(profile, cluster, proportion))
    partition = (tmp_path / "artifact" / "partition.txt").read_text(encoding="utf-8")
    assert partition == "_".join(map(str, planned.partition)) + "\n"


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda plan: {"cluster": replace(plan.cluster, target="host")}, "runs on IPUs, got a plan for host"),
        (lambda plan: {"precision": Precision.FP8}, "no option for products in fp8"),
        (lambda plan: {"plan": kinds(plan)}, "IPUs of one kind"),
        (lambda plan: {"plan": replace(plan.plan, other_plans=(plan.plan,))}, "one plan for all replicas"),
    ],
)
def test_other_plans_are_refused_and_leave_nothing(
    deploy: Deploy, tmp_path: Path, to: str, change: Any, reason: str
) -> None:
    plan = deploy(2)
    with pytest.raises(BadInput, match=reason):
        write_artifact(replace(plan, **change(plan)), to, tmp_path / "artifact")
    assert not (tmp_path / "artifact").exists()


def kinds(plan: Deployment) -> Any:
    return replace(plan.plan, stages=tuple(replace(stage, device_kind="mk2") for stage in plan.plan.stages))


@pytest.mark.parametrize("to", FORMATS[:3])
def test_other_orders_are_refused(deploy: Deploy, tmp_path: Path, to: str) -> None:
    plan = deploy(2, schedule=Order.GPIPE, n_micro_batches=8)
    with pytest.raises(BadInput, match="trains in the order of PopART, got gpipe; try --schedule popart"):
        write_artifact(plan, to, tmp_path / "artifact")
