"""The size that a model has with all functions inlined, computed without inlining them: `check_size`."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import onnx

from autoauto.graph.onnx_file import all_nodes, bodies, has_bodies
from autoauto.records.errors import UnreadableModel

MAX_NODES, MAX_BYTES, MAX_NESTED, MAX_CALLS = 20_000, 2**28, 20, 100
"""Of a model with its functions inlined: nodes, bytes, bodies in bodies; and functions that call each other."""


class _Size(NamedTuple):
    n_nodes: int  # of nodes, those in bodies included
    n_bytes: int  # of nodes, those in bodies included
    n_nested: int  # how many bodies lie in each other
    n_calls: int  # how many functions call each other, one after the other


_COUNTABLE = 10**15
_Name = tuple[str, str, str]
_Sizes = dict[_Name, _Size]


def check_size(model: onnx.ModelProto) -> None:
    """Raise UnreadableModel, before anything is inlined, for functions and bodies that would make too large a model.

    Two calls in each of 41 functions that call each other are 2**40 nodes in a file of 2.6 kB.
    """
    functions: dict[_Name, onnx.FunctionProto] = {}
    for function in model.functions:
        if functions.setdefault(_name(function.name, function), function) is not function:
            raise UnreadableModel(f"every function must have a name of its own, {function.name!r} is there twice")
    called: dict[_Name, set[_Name]] = {}
    for name, function in functions.items():
        called[name] = {_name(node.op_type, node) for node in all_nodes(function)} & functions.keys()
    sizes: _Sizes = {}
    try:
        # A function comes behind those that it calls, so that each is measured once.
        for name in TopologicalSorter(called).static_order():
            sizes[name] = _size(functions[name], sizes)
    except CycleError as error:
        name = error.args[1][0]
        raise UnreadableModel(
            f"a function must not call itself, also not by others, {name[1]!r} does; export the model without functions"
        ) from None
    size = _size(model.graph, sizes)
    limits = [
        ("bodies in each other", size.n_nested, MAX_NESTED),
        ("functions that call each other", size.n_calls, MAX_CALLS),
    ]
    if functions:  # without any, the model is as large as its file
        limits = [("nodes", size.n_nodes, MAX_NODES), ("bytes", size.n_bytes, MAX_BYTES), *limits]
    for what, given, most in limits:
        if given > most:
            shown = f"{given:,}" if given < _COUNTABLE else "far more"
            raise UnreadableModel(
                f"with its functions in place, a model must have at most {most:,} {what}, got {shown}; "
                "export it without functions, or a part of it"
            )


def _size(holder: onnx.GraphProto | onnx.FunctionProto, sizes: _Sizes) -> _Size:
    n_nodes, n_bytes, n_nested, n_calls = 0, 0, 0, 0
    for node in holder.node:
        n_bytes += node.ByteSize()
        callee = sizes.get(_name(node.op_type, node))
        if callee is not None:
            if has_bodies(node):
                raise UnreadableModel(f"a function must be called without graphs, {node.op_type!r} is called with one")
            # Each node of the function may refer to each attribute of the call, and then holds a copy of it.
            n_bytes += callee.n_bytes + sum(attribute.ByteSize() for attribute in node.attribute) * callee.n_nodes
            n_nodes += callee.n_nodes
            n_nested = max(n_nested, callee.n_nested)
            n_calls = max(n_calls, callee.n_calls + 1)
            continue
        n_nodes += 1
        for body in bodies(node):
            inner = _size(body, sizes)
            n_nodes += inner.n_nodes
            n_bytes += inner.n_bytes
            n_nested = max(n_nested, inner.n_nested + 1)
            n_calls = max(n_calls, inner.n_calls)
    # Sizes may double from function to function: the numbers themselves must not grow without an end.
    return _Size(min(n_nodes, _COUNTABLE), min(n_bytes, _COUNTABLE), n_nested, n_calls)


def _name(name: str, holder: onnx.NodeProto | onnx.FunctionProto) -> _Name:
    domain = "" if holder.domain == "ai.onnx" else holder.domain
    return domain, name, holder.overload
