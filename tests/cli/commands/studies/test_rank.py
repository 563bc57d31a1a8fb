"""Clusters for the same load: a row with the best of each, that a search of it alone finds."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import RunCli
from tests.decoders import decoder_folder

SPACE = ("--n-ipu", "1", "--memory-proportion", "0.6", "--batch-size", "1,2", "--replicas", "1")
LOAD = ("--input-tokens", "512", "--output-tokens", "128", "--engine", "trtllm", "--tensor-parallel", "1,2")


@pytest.fixture
def storage(tmp_path: Path) -> tuple[str, str]:
    return ("--storage", f"sqlite:///{tmp_path}/rank.db")


def test_rows_are_what_searches_of_the_clusters_find(run_cli: RunCli, storage: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    model = str(decoder_folder(tmp_path / "small"))
    load = (*LOAD, "--batch-size", "8,32")
    asked = (model, *load, "--price", "l40s=0.9,h100=2.5", "--objective", "cost", *storage, "--json")
    code, out, _ = run_cli("rank", *asked, "--cluster", "l40s-2,h100_sxm-2")
    rows = json.loads(out)["clusters"]
    assert code == 0
    prices = [row["best"]["usd_per_million"] for row in rows]
    assert prices == sorted(prices), "the best by the objective is first"
    for row in rows:
        alone = json.loads(run_cli("search", *asked, "--cluster", row["cluster"]).out)
        assert alone["study_name"] == row["study_name"], "it is the same study"
        assert alone["best"]["usd_per_million"] == row["best"]["usd_per_million"]
        assert row["best"]["max_joules"] > 0
    table = run_cli("rank", *asked[:-1], "--cluster", "l40s-2,h100_sxm-2").out
    assert table.startswith("Clusters by cost, modelled")
    assert table.index(rows[0]["cluster"][:4]) < table.index(rows[1]["cluster"][:4])


def test_a_cluster_without_an_answer_says_why(run_cli: RunCli, storage: tuple[str, str]) -> None:
    bound = ("--constraint", "samples_per_s >= 4300")
    code, out, _ = run_cli("rank", "resnet50", "--cluster", "bow-2000,c600", *SPACE, *storage, *bound)
    assert code == 0
    assert out.index("bow-2000") < out.index("c600"), "what has no answer is last"
    assert "c600: no configuration " in out
    code, out, _ = run_cli(
        *("rank", "resnet50", "--cluster", "bow-2000,c600", *SPACE, *storage, "--json"),
        *("--constraint", "samples_per_s >= 1e9"),
    )
    assert code == 3
    assert [row["best"] for row in json.loads(out)["clusters"]] == [None, None]
    assert all("samples_per_s >= " in row["reason"] for row in json.loads(out)["clusters"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cluster", "c600"), "rank compares two clusters or more, got 'c600'"),
        ((), "rank compares two clusters or more, got None"),
        (("--cluster", "c600,bow-2000", "--objective", "throughput,latency"), "clusters are ranked by one objective"),
        (("--cluster", "c600,bow-2001"), "a cluster is bow-2000, "),
        (("--cluster", "c600,bow-2000", "--objective", "cost"), "--objective cost needs price_per_hour"),
    ],
)
def test_what_cannot_be_ranked_is_refused(run_cli: RunCli, words: tuple[str, ...], message: str) -> None:
    code, out, errors = run_cli("rank", "resnet50", *words)
    assert (code, out) == (2, "")
    assert message in errors


def test_predict_and_explain_say_what_it_costs(run_cli: RunCli, storage: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    model = str(decoder_folder(tmp_path / "small"))
    load = (model, "--cluster", "h100_sxm-2", "--target", "gpu", *LOAD[:6], "--tensor-parallel", "1")
    run_cli("search", *load, "--price", "h100=2.5", "--batch-size", "8", "--study-name", "priced", *storage)
    explained = run_cli("explain", "priced", *storage).out
    best = json.loads(run_cli("explain", "priced", *storage, "--json").out)["best"]
    assert best["usd_per_hour"] == 2.5 * best["n_devices"]
    line = f"${best['usd_per_million']:,.4g} a million tokens, ${best['usd_per_hour']:,.4g} an hour; at most "
    assert line in explained
    asked = (*load, "--batch-size", "8", "--replicas", str(best["replicas"]))
    assert line in run_cli("predict", *asked, "--price", "h100=2.5").out
    without = run_cli("predict", *asked).out
    assert "$" not in without, "no price is built in"
