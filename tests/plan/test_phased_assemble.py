from __future__ import annotations

import pytest

from autoauto.estimate.table import cost_table
from autoauto.plan.phased import NO_ROWS, number_graphs, phased, share_buffers
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.hardware import Cluster, Device, Link, StreamingMemory
from autoauto.records.plans.phased import BufferLayout, IoMode, PhasedOptions, PhasedPlan, PhaseKind
from autoauto.records.units import Precision

KINDS = ("fc1", "inner", "inner", "fc4")
LINK = Link(1.0, 0)


def test_equal_phases_share_a_graph_even_if_they_are_not_neighbours() -> None:
    assert [tuple(number) for number in number_graphs("abab")] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_one_size_makes_one_buffer() -> None:
    assert share_buffers("x", [8, 8], [8, 8], 4).buffers == (BufferLayout("x", 2, 4, 8),)


def test_every_size_has_a_buffer_of_its_own() -> None:
    shared = share_buffers("dx", [8, 2, 8], [8, 2, 8], 4)
    assert shared.buffers == (BufferLayout("dx0", 2, 4, 8), BufferLayout("dx1", 1, 4, 2))


def test_no_items_need_no_buffer() -> None:
    assert share_buffers("x", [], [], 4) == NO_ROWS


def network(
    *, training: bool, widths: tuple[int, ...] = (6, 8, 8, 8, 2), recompute: bool = False, n_replicas: int = 1
) -> PhasedPlan:
    """Layers of 100 bytes of variables; `widths` are the bytes in, between them, and out; each stashes its input."""
    layers = [
        LayerProfile(
            forward_cycles=10,
            backward_cycles=20 * training,
            shared={},
            exclusive={"parameter": 100},
            temporary_bytes=20,
            carried_bytes=0,
            input_bytes=widths[i],
            output_bytes=widths[i + 1],
            activation_bytes=(6 if i == 0 else 0) * training,
            stashed_input_bytes=0 if i == 0 else widths[i] * training,
        )
        for i in range(4)
    ]
    options = CompileOptions(1, Precision.FP16, training)
    profile = ModelProfile("mnist", "ipu", options, KINDS, KINDS, (None,) * 4, tuple(layers))
    devices, links = (Device("d", 1.0, 200, 8, 25),) * 3, (LINK,) * 3
    cluster = Cluster("c", "ipu", devices, links, links, StreamingMemory(1.0, 0, 10**6))
    table = cost_table(profile, cluster.first(1), 1.0, in_flight=(1,) if training else None, recompute=recompute)
    return phased(table, profile, cluster, PhasedOptions(4, IoMode.COMPUTE, 0, n_replicas, recompute))


def test_training_four_layers_makes_seven_phases() -> None:
    plan = network(training=True)
    assert [(phase.kind, *phase.layers, phase.graph, phase.row) for phase in plan.phases] == [
        (PhaseKind.FORWARD, 0, 1, 0, 0),
        (PhaseKind.FORWARD, 1, 2, 1, 0),
        (PhaseKind.FORWARD, 2, 3, 1, 1),
        (PhaseKind.BOTH, 3, 4, 2, 0),
        (PhaseKind.BACKWARD, 2, 3, 1, 1),
        (PhaseKind.BACKWARD, 1, 2, 1, 0),
        (PhaseKind.BACKWARD, 0, 1, 0, 0),
    ]
    assert plan.partition == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("recompute", [False, True])
def test_every_phase_loads_the_rows_that_an_earlier_one_stored(recompute: bool) -> None:
    rows = [
        (" ".join(map(str, p.loads)), " ".join(map(str, p.stores)))
        for p in network(training=True, recompute=recompute).phases
    ]
    assert rows == [
        ("", "x[0] kept0[0]"),
        ("x[0]", "x[1]"),
        ("x[1]", "x[2]"),
        ("x[2]", "dx[2]"),
        ("dx[2] x[1]", "dx[1]"),
        ("dx[1] x[0]", "dx[0]"),
        ("dx[0] kept0[0]", ""),
    ]


def test_buffers_between_phases_have_a_row_for_every_cut() -> None:
    assert network(training=True).buffers == (
        BufferLayout("x", 3, 4, 8),
        BufferLayout("dx", 3, 4, 8),
        BufferLayout("kept0", 1, 4, 6),
        BufferLayout("variables0", 1, 1, 100),
        BufferLayout("variables1", 2, 1, 100),
        BufferLayout("variables2", 1, 1, 100),
    )


def test_replicas_share_one_copy_of_the_variables() -> None:
    plan = network(training=False, n_replicas=3)
    assert plan.n_replicas == 3
    assert {(buffer.name, buffer.entry_bytes) for buffer in plan.buffers if buffer.name != "x"} == {
        (f"variables{graph}", 34) for graph in range(3)
    }


def test_inference_has_forward_phases_only() -> None:
    plan = network(training=False)
    assert {phase.kind for phase in plan.phases} == {PhaseKind.FORWARD}
    assert [buffer.name for buffer in plan.buffers] == ["x", "variables0", "variables1", "variables2"]


def test_phases_of_other_widths_share_no_graph() -> None:
    plan = network(training=False, widths=(6, 8, 8, 7, 2))
    assert [phase.graph for phase in plan.phases] == [0, 1, 2, 3]
    assert [str(phase.stores[0]) for phase in plan.phases[:-1]] == ["x0[0]", "x0[1]", "x1[0]"]


def test_the_cost_of_a_phase_is_the_sum_of_its_parts() -> None:
    plan = network(training=True)
    inner = plan.phases[1]
    assert (inner.variable_cycles, inner.load_cycles, inner.compute_cycles, inner.store_cycles) == (100, 8, 10, 8)
    assert plan.phase_cycles[1] == 100 + 4 * 26
    assert plan.naive_cycles == 4 * sum(phase.variable_cycles + phase.step_cycles for phase in plan.phases)
    assert inner.memory_bytes == {"parameter": 100, "temporary": 20 + 8, "load buffer": 8, "store buffer": 8}
    last = plan.phases[-1]
    assert (last.variable_cycles, last.load_bytes, last.store_bytes) == (200, 8 + 6, 0)
