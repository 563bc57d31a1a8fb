"""What screens say of a search for each target: in its words, and in none of another target's."""

import re
from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import RunCli
from tests.decoders import decoder_folder

FOREIGN = {
    "ipu": ("token", "GPU", "tensor parallel", "session", "block", "TPOT"),
    "gpu": (
        *("n_ipu", "IPU", "cycles", "sample", "device", "auto_pipeline", "layers [", "memory_proportion", "core"),
        "session",
    ),
    "host": (
        *("n_ipu", "IPU", "cycle", "device", "auto_pipeline", "memory_proportion", "token", "GPU", "tensor parallel"),
        *("TPOT", "cores_per_"),
    ),
}
"""Words that belong to other targets, which a screen of a target must not have."""
NOT_OF_RESULTS = re.compile(
    r"autoauto (?:search|predict|measure|export) [^\n]*"  # commands: options have one name for all targets
    r"|sampled|aiconfigurator-core [\d.]+|machine .*cores, .*"
)
NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[n, 64] x) => (float[n, 64] y) <float[64, 64] w = {%s}>
{ a = MatMul (x, w) b = Relu (a) c = MatMul (b, w) y = Relu (c) }"""
TOKENS = ("--isl", "512", "--osl", "128")
STORAGE = ("--storage", "sqlite:///words.db")


def foreign_words(text: str, target: str) -> list[str]:
    """The words of other targets in a text, each with its line."""
    lines = NOT_OF_RESULTS.sub("", text).splitlines()
    return [f"{word!r} in {line.strip()!r}" for word in FOREIGN[target] for line in lines if word in line]


def screens(run_cli: RunCli, folder: Path, *search: str) -> str:
    """What the commands print that show the result of a search, and the words of its page."""
    printed = [run_cli("search", *search, *STORAGE, "--study-name", "words")]
    printed.append(run_cli("search", *search, *STORAGE, "--dry-run"))
    for command in ("explain", "report", "trials"):
        printed.append(run_cli(command, "words", *STORAGE))
    printed.append(run_cli("studies", *STORAGE))
    assert [each.code for each in printed] == [0] * len(printed), [each.err for each in printed]
    assert run_cli("report", "words", *STORAGE, "--html", "words.html").code == 0
    page = (folder / "words.html").read_text(encoding="utf-8")
    page = re.sub(r"<style>.*?</style>|<script>.*?</script>|<code>.*?</code>", "", page, flags=re.DOTALL)
    page = re.sub(r"<[^>]*>", "\n", page)
    return "\n".join([*(each.out for each in printed), page])


def test_a_search_for_gpus_speaks_of_gpus(run_cli: RunCli, tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    model = decoder_folder(tmp_path / "small")
    gpus = (
        "--cluster",
        "h100_sxm-4",
        "--engine",
        "vllm,trtllm",
        "--batch-size",
        "8,16",
        "--isl",
        "512",
        "--osl",
        "128",
    )
    text = screens(run_cli, tmp_path, str(model), *gpus)
    assert foreign_words(text, "gpu") == []
    assert "tensor parallel" in text
    assert "blocks" in text
    assert "--n-ipu" not in text
    assert not re.search(r"\d{5,}\.\d MiB", text), "memory of GPUs is in GiB"


def test_a_search_for_ipus_speaks_of_ipus(run_cli: RunCli, tmp_path: Path) -> None:
    text = screens(run_cli, tmp_path, "resnet50", "--cluster", "bow-2000", "--batch-size", "1,2", "--n-ipu", "1,2")
    assert foreign_words(text, "ipu") == []
    assert "n_ipu" in text
    assert "auto_pipeline" in text


@pytest.mark.slow
@pytest.mark.timeout(300)  # real processes run the model
def test_a_search_for_this_machine_speaks_of_sessions_and_cores(run_cli: RunCli, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="a runtime must be there to run the model")
    onnx.save(onnx.parser.parse_model(NET % ", ".join(["0.01"] * 64 * 64)), tmp_path / "net.onnx")
    cpu = ("--cluster", "cpu", "--runtime", "onnxruntime", "--batch-size", "1,2")
    text = screens(run_cli, tmp_path, "net.onnx", *cpu)
    assert foreign_words(text, "host") == []
    assert "session of" in text
