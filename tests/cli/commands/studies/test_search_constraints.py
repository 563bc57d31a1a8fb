"""`autoauto search --constraint`, and searches for several objectives."""

import json

import pytest

from autoauto.cli.main import build_parser
from autoauto.space.requests.request import SearchRequest
from tests.cli.conftest import Prepare, RunCli

SMALL = (
    *("search", "resnet50", "--batch-size", "1:8", "--memory-proportion", "0.6", "--n-ipu", "1,2", "--replicas", "1"),
    *("--strategy", "pipeline"),
)


def constraints(*words: str) -> list[str]:
    request = SearchRequest.of(vars(build_parser().parse_args(["search", *words])))
    return [constraint.text for constraint in (*request.study.space.constraints, *request.problem.constraints)]


def test_a_latency_bound_is_a_constraint() -> None:
    assert constraints("--constraint", "n_ipu<3", "--max-latency-s", "0.02") == ["n_ipu < 3", "latency_s <= 0.02"]
    assert constraints("--max-latency-s", "2e-2", "--constraint", "latency_s<=0.02") == ["latency_s <= 0.02"]
    assert constraints() == []


def test_text_that_is_no_constraint_is_refused(run_cli: RunCli) -> None:
    for words in (("--constraint", "latency <= 1%"), ("--max-latency-s", "0"), ("--constraint", "n_ipu > 9")):
        code, out, err = run_cli(*SMALL, *words)
        assert (code, out, err.count("\n")) == (2, "", 1), words
        assert "%%" not in err


def test_the_best_configuration_meets_a_bound_in_a_study_of_its_own(run_cli: RunCli) -> None:
    free = json.loads(run_cli(*SMALL, "--json").out)
    bound = free["best"]["latency_s"] * 0.8
    bounded = json.loads(run_cli(*SMALL, "--max-latency-s", str(bound), "--json").out)
    assert bounded["best"]["latency_s"] <= bound
    assert bounded["best"]["samples_per_s"] < free["best"]["samples_per_s"]
    assert bounded["study_name"] != free["study_name"]
    refused = run_cli(*SMALL, "--max-latency-s", str(bound), "--study-name", free["study_name"])
    assert refused.code == 2
    assert "made with constraints ''" in refused.err
    small = json.loads(run_cli(*SMALL, "--constraint", "n_ipu * batch_size <= 8", "--json").out)
    assert (free["n_configurations"], small["n_configurations"]) == (16, 12)
    assert small["study_name"] != free["study_name"]
    assert small["best"]["n_ipu"] * small["best"]["batch_size"] <= 8


def test_the_reason_names_a_constraint_that_nothing_meets(run_cli: RunCli) -> None:
    code, out, err = run_cli(*SMALL, "--max-latency-s", "1e-6", "--json")
    assert (code, json.loads(out)["best"], err.count("\n")) == (3, None, 1)
    assert "latency_s <= 1e-06 does not hold" in err


@pytest.mark.slow
def test_several_objectives_have_a_pareto_front(run_cli: RunCli) -> None:
    words = (*SMALL, "--objective", "throughput,latency", "--study-name", "two")
    shown = run_cli(*words, "--method", "exhaustive").out
    assert "No other is better in throughput and latency" in shown
    result = json.loads(run_cli(*words, "--method", "exhaustive", "--json").out)
    speeds, latencies = ([row[name] for row in result["front"]] for name in ("samples_per_s", "latency_s"))
    assert speeds == sorted(speeds, reverse=True)
    assert latencies == sorted(latencies, reverse=True)
    assert json.loads(run_cli("report", "two", "--json").out)["front"] == result["front"]
    assert "No other is better" in run_cli("report", "two").out
    assert "Trials by throughput,latency" in run_cli("trials", "two").out
    assert "Why this one, by throughput" in run_cli("explain", "two").out
    assert json.loads(run_cli(*words, "--dry-run", "--json").out)["n_measured"] > 0
    refused = run_cli(*words, "--method", "guided")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "guided optimises one objective" in refused.err


def test_a_page_of_several_objectives_is_written(run_cli: RunCli, prepare: Prepare) -> None:
    prepare(*SMALL, "--objective", "latency,per-device", "--study-name", "two", "--n-measurements", "4")
    assert run_cli("report", "two", "--html", "two.html").code == 0
