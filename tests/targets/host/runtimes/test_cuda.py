"""The runtime for GPUs as far as it runs without one: on the processor, behind the driver's interface."""

import fcntl
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoauto.records.costs.options import SessionOptions
from autoauto.records.costs.profile import PARAMETER, TEMPORARY
from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.layers import LayerRange, Port, SubModel
from autoauto.records.units import GIB, MIB, Precision, relative_error
from autoauto.targets.host.gpu.driver import CudaDriver
from autoauto.targets.host.gpu.gpus import Gpu
from autoauto.targets.host.measure import session as session_module
from autoauto.targets.host.measure.session import OpenModel, check_memory, idle_model, load_in_budget
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.runtime import EffectiveOptions, LoadedModel, LoadSettings
from autoauto.targets.host.transport.shared_memory import SubModelFile
from tests.targets.host.gpu.driver_on_processor import DriverOnProcessor

onnxruntime = pytest.importorskip("onnxruntime", reason="the runtime for GPUs is ONNX Runtime")

from onnxruntime.transformers import float16  # noqa: E402 (likewise)

from autoauto.targets.host.runtimes.cuda import runtime as cuda  # noqa: E402 (imports onnxruntime)
from autoauto.targets.host.runtimes.cuda.runtime import (  # noqa: E402
    CudaModel,
    CudaRuntime,
    converted_to_fp16,
    is_out_of_memory,
    recordable,
)

Models = Callable[[int, int], Any]
OPTIONS = SessionOptions(1, CudaSession(), "GPU-1")
WHOLE = LayerRange(0, 3)


class ModelOnProcessor(CudaModel):
    """A model for a GPU on the processor, whose first run takes `working_bytes`."""

    def __init__(
        self, session: Any, inputs: Sequence[Port], outputs: Sequence[Port], memory: CudaDriver, working_bytes: int
    ) -> None:
        super().__init__(session, inputs, outputs, memory, "cpu")
        self._working_bytes = working_bytes

    def _allocate(self) -> None:
        if not self._addresses and self._working_bytes:
            self._memory.allocate(self._working_bytes)
        super()._allocate()


class CudaOnProcessor(CudaRuntime):
    """The same runtime with the provider for processors; memory is counted as on a GPU.

    A session holds the bytes of its file there, as a GPU holds the weights, and a run `working_bytes` more.
    """

    def __init__(self, total_bytes: int, working_bytes: int = 0) -> None:
        super().__init__()
        self._working_bytes = working_bytes
        self._driver = CudaDriver(DriverOnProcessor(total_bytes))

    def expected(self, options: SessionOptions) -> EffectiveOptions:
        words = "ORT_ENABLE_ALL, enable_cuda_graph None, prefer_nhwc None"  # of a provider that has neither
        return EffectiveOptions("CPUExecutionProvider", "fp32", 1, words)

    def load(
        self, path: str, inputs: Sequence[Port], outputs: Sequence[Port], options: SessionOptions, wanted: LoadSettings
    ) -> LoadedModel:
        weight_bytes, limit_bytes = Path(path).stat().st_size, wanted.limit_bytes
        if limit_bytes is not None and weight_bytes > limit_bytes:  # as an arena says it (onnxruntime#23121)
            raise RuntimeError(f"Available memory of {limit_bytes} is smaller than requested bytes of {weight_bytes}")
        self._driver.allocate(weight_bytes)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
        return ModelOnProcessor(session, inputs, outputs, self._driver, self._working_bytes)

    def held_bytes(self) -> int:
        free_bytes, total_bytes = self._driver.memory()
        return total_bytes - free_bytes


@pytest.fixture
def on_processor(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CudaOnProcessor]:
    """Let sessions use a device of so many bytes."""

    def make(total_bytes: int, working_bytes: int = 0) -> CudaOnProcessor:
        runtime = CudaOnProcessor(total_bytes, working_bytes)
        monkeypatch.setattr(session_module, "runtime_named", lambda _: runtime)
        return runtime

    return make


def opened(sub_model: SubModel, limit_bytes: int | None = None) -> OpenModel:
    file = SubModelFile(sub_model.content)
    return OpenModel(file, sub_model.inputs, sub_model.outputs, OPTIONS, arena=True, limit_bytes=limit_bytes)


def test_outputs_are_those_of_the_model_and_copies_are_no_part_of_computing(
    on_processor: Callable[..., CudaOnProcessor], residual_model: Models
) -> None:
    on_processor(64 * MIB)
    model = residual_model(2, 64)
    loaded = opened(model.source.cut(model.graph, LayerRange(0, 5), 256))
    inputs, outputs = loaded.example_arrays()
    loaded.model.run(inputs, outputs)
    np.testing.assert_allclose(outputs["y"], model.outputs(inputs, 256)[0], rtol=1e-5)
    computed_ns, moved_ns = loaded.model.cpu_time_ns(), loaded.model.moved_ns()
    assert min(computed_ns, moved_ns) > 0
    inputs["x"][...] = 0
    loaded.model.run(inputs, outputs)
    assert not outputs["y"].any()
    assert loaded.model.moved_ns() > moved_ns


def test_a_resident_run_moves_nothing(on_processor: Callable[..., CudaOnProcessor], residual_model: Models) -> None:
    on_processor(64 * MIB)
    model = residual_model(1, 64)
    loaded = opened(model.source.cut(model.graph, WHOLE, 2))
    run = loaded.example_run()
    run()
    assert loaded.model.cpu_time_ns() > 0
    assert loaded.model.moved_ns() == 0


def test_the_peak_has_inputs_outputs_and_workspaces_and_all_is_freed_with_the_session(
    on_processor: Callable[..., CudaOnProcessor], residual_model: Models
) -> None:
    runtime = on_processor(64 * MIB, working_bytes=3 * MIB)
    model = residual_model(1, 256)
    sub_model = model.source.cut(model.graph, WHOLE, 1024)
    loaded = opened(sub_model)
    assert loaded.parameter_bytes == len(sub_model.content)
    assert loaded.peak_bytes() == 3 * MIB + 2 * 1024 * 256 * 4
    before = runtime.held_bytes()
    del loaded
    assert runtime.held_bytes() == before - 2 * 1024 * 256 * 4


def checked(sub_model: SubModel, budget_bytes: int) -> dict[str, int]:
    """The memory of a stage within a budget, of which the runtime itself takes 1 MiB."""
    file = SubModelFile(sub_model.content)
    loaded = load_in_budget(file, sub_model.inputs, sub_model.outputs, OPTIONS, budget_bytes, MIB, WHOLE)
    return check_memory(loaded, MIB, budget_bytes, 0, WHOLE)


def test_a_stage_fits_its_budget_to_the_byte(
    on_processor: Callable[..., CudaOnProcessor], residual_model: Models
) -> None:
    on_processor(256 * MIB, working_bytes=5 * MIB)
    model = residual_model(1, 256)
    sub_model = model.source.cut(model.graph, WHOLE, 1024)
    need_bytes = MIB + len(sub_model.content) + 5 * MIB + 2 * 1024 * 256 * 4
    memory = checked(sub_model, need_bytes)
    assert sum(memory.values()) == need_bytes
    assert memory[PARAMETER] == len(sub_model.content)
    with pytest.raises(OutOfMemory) as failure:
        checked(sub_model, need_bytes - 1)
    assert (failure.value.excess_bytes, failure.value.memory_bytes) == (1, memory)


def test_weights_that_do_not_fit_lack_by_their_size(
    on_processor: Callable[..., CudaOnProcessor], residual_model: Models
) -> None:
    on_processor(64 * MIB)
    model = residual_model(1, 1024)
    sub_model = model.source.cut(model.graph, WHOLE, 1)
    with pytest.raises(OutOfMemory, match=r"layers \[0, 3\) do not fit a device that may use 3\.0 MiB") as failure:
        checked(sub_model, 3 * MIB)
    assert failure.value.excess_bytes == len(sub_model.content) - 2 * MIB


def test_a_run_that_the_device_cannot_hold_needs_more_than_was_left(
    on_processor: Callable[..., CudaOnProcessor], residual_model: Models
) -> None:
    on_processor(8 * MIB, working_bytes=16 * MIB)
    model = residual_model(1, 256)
    sub_model = model.source.cut(model.graph, WHOLE, 16)
    with pytest.raises(OutOfMemory) as failure:
        checked(sub_model, 64 * MIB)
    assert failure.value.excess_bytes == 1
    assert failure.value.memory_bytes[TEMPORARY] == 63 * MIB - len(sub_model.content) + 1


FAILED_NODE = "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
ARENA = "/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal("
CALL = "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:121 CUDA failure "


@pytest.mark.parametrize(
    "text",
    [
        # onnxruntime#9939 and #20038
        f"{FAILED_NODE}Mul node. Status Message: {ARENA}size_t, bool) Failed to allocate memory for requested buffer "
        "of size 2830172160",
        # onnxruntime#23121, infiniflow/ragflow#10295
        f"{FAILED_NODE}Conv node. Status Message: {ARENA}size_t, bool, onnxruntime::Stream*, bool) Available memory of "
        "0 is smaller than requested bytes of 135383040",
        # hacksider/Deep-Live-Cam#584
        f"[ONNXRuntimeError] : 1 : FAIL : {CALL}2: out of memory ; GPU=0 ; expr=cudaStreamCreateWithFlags(&stream, 1);",
        # hacksider/Deep-Live-Cam#645
        f"{FAILED_NODE}Gemm node. Status Message: CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; "
        "expr=cublasCreate(&cublas_handle_);",
        # the driver's text of CUDA_ERROR_OUT_OF_MEMORY, as `CudaDriver` raises it
        "the driver of the GPU must do cuMemAlloc_v2, it says: out of memory (2); check nvidia-smi",
    ],
)
def test_a_failed_allocation_is_known_by_its_message(text: str) -> None:
    assert is_out_of_memory(RuntimeError(text))


@pytest.mark.parametrize(
    "text",
    [
        f"{CALL}700: an illegal memory access was encountered ; GPU=0 ; expr=cudaMalloc((void**)&p, size);",
        "[ONNXRuntimeError] : 1 : FAIL : CUDA error executing cudaMemcpy(dst_data, src_data, bytes, "
        "cudaMemcpyDeviceToHost)",  # onnxruntime#4008
        "This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP has been "
        "explicitly disabled by the user.",
    ],
)
def test_other_failures_are_no_lack_of_memory(text: str) -> None:
    assert not is_out_of_memory(RuntimeError(text))


def test_tf32_is_off_unless_it_is_asked_for_and_the_arena_has_its_limit() -> None:
    in_fp32 = cuda._provider_options(OPTIONS, None)
    assert (in_fp32["use_tf32"], in_fp32["device_id"]) == ("0", "0")
    assert in_fp32["arena_extend_strategy"] == "kSameAsRequested"
    assert "gpu_mem_limit" not in in_fp32
    in_tf32 = cuda._provider_options(OPTIONS._replace(session=CudaSession(precision=Precision.TF32)), 5 * MIB)
    assert in_tf32 == {**in_fp32, "use_tf32": "1", "gpu_mem_limit": str(5 * MIB)}
    assert (in_fp32["enable_cuda_graph"], in_fp32["prefer_nhwc"]) == ("1", "0")
    chosen = OPTIONS._replace(session=CudaSession(cuda_graph=False, channels_last=True))
    assert cuda._provider_options(chosen, None) == {**in_fp32, "enable_cuda_graph": "0", "prefer_nhwc": "1"}


@pytest.mark.parametrize(
    "text",
    [
        "This session cannot use the graph capture feature as requested by the user as the model has control flow "
        "nodes which can't be supported by CUDAExecutionProvider",
        f"{CALL}900: operation not permitted when stream is capturing ; GPU=0 ; expr=cudaStreamSynchronize(stream);",
    ],
)
def test_a_model_that_no_cuda_graph_holds_is_refused_with_what_to_try(text: str) -> None:
    with (
        pytest.raises(BadInput, match=r"no CUDA graph holds .*, such as loops; try GPUs alone, with --cuda-graph off"),
        recordable(),
    ):
        raise RuntimeError(text)
    with pytest.raises(RuntimeError, match="failure 700"), recordable():
        raise RuntimeError(f"{CALL}700: an illegal memory access was encountered")


def test_in_fp16_all_is_rounded_but_what_stages_exchange(
    residual_model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = residual_model(2, 256)
    sub_model = model.source.cut(model.graph, LayerRange(0, 5), 8)
    content, of_weights = converted_to_fp16(SubModelFile(sub_model.content).path)
    assert of_weights is Precision.FP16
    assert len(content) < 0.55 * len(sub_model.content)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((8, 256)).astype(np.float32)
    outputs = dict(zip((port.name for port in sub_model.outputs), session.run(None, {"x": x}), strict=True))
    assert outputs["y"].dtype == np.float32
    assert 1e-5 < relative_error(outputs["y"], model.outputs({"x": x}, 8)[0]) < 1e-2
    monkeypatch.setattr(float16, "convert_float_to_float16", lambda model, **_: model)
    assert converted_to_fp16(SubModelFile(sub_model.content).path)[1] is Precision.FP32


def test_gpus_compute_in_what_all_of_them_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def has(*capabilities: tuple[int, int]) -> tuple[str, ...]:
        here = tuple(Gpu(0, "GPU-1", "any", GIB, 0.0, capability, "580") for capability in capabilities)
        monkeypatch.setattr(cuda, "gpus", lambda: here)
        return CudaRuntime().precisions()

    assert has((9, 0), (8, 0)) == ("fp32", "tf32", "fp16")
    assert has((9, 0), (7, 5)) == ("fp32", "fp16")
    assert has((6, 1)) == ("fp32",)
    assert has() == ()


def test_a_node_that_the_provider_does_not_run_fails_instead_of_moving_to_the_processor() -> None:
    """Here no node has a provider but that for processors."""
    providers = [("CUDAExecutionProvider", cuda._provider_options(OPTIONS, None))]
    content, settings = idle_model().content, cuda._settings(OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it goes on without the provider
        with pytest.raises(Exception, match="fallback to CPU EP has been explicitly disabled"):
            onnxruntime.InferenceSession(content, settings, providers=providers)


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="this onnxruntime is for GPUs"
)
def test_an_onnxruntime_without_cuda_is_refused() -> None:
    idle = idle_model()
    with pytest.raises(BadInput, match="the installed onnxruntime has no provider for CUDA"):
        CudaRuntime().load(SubModelFile(idle.content).path, idle.inputs, idle.outputs, OPTIONS, LoadSettings())


def test_a_process_has_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = CudaDriver(DriverOnProcessor(10 * MIB))
    driver.allocate(4 * MIB)
    monkeypatch.setattr(cuda, "cuda_driver", lambda: driver)
    monkeypatch.setattr(cuda, "used_bytes", lambda uuid: 3 * MIB)
    runtime = CudaRuntime()
    assert runtime.held_bytes() == 0  # before it has a GPU
    runtime._driver_of("GPU-1")
    assert os.environ.pop("CUDA_VISIBLE_DEVICES") == "GPU-1"
    assert runtime.held_bytes() == MIB  # 4 MiB less those of others
    with pytest.raises(BadInput, match="a process has one GPU, this one has GPU-1, got GPU-2"):
        runtime._driver_of("GPU-2")
    with pytest.raises(BadInput, match="ONNX Runtime with CUDA computes on a GPU, got none; name one with --device"):
        runtime._driver_of("")


def test_processes_on_one_gpu_load_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    with CudaRuntime().exclusively(OPTIONS):
        assert not can_lock(tmp_path / "cache" / "GPU-1.lock")
    assert can_lock(tmp_path / "cache" / "GPU-1.lock")
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", os.devnull)
    with (
        pytest.raises(
            BadInput, match=r"processes on GPUs lock a file, /dev/null/GPU-1\.lock: .*; try AUTOAUTO_CACHE_DIR"
        ),
        CudaRuntime().exclusively(OPTIONS),
    ):
        pass


def can_lock(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_memory_that_cannot_be_pinned_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = memoryview(bytearray(4096))
    for pins in (True, False):
        library = DriverOnProcessor(MIB, pins=pins)
        driver = CudaDriver(library)
        monkeypatch.setattr(cuda, "cuda_driver", lambda driver=driver: driver)
        CudaRuntime().pin([memory])
        assert len(library.pinned) == pins
