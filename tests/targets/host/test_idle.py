import numpy as np
import pytest

from autoauto.targets.host.idle import idle_model


def test_what_goes_in_comes_out() -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the host target runs ONNX Runtime")
    model = idle_model()
    session = runtime.InferenceSession(model.content, providers=["CPUExecutionProvider"])
    x = np.array([3], model.inputs[0].dtype)
    assert session.run([model.outputs[0].name], {model.inputs[0].name: x}) == [x]
