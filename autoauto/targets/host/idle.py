"""A model that does next to nothing, so that what a runtime takes by itself can be measured: `idle_model`."""

from __future__ import annotations

from autoauto.records.submodel import Port, SubModel


def idle_model() -> SubModel:
    """A model that hands on one number."""
    from onnx import TensorProto, helper

    ports = [Port(name, (1,), "float32") for name in ("x", "y")]
    x, y = (helper.make_tensor_value_info(port.name, TensorProto.FLOAT, port.shape) for port in ports)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "idle", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return SubModel(model.SerializeToString(), (ports[0],), (ports[1],))
