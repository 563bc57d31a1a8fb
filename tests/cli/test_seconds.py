"""What is made of seconds is shown in milliseconds: profiles of other tools, and what the host measures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autoauto.cli.main import main
from autoauto.records.installation import data_dir

PROFILES = data_dir() / "profiles"
BLOCKS = ("--profile", str(PROFILES / "recorded" / "blocks.csv"), "--profile-format", "csv")
DEVICES = ("--devices", "4", "--device-memory-gib", "16", "--link-gb-per-s", "25")
DIGITS = re.compile(r"\d[\d,.]* cycles|cycles *\n")


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main([*argv]) == 0
    return capsys.readouterr().out


def pages(capsys: pytest.CaptureFixture[str], folder: Path, *search: str) -> str:
    """Everything that a search and the commands after it show."""
    storage = ("--storage", f"sqlite:///{folder / 'trials.db'}")
    texts = [shown(capsys, "search", *search, *storage, "--study-name", "own")]
    texts += [shown(capsys, command, "own", *storage) for command in ("explain", "report")]
    shown(capsys, "report", "own", *storage, "--html", str(folder / "own.html"))
    page = (folder / "own.html").read_text()
    return "\n".join([*texts, re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)])


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_search_of_a_profile_shows_milliseconds(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = pages(capsys, tmp_path, *BLOCKS, *DEVICES, "--mode", mode)
    assert DIGITS.findall(text) == []
    period_ms = {"inference": "100.0 ms", "training": "300.0 ms"}[mode]
    assert re.search(rf"period +{period_ms} +estimated", text)


@pytest.mark.parametrize(
    "query", ["", "--explain", "--per-device-count", "--pareto-front", "--as-replicas", "--k-best=2"]
)
def test_all_queries_of_a_profile_show_milliseconds(query: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "plan", *BLOCKS, *DEVICES, "--n-ipu", "2", *filter(None, [query]))
    assert "cycles" not in text
    assert "10.129 ms" in text or "20.000 ms" in text


def test_clocks_of_a_profiled_cluster_do_not_change_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = "{ bytes_per_s = 25e9, idle_cycles = 0 }"
    path = tmp_path / "fast.toml"
    path.write_text(
        'name = "fast"\ntarget = "profile"\nn_devices = 2\n'
        'device = { name = "gpu", memory_bytes = 17_179_869_184, clock_hz = 2e9 }\n'
        f"device_link = {link}\nhost_link = {link}\n"
    )
    assert "period: 10.129 ms" in shown(capsys, "predict", *BLOCKS, "--cluster", str(path), "--n-ipu", "2")


@pytest.mark.slow
def test_a_search_on_the_host_shows_milliseconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 64]) for name in ("x", "y")]
    weights = [onnx.helper.make_tensor(f"w{i}", onnx.TensorProto.FLOAT, [64, 64], [0.01] * 64 * 64) for i in range(2)]
    names = ("x", "h", "y")
    nodes = [onnx.helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]], f"product{i}") for i in range(2)]
    graph = onnx.helper.make_graph(nodes, "two", ports[:1], ports[1:], weights)
    model = str(tmp_path / "two.onnx")
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), model)
    knobs = ("--batch-size", "1,4", "--repeats", "0", "--estimator", "sum", "--runtime", "onnxruntime")
    text = pages(capsys, tmp_path, model, "--target", "host", *knobs)
    assert DIGITS.findall(text) == []
    host = (model, "--target", "host", "--batch-size", "4")
    for command in ("profile", "predict", "measure", "compare"):
        assert DIGITS.findall(shown(capsys, command, *host)) == []
