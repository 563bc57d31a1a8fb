"""Stored kernel times: what was asked once opens no table again, and no fault of the cache changes an answer."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoauto.records.costs.decoder import Decoder, Experts, WeightFormat
from autoauto.records.errors import Unsupported
from autoauto.records.installation import gpu_tables_dir
from autoauto.targets.gpu import answers, tables
from autoauto.targets.gpu.answers import Asked, NamedOperation, StoredAnswers, write_all
from autoauto.targets.gpu.tables import Serving, open_tables

QWEN_8B = Decoder("Qwen3-8B", "Qwen3ForCausalLM", 4096, 36, 32, 8, 128, 12288, 151936, is_tied=False)
MIXTURE = Decoder(
    "Qwen3-30B-A3B", "Qwen3MoeForCausalLM", 2048, 48, 32, 4, 128, 6144, 151936, False, experts=Experts(128, 8, 768)
)
VLLM = Serving("h100_sxm", "vllm")
SIZES = np.array([1, 8, 100])
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.targets.gpu.test_answers import QWEN_8B, VLLM, seconds_of
print(seconds_of(QWEN_8B, VLLM))
"""
ASKED = Asked(is_prompt=False, numbers=(0, 2))


def seconds_of(decoder: Decoder, serving: Serving) -> list[str]:
    """All kinds of times, to the last digit, of tables that are opened anew."""
    opened = open_tables.__wrapped__(decoder, serving)
    times = [*opened.decode_tokens(SIZES), *opened.prompt_tokens(SIZES[:, None] + 500)]
    times += [opened.decode_attention(SIZES, 1500), np.array([opened.prompt_attention(700, 40)])]
    write_all()
    return [value.hex() for column in times for value in column.ravel().tolist()]


@pytest.fixture(scope="module", autouse=True)
def package() -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the measured times")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of an empty cache; what other tests asked is written before."""
    write_all()
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    yield tmp_path / "gpu-kernel-times"
    write_all()
    tables._package.cache_clear()
    answers._make_room.cache_clear()


@pytest.fixture
def close_package(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From a call on, a model of the package that is opened is an error that nothing catches."""
    from aiconfigurator_core.sdk.engine import EngineHandle

    def opened(*_: object, **__: object) -> None:
        raise TypeError("the package was opened")

    def close() -> None:
        monkeypatch.setattr(EngineHandle, "__init__", opened)
        monkeypatch.setattr(EngineHandle, "compile", opened)

    return close


@pytest.mark.parametrize(
    ("decoder", "serving"),
    [
        (QWEN_8B, Serving("h100_sxm", "sglang", 2, weights=WeightFormat.FP8, kv_cache=WeightFormat.FP8)),
        (MIXTURE, Serving("h200_sxm", "trtllm", 4, 4)),
    ],
)
def test_what_was_asked_opens_no_table_again(
    folder: Path, close_package: Callable[[], None], decoder: Decoder, serving: Serving
) -> None:
    first = seconds_of(decoder, serving)
    close_package()
    assert seconds_of(decoder, serving) == first
    assert seconds_of(replace(decoder, name="of another name"), serving) == first
    again = open_tables.__wrapped__(decoder, serving)
    with pytest.raises(TypeError, match="was opened"):
        again.decode_tokens(np.array([7]))


def test_a_size_that_is_new_is_asked_and_stored_beside_the_others(
    folder: Path, close_package: Callable[[], None]
) -> None:
    first = seconds_of(QWEN_8B, VLLM)
    more = open_tables.__wrapped__(QWEN_8B, VLLM).decode_tokens(np.array([7, 8]))
    write_all()
    close_package()
    again = open_tables.__wrapped__(QWEN_8B, VLLM).decode_tokens(np.array([7, 8]))
    assert (again.block == more.block).all()
    assert again.block[1].hex() == first[1]
    assert seconds_of(QWEN_8B, VLLM) == first


@pytest.mark.parametrize(
    ("decoder", "serving"),
    [
        (QWEN_8B, VLLM._replace(weights=WeightFormat.NVFP4)),
        (QWEN_8B, VLLM._replace(weights=WeightFormat.INT8)),
        (replace(QWEN_8B, n_kv_heads=16), VLLM),
        (replace(MIXTURE, experts=Experts(96, 5, 700)), VLLM._replace(tensor_parallel=2)),
    ],
)
def test_that_there_are_no_times_is_stored(
    folder: Path, close_package: Callable[[], None], decoder: Decoder, serving: Serving
) -> None:
    refusals = []
    for _ in range(2):
        with pytest.raises(Unsupported) as refusal:
            seconds_of(decoder, serving)
        refusals.append(str(refusal.value))
        write_all()
        close_package()
    assert refusals[0] == refusals[1]


def test_a_fault_of_the_machine_is_not_stored_as_a_lack_of_times(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aiconfigurator_core.sdk.engine import EngineHandle

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("gemm_perf.parquet: Too many open files (os error 24)")

    with monkeypatch.context() as patch:
        patch.setattr(EngineHandle, "evaluate_generation_ops", _first_ten(fails))
        with pytest.raises(Unsupported):
            seconds_of(QWEN_8B, VLLM)
        write_all()
    assert len(seconds_of(QWEN_8B, VLLM)) == 22


def _first_ten(fails: Callable[..., None]) -> Callable[..., None]:
    """An operation of each of ten numbers, all of which fail."""

    def ask(_: object, numbers: list[int], **__: object) -> None:
        if numbers[0] >= 10:
            raise ValueError("index out of range")
        fails()

    return ask


@pytest.fixture(scope="module")
def whole() -> list[str]:
    """The times without faults."""
    return seconds_of(QWEN_8B, VLLM)


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def with_another_digit(content: bytes) -> bytes:
    """Still JSON, and of the right types."""
    start = content.rindex(b".") + 1
    return content[:start] + (b"1" if content[start : start + 1] != b"1" else b"2") + content[start + 1 :]


@pytest.mark.parametrize("damage", [truncated, with_another_digit, lambda _: b"", lambda _: b"\xff\x00broken"])
def test_a_damaged_file_is_asked_anew_and_replaced(
    folder: Path,
    close_package: Callable[[], None],
    whole: list[str],
    capfd: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
) -> None:
    assert seconds_of(QWEN_8B, VLLM) == whole
    (stored,) = folder.iterdir()
    stored.write_bytes(damage(stored.read_bytes()))
    assert seconds_of(QWEN_8B, VLLM) == whole
    close_package()
    assert seconds_of(QWEN_8B, VLLM) == whole
    assert capfd.readouterr().err == ""


def test_the_answers_of_another_model_under_its_name_are_not_taken(folder: Path, whole: list[str]) -> None:
    assert seconds_of(QWEN_8B, VLLM) == whole
    (own,) = folder.iterdir()
    seconds_of(QWEN_8B, VLLM._replace(tensor_parallel=2))
    (other,) = set(folder.iterdir()) - {own}
    own.write_bytes(other.read_bytes())
    assert seconds_of(QWEN_8B, VLLM) == whole


def test_a_file_or_the_folder_that_is_deleted_meanwhile_is_made_again(folder: Path, whole: list[str]) -> None:
    opened = open_tables.__wrapped__(QWEN_8B, VLLM)
    opened.decode_tokens(SIZES)
    write_all()
    shutil.rmtree(folder)
    opened.decode_attention(SIZES, 1500)
    write_all()
    assert len(list(folder.iterdir())) == 1
    assert seconds_of(QWEN_8B, VLLM) == whole


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(tables, "version", lambda _: "0.12.9"),
        lambda patch: patch.setenv("AIC_ALLOW_UNLISTED_VERSIONS", "0"),
        lambda patch: patch.setattr(answers, "SCHEMA", answers.SCHEMA + 1),
    ],
)
def test_answers_of_another_version_or_other_settings_of_the_package_are_not_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch, whole: list[str], change: Callable[[pytest.MonkeyPatch], None]
) -> None:
    assert seconds_of(QWEN_8B, VLLM) == whole
    (own,) = folder.iterdir()
    before = own.stat()
    change(monkeypatch)
    tables._package.cache_clear()
    assert seconds_of(QWEN_8B, VLLM) == whole
    assert len(list(folder.iterdir())) == 2
    assert own.stat().st_mtime_ns == before.st_mtime_ns


def test_folders_that_the_package_names_itself_change_no_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, close_package: Callable[[], None], whole: list[str]
) -> None:
    assert seconds_of(QWEN_8B, VLLM) == whole
    package_folder = gpu_tables_dir()
    assert package_folder is not None
    monkeypatch.setenv("AICONFIGURATOR_SYSTEMS_PATH", str(package_folder / "systems"))
    tables._package.cache_clear()
    close_package()
    assert seconds_of(QWEN_8B, VLLM) == whole


def test_a_full_disk_changes_no_answer_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, whole: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        assert seconds_of(QWEN_8B, VLLM) == whole
        assert list(folder.iterdir()) == []
    assert seconds_of(QWEN_8B, VLLM) == whole
    assert len(list(folder.iterdir())) == 1
    assert capfd.readouterr().err == ""


def test_a_folder_that_cannot_be_written_is_still_read(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    close_package: Callable[[], None],
    whole: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert seconds_of(QWEN_8B, VLLM) == whole

    def read_only(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(answers, "NamedTemporaryFile", read_only)
    open_tables.__wrapped__(QWEN_8B, VLLM).decode_tokens(np.array([7]))
    write_all()
    close_package()
    assert seconds_of(QWEN_8B, VLLM) == whole
    assert capfd.readouterr().err == ""


def test_no_folder_at_all_changes_no_answer(
    monkeypatch: pytest.MonkeyPatch, whole: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    write_all()
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", os.devnull)
    assert seconds_of(QWEN_8B, VLLM) == whole
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_ten_processes_that_ask_the_same_have_the_same_answers(folder: Path, whole: list[str]) -> None:
    def other(_: int) -> str:
        argv = [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[3])]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    with ThreadPoolExecutor(10) as threads:
        assert set(threads.map(other, range(10))) == {str(whole)}
    assert len(list(folder.iterdir())) == 1


WRITER = """
import sys
from autoauto.targets.gpu.answers import Asked, StoredAnswers, write_all
number, asked = int(sys.argv[1]), Asked(False, (0, 2))
for size in range(20):
    stored = StoredAnswers("shared")
    assert all(seconds == (size[0] / 3, size[1] / 7) for size, seconds in stored.of(asked).items())
    stored.add(asked, {(number, size): (number / 3, size / 7)})
    write_all()
"""


def test_ten_processes_that_write_one_file_leave_it_whole(folder: Path) -> None:
    """Nobody reads what is half written, and nothing that anybody wrote is lost."""
    argv = [[sys.executable, "-c", WRITER, str(number)] for number in range(10)]
    writers = [subprocess.Popen(each, stderr=subprocess.PIPE, text=True) for each in argv]
    ended = [(writer.communicate()[1], writer.returncode) for writer in writers]
    assert ended == [("", 0)] * 10
    known = StoredAnswers("shared").of(ASKED)
    assert len(known) == 200
    assert all(seconds == (number / 3, size / 7) for (number, size), seconds in known.items())
    assert len(list(folder.iterdir())) == 1


def test_two_that_write_one_after_the_other_lose_nothing(folder: Path) -> None:
    first, second = (StoredAnswers("shared") for _ in range(2))
    first.describe(b"compiled", [NamedOperation("qkv_gemm")], [NamedOperation("", "none was measured")])
    for stored, size in ((first, (1, 2)), (second, (3, 4)), (first, (5, 6))):
        stored.add(ASKED, {size: (1e-3, 1 / 3)})
        write_all()
    again = StoredAnswers("shared")
    assert dict(again.of(ASKED)) == {(1, 2): (1e-3, 1 / 3), (3, 4): (1e-3, 1 / 3), (5, 6): (1e-3, 1 / 3)}
    assert again.specification == b"compiled"
    assert list(again.decode) == [NamedOperation("qkv_gemm")]
    assert list(again.prompt) == [NamedOperation("", "none was measured")]


def test_a_file_holds_the_newest_and_all_files_a_number_of_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_MAX_SIZES", 3)
    for number in range(4):
        stored = StoredAnswers(f"model {number}")
        stored.add(ASKED, {(size, 1): (size / 7, 0.0) for size in range(5)})
        write_all()
        os.utime(stored._path, ns=(number, number))
        assert [*StoredAnswers(f"model {number}").of(ASKED)] == [(2, 1), (3, 1), (4, 1)]
    size = stored._path.stat().st_size
    monkeypatch.setattr(answers, "_MAX_BYTES", 2 * size)
    answers._make_room.cache_clear()
    stored.add(ASKED, {(9, 1): (1.0, 2.0)})
    write_all()
    assert [bool(StoredAnswers(f"model {number}").of(ASKED)) for number in range(4)] == [False, False, True, True]
