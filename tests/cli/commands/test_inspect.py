"""`inspect`, and what is said of a model's inputs in the commands that read one."""

import json
from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import RunCli
from tests.gguf_models import write_model

OPEN = """<ir_version: 8, opset_import: ["": 17]>
net (float[batch, 3, height, width] image, float[2, batch, 8] state) => (float[batch, K] y, float[2, batch, 8] stateN)
<float[4, 3, 1, 1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
    c = Conv(image, w)
    r = Relu(c)
    p = GlobalAveragePool(r)
    y = Flatten(p)
    stateN = Tanh(state)
}"""
LENGTHS = ("--shape", "height=8", "--shape", "width=12")
SIZE = ("--n-ipu", "1", "--replicas", "1", "--memory-proportion", "0.6", "--batch-size", "2")


@pytest.fixture
def net(tmp_path: Path) -> str:
    onnx.save(onnx.parser.parse_model(OPEN), tmp_path / "net.onnx")
    return "net.onnx"


def test_what_a_file_needs_and_the_command_to_start_with(net: str, run_cli: RunCli) -> None:
    printed = run_cli("inspect", net, "--no-run")
    assert (printed.code, printed.err) == (0, "")
    assert "net: 4 layers, batch size open" in printed.out
    assert "[batch, 3, height, width]" in printed.out
    assert "sensible ones instead: height=224, width=224" in printed.out
    assert "that were given" not in printed.out, "nobody gave the lengths that are offered"
    assert "states that stay on their device" in printed.out
    assert printed.out.endswith("autoauto search net.onnx --shape height=224 --shape width=224\n")


def test_the_command_that_is_offered_works(net: str, run_cli: RunCli) -> None:
    command = json.loads(run_cli("inspect", net, "--no-run", "--json").out)["command"].split()
    assert run_cli(*command[1:], *SIZE, "--storage", "sqlite:///s.db").code == 0


def test_the_inspection_as_json(net: str, run_cli: RunCli) -> None:
    record = json.loads(run_cli("inspect", net, *LENGTHS, "--no-run", "--json").out)
    assert record["n_layers"] == 4
    assert record["offered"] == []
    assert {use["name"]: use["n_layers"] for use in record["operators"]} == {
        **dict.fromkeys(("Conv", "Relu", "GlobalAveragePool", "Tanh"), 1)
    }
    assert record["inputs"][1] == {"name": "state", "dtype": "float", "shape": "[2, batch, 8]"}
    assert any("height 8, width 12" in note for note in record["assumed"])


@pytest.mark.slow
def test_the_runtimes_of_this_machine_answer(net: str, run_cli: RunCli) -> None:
    pytest.importorskip("onnxruntime", reason="a runtime must be there to answer")
    record = json.loads(run_cli("inspect", net, *LENGTHS, "--json").out)
    assert {"name": "onnxruntime", "reason": ""} in record["runtimes"]


def test_open_axes_are_one_line_in_every_command(net: str, run_cli: RunCli) -> None:
    for command in ("predict", "plan", "search", "measure", "profile", "compare"):
        code, out, err = run_cli(command, net)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.endswith("; try --shape height=224 --shape width=224\n")


def test_predict_says_what_it_assumed(net: str, run_cli: RunCli) -> None:
    record = json.loads(run_cli("predict", net, "--batch-size", "2", "--shape", "image=3x8x12", "--json").out)
    assert record["fits"]
    assert record["assumed"][0] == "lengths that were given: image 3x8x12"
    lines = run_cli("predict", net, *LENGTHS).out.splitlines()
    assert lines[lines.index("assumed:") + 1].startswith("  lengths that were given: height 8")


def test_a_study_keeps_the_lengths_and_gives_them_back(net: str, run_cli: RunCli) -> None:
    study = ("--storage", "sqlite:///s.db")
    assert run_cli("search", net, *LENGTHS, *SIZE, "--study-name", "net", *study).code == 0
    explained = run_cli("explain", "net", *study).out
    again = explained.splitlines()[-1].partition("autoauto ")[2].split()
    assert again[2:6] == [*LENGTHS]
    assert run_cli(*again).code == 0
    for command in ("explain", "report"):
        assert "height 8, width 12" in " ".join(json.loads(run_cli(command, "net", *study, "--json").out)["assumed"])
    assert run_cli("export", "net", *study, "--to", "schedule-csv", "--output", "out").code == 0
    assert "assume of the model: lengths that were given: height 8, width 12" in Path("out/README.md").read_text()
    code, _, err = run_cli("search", net, "--shape", "height=8,width=16", *SIZE, "--study-name", "net", *study)
    assert code == 2
    assert "model_content" in err


def test_a_config_file_has_them_too(net: str, run_cli: RunCli, tmp_path: Path) -> None:
    text = f'schema = 1\nmodel = "{net}"\nshape = ["height=8", "width=12"]\nbatch_axis = "state=1"\n'
    (tmp_path / "s.toml").write_text(text + "[knobs]\nbatch_size = 2\nn_ipu = 1\nreplicas = 1\n", encoding="utf-8")
    assert run_cli("search", "--config", "s.toml", "--storage", "sqlite:///s.db").code == 0


def test_a_model_of_one_batch_size_does_not_fit_another(run_cli: RunCli, tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        one (float[1, 4] x) => (float[1, 4] y) { s = Softmax <axis = 0> (x) y = Relu(s) }""")
    onnx.save(model, tmp_path / "one.onnx")
    code, out, err = run_cli("predict", "one.onnx", "--batch-size", "2", "--json")
    assert code == 3
    assert json.loads(out)["fits"] is False
    assert "one runs at batch size 1 only" in err
    assert run_cli("search", "one.onnx", "--n-ipu", "1", "--storage", "sqlite:///s.db").code == 0


def test_a_gguf_file_is_described_as_a_decoder(tmp_path: Path, run_cli: RunCli) -> None:
    write_model(tmp_path / "tiny.gguf")
    printed = run_cli("inspect", "tiny.gguf", "--no-run")
    assert (printed.code, printed.err) == (0, "")
    first, blocks, tokens, command = printed.out.splitlines()
    assert first.startswith("tiny: a decoder of architecture llama, most weights in Q8_0, ")
    assert blocks == "blocks: 3, 128 wide; 4 heads of 32, 2 of keys and values; 384 wide between"
    assert tokens == "tokens: 400 in the vocabulary, sequences of up to 1,024"
    assert command.startswith("start with: autoauto search tiny.gguf --target host --runtime llamacpp --input-tokens")
    record = json.loads(run_cli("inspect", "tiny.gguf", "--no-run", "--json").out)
    assert (record["n_layers"], record["weights"], record["kv_bytes_per_token"]) == (3, "Q8_0", 3 * 2 * 64 * 2)
    assert record["runtimes"] == []


def test_inputs_of_a_gguf_file_are_tokens(tmp_path: Path, run_cli: RunCli) -> None:
    write_model(tmp_path / "tiny.gguf")
    printed = run_cli("inspect", "tiny.gguf", "--shape", "x=3")
    assert (printed.code, printed.out) == (2, "")
    assert "the inputs of a GGUF file are tokens" in printed.err


@pytest.mark.slow
def test_llama_cpp_answers_whether_it_serves_a_file(tmp_path: Path, run_cli: RunCli) -> None:
    pytest.importorskip("xllamacpp", reason="extra llamacpp is not installed")
    write_model(tmp_path / "tiny.gguf")
    assert "llamacpp: serves it" in run_cli("inspect", "tiny.gguf").out
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "tiny.gguf").read_bytes()[:-40])
    assert "llamacpp: the server ended" in run_cli("inspect", "cut.gguf").out
