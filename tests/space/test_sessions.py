"""Which runtime computes in which format, and what of both a space holds."""

from typing import Any

import pytest

from autoauto.records.costs.options import PlainSession
from autoauto.records.errors import BadInput
from autoauto.records.units import Precision
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.sessions import SESSION_CLASSES
from autoauto.space.space import SearchSpace
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.host.runtimes.registry import SESSIONS, runtime_for
from autoauto.targets.host.runtimes.session import CORES_PER_DEVICE, PRECISIONS, GraphOptimization, HostSession
from autoauto.targets.ipu.session import IpuSession

ORT, OPENVINO, CUDA = SESSIONS
FP32, BF16, TF32, FP16 = PRECISIONS


@pytest.mark.parametrize("precision", [*PRECISIONS])
def test_the_default_runtime_computes_in_the_format_and_a_given_one_stays(precision: Precision) -> None:
    session = Knobs(precision=precision).session
    assert isinstance(session, HostSession)
    assert (session.runtime, session.precision) == (runtime_for(precision), precision)
    for runtime in SESSIONS:
        given = Knobs(runtime=runtime, precision=precision).session
        assert (given.runtime, given.computes_in) == (runtime, precision)
        assert given.is_possible is (precision in SESSIONS[runtime].precisions)


def test_a_space_has_only_what_a_runtime_computes() -> None:
    space = SearchSpace((1,), batch_size=(1, 2), runtime=(ORT, OPENVINO), precision=(FP32, BF16))
    sessions = [(cell[0].session.runtime, cell[0].session.computes_in) for cell in space.cells]
    assert sessions == [(ORT, FP32), (OPENVINO, FP32), (OPENVINO, BF16)]
    assert Knobs(runtime=OPENVINO, precision=BF16) in space
    assert Knobs(runtime=ORT, precision=BF16) not in space
    assert space.n_configurations == 6
    on_gpus = SearchSpace((1,), batch_size=(1,), runtime=(CUDA,), precision=PRECISIONS)
    assert [cell[0].session.computes_in for cell in on_gpus.cells] == [FP32, TF32, FP16]


def test_a_space_of_nothing_that_can_be_computed_is_refused() -> None:
    with pytest.raises(BadInput, match="onnxruntime does not compute in bf16; try another --runtime"):
        SearchSpace(
            (1,), batch_size=(1,), runtime=(ORT,), precision=(BF16,), constraints=(Constraint("n_devices <= 2"),)
        )
    with pytest.raises(BadInput, match="onnxruntime does not compute in tf32; try --device cuda:0"):
        SearchSpace((1,), batch_size=(1,), runtime=(ORT, OPENVINO), precision=(TF32,))


def test_words_of_no_runtime_are_refused() -> None:
    with pytest.raises(BadInput, match="runtime takes a tuple of the words onnxruntime, openvino"):
        SearchSpace(runtime=("tensorrt",))
    with pytest.raises(BadInput, match="runtime is one of onnxruntime, openvino, cuda, llamacpp, got 'tensorrt'"):
        Knobs(runtime="tensorrt")


def test_a_knob_that_a_session_does_not_have_cannot_be_written() -> None:
    with pytest.raises(BadInput, match=r"^streams is for openvino, got onnxruntime; leave it out$"):
        Knobs(runtime=ORT, streams=2)
    with pytest.raises(BadInput, match=r"^memory_proportion is for --target ipu, got openvino; leave it out$"):
        Knobs(runtime=OPENVINO, memory_proportion=0.3)
    with pytest.raises(BadInput, match=r"^there is no knob colour; knobs are "):
        Knobs(colour="red")


def test_a_knob_that_a_runtime_does_not_have_does_not_multiply_its_configurations() -> None:
    basic = GraphOptimization.BASIC
    space = SearchSpace(
        (1,),
        batch_size=(1, 2, 3, 4),
        cores_per_device=(1, 2),
        runtime=(ORT, OPENVINO),
        streams=(1, 2),
        spinning=(False, True),
        graph_optimization=(basic,),
    )
    assert {cell[0].session for cell in space.cells} == {
        OnnxRuntimeSession(1, graph_optimization=basic),
        OnnxRuntimeSession(2, spinning=False, graph_optimization=basic),
        OnnxRuntimeSession(2, spinning=True, graph_optimization=basic),
        OpenVinoSession(1),
        OpenVinoSession(2),
        OpenVinoSession(2, streams=2),
    }
    assert len(space.cells) == 6
    [in_two] = (cell for cell in space.cells if cell[0].session == OpenVinoSession(2, streams=2))
    assert [knobs.batch_size for knobs in in_two] == [2, 4]  # every stream has an equal part
    assert all(knobs in space for cell in space.cells for knobs in cell)
    assert Knobs(1, 3, session=OpenVinoSession(2)) in space
    assert Knobs(1, 3, session=OpenVinoSession(2, streams=2)) not in space
    assert Knobs(1, 2, session=OnnxRuntimeSession()) not in space  # graphs are optimized otherwise there


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streams": (2,), "runtime": (ORT,)}, r"^--streams is for --runtime openvino, got onnxruntime; leave"),
        (
            {"graph_optimization": ("off",), "runtime": (OPENVINO,)},
            r"^--graph-optimization is for .*onnxruntime or cuda",
        ),
        (
            {"streams": (3,)},
            r"^streams need a core or more each, .*, got --streams 3 for --cores-per-device 1 to 2 and",
        ),
        ({"streams": (2,), "batch_size": (1, 3)}, r"^streams need .*, and equal parts of a batch, got --streams 2 for"),
    ],
)
def test_options_that_no_configuration_can_have_are_refused(options: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"batch_size": (1, 2), "cores_per_device": (1, 2), "runtime": (ORT, OPENVINO), **options}
    with pytest.raises(BadInput, match=message):
        SearchSpace((1,), **values)


def test_the_first_session_of_a_target_computes_where_no_runtime_is_named() -> None:
    space = SearchSpace((1,), batch_size=(1,))
    assert (space.session, space.on_target("gpu", (GpuSession,), {}).sessions) == (IpuSession, (GpuSession,))
    several = space.on_target("host", (PlainSession, OpenVinoSession), {})
    assert [cell[0].session for cell in several.cells] == [PlainSession()]
    named = several.with_values(runtime=(OPENVINO,), cores_per_device=(2,))
    assert [cell[0].session for cell in named.cells] == [OpenVinoSession(2)]
    assert several.with_values(batch_size=(1, 2)).session is PlainSession


def test_a_configuration_with_other_values_keeps_its_kind_of_session() -> None:
    knobs = Knobs(session=OpenVinoSession(2))
    assert knobs.with_values(precision=BF16).session == OpenVinoSession(2, BF16)
    assert knobs.with_values(precision=None, streams=2).session == OpenVinoSession(2, streams=2)
    assert Knobs(session=PlainSession()).with_values(tensor_parallel=2).session == GpuSession(tensor_parallel=2)


@pytest.mark.parametrize("kind", [kind for kind in SESSION_CLASSES if CORES_PER_DEVICE in kind.knobs])
def test_a_session_takes_all_its_cores(kind: Any) -> None:
    """Two pipelines of two sessions of three cores are twelve."""
    session = kind(cores_per_device=3)
    assert session.group_size == 3
    modes = {"mode": Generation(8, 8)} if kind is LlamaCppSession else {}
    assert Knobs(2, 4, 2, session=session, **modes).n_devices == 12


def test_a_target_gives_values_of_its_own_knobs_where_none_are_given() -> None:
    """Of text the lengths are the target's too; groups of GPUs have no memory proportion."""
    values = {"tensor_parallel": (4, 8), "expert_parallel": (1, 2), "n_ipu": (7,), "cores_per_device": (3,)}
    tokens = {"input_tokens": (9,), "output_tokens": (5,)}
    given = SearchSpace(n_ipu=(1, 2), batch_size=(4,), tensor_parallel=(2,))
    space = given.on_target("gpu", (GpuSession,), values | tokens)
    assert (space["tensor_parallel"], space["expert_parallel"], space["n_ipu"]) == ((2,), (1, 2), (1, 2))
    assert (space["cores_per_device"], space["memory_proportion"]) == (given["cores_per_device"], ())
    assert (space["input_tokens"], space["output_tokens"]) == ((9,), (5,))
    assert space.sessions == (GpuSession,)
    own = SearchSpace(n_ipu=(1,), batch_size=(4,), output_tokens=(3,), input_tokens=(2,), tensor_parallel=(1,))
    assert own.on_target("gpu", (GpuSession,), tokens)["output_tokens"] == (3,)
    with pytest.raises(BadInput, match="--target gpu has no --memory-proportion; leave it out, try --headroom"):
        SearchSpace(n_ipu=(1,), memory_proportion=(0.5,)).on_target("gpu", (GpuSession,), values)
    with pytest.raises(BadInput, match="--target ipu generates no text, got --input-tokens; leave it out"):
        SearchSpace(n_ipu=(1,), output_tokens=(3,), input_tokens=(2,)).on_target("ipu", (IpuSession,), {})
    plain = SearchSpace(n_ipu=(1,), batch_size=(4,))
    assert plain.on_target("ipu", (IpuSession,), {}) is plain
