import json
from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import RunCli


def test_a_profile_in_the_upstream_format_can_be_planned(run_cli: RunCli, tmp_path: Path) -> None:
    """The ModelInfo of [auto-pipeline] gives the same partition as the model itself."""
    assert (
        run_cli("profile", "resnet50", "--batch-size", "4", "--output", "info.json", "--format", "upstream").code == 0
    )
    arguments = ("--cluster", "seed-2-ipu", "--n-ipu", "2", "--batch-size", "4", "--estimator", "sum", "--json")
    direct = json.loads(run_cli("predict", "resnet50", *arguments).out)
    connection = [
        {"recvGBps": 7, "recvIdleCycle": 50000, "sendGBps": 70, "sendIdleCycle": 3000},
        {"recvGBps": 70, "recvIdleCycle": 3000, "sendGBps": 7, "sendIdleCycle": 50000},
    ]
    cluster = {"clock": 1850000000, "memory": 894, "connection": connection}
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    again = json.loads(run_cli("plan", "--model-info", "info.json", "--cluster-info", "cluster.json", "--json").out)
    assert {key: again[key] for key in ("partition", "cost_cycles")} == {
        key: direct[key] for key in ("partition", "cost_cycles")
    }


def test_our_own_format_can_be_planned_too(run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli("profile", "resnet50", "--output", "profile.json").code == 0
    connection = [{"recvGBps": 7, "recvIdleCycle": 0, "sendGBps": 7, "sendIdleCycle": 0}]
    (tmp_path / "cluster.json").write_text(json.dumps({"clock": 1e9, "memory": 894, "connection": connection}))
    planned = run_cli("plan", "--model-info", "profile.json", "--cluster-info", "cluster.json", "--json")
    assert json.loads(planned.out)["partition"][0] == 0


def test_json_has_a_record_for_every_layer(run_cli: RunCli) -> None:
    profile = json.loads(run_cli("profile", "resnet50", "--batch-size", "2", "--json").out)
    session = {"memory_proportion": 0.6, "io_tiles": 0}
    assert profile["options"] == {"batch_size": 2, "precision": "fp16", "training": False, "session": session}
    assert len(profile["layers"]) == len(profile["names"]) == len(profile["kinds"])
    assert all(layer["forward_cycles"] > 0 for layer in profile["layers"])


def test_the_table_shows_the_layers(run_cli: RunCli) -> None:
    assert "Layers compiled alone" in run_cli("profile", "resnet50").out


def test_a_file_that_cannot_be_written_is_one_line(run_cli: RunCli) -> None:
    code, _, err = run_cli("profile", "resnet50", "--output", "no/such/folder/profile.json")
    assert code == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--layer", "conv"), "--layer is for --sweep memory-proportion, got 'conv' without it"),
        (("--format", "upstream"), "--format is that of --output FILE, got upstream without a file"),
        (("--sweep", "memory-proportion", "--output", "x.json"), "and a sweep has none, got x.json"),
    ],
)
def test_options_that_would_do_nothing_are_refused(run_cli: RunCli, options: tuple[str, ...], message: str) -> None:
    code, out, err = run_cli("profile", "resnet50", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_what_is_priced_by_a_default_is_said_by_the_profile_and_the_report(run_cli: RunCli, tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        draws (float[N, 8] x) => (int32[N, 4] y) { y = Multinomial <sample_size = 4> (x) }""")
    onnx.save(model, tmp_path / "draws.onnx")
    assert "priced as elementwise: Multinomial" in run_cli("profile", "draws.onnx").out
    study = ("--storage", "sqlite:///draws.db")
    options = ("--n-ipu", "1", "--replicas", "1", "--memory-proportion", "0.6", "--batch-size", "1")
    assert run_cli("search", "draws.onnx", *options, "--study-name", "draws", *study).code == 0
    assert (
        "\nassumed: priced as elementwise: Multinomial\n"
        in run_cli("report", "draws", *study, "--html", "draws.html").out
    )
    assert "priced as elementwise: Multinomial" in (tmp_path / "draws.html").read_text(encoding="utf-8")
