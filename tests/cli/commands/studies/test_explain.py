import json

from tests.cli.conftest import RunCli


def test_a_study_is_explained(run_cli: RunCli) -> None:
    result = json.loads(
        run_cli(
            *("search", "resnet50", "--n-ipu", "1,2", "--batch-size", "1:4", "--strategy", "pipeline"),
            *("--method", "grid-bisect", "--json"),
        ).out
    )
    name, best = result["study_name"], result["best"]
    explanation = json.loads(run_cli("explain", name, "--json").out)
    assert explanation["best"]["trial"] == best["trial"]
    assert explanation["best"]["samples_per_s"] == best["samples_per_s"]
    assert [comparison["name"] for comparison in explanation["compared"]] == [
        "one device",
        "4 replicas of one device",
        "one pipeline of 2",
        "runner-up",
        "grid-bisect",
    ]
    assert [fact["name"] for fact in explanation["binds"]] == ["compute", "transfer", "memory"]
    speeds = {comparison["name"]: (comparison["speed"], comparison["source"]) for comparison in explanation["compared"]}
    assert speeds["4 replicas of one device"] == (
        {"mean": best["samples_per_s"], "error": None},
        "modelled",
    )
    assert (best["n_devices"], best["samples_per_s"]) == (4, 4 * best["device_samples_per_s"])
    assert [cell["largest_batch_size"] for cell in explanation["cells"]] == [4] * 15  # five uses, three proportions
    assert sum(cell["why"] == "the winner" for cell in explanation["cells"]) == 1
    assert all(cell["loss_percent"] >= 0 for cell in explanation["cells"])
    out = run_cli("explain", name).out
    assert out.startswith(f"{best['samples_per_s']:,.1f} samples/s on 4 devices (4 replicas of 1 device; ")
    for text in (
        "What simpler uses of the cluster give",
        "Why this one",
        "What binds",
        "Tried combinations of knobs",
        "the winner",
        "Measure it again: autoauto measure resnet50",
    ):
        assert text in out
