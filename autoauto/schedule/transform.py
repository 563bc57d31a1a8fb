"""PopART's pipelining transformation, from a forward graph of layers to a program of fragments (seed 000)."""

from __future__ import annotations

from autoauto.records.pipeline import Pipeline, PipelineGraph
from autoauto.schedule.autodiff import backward_ops, forward_ops
from autoauto.schedule.copies import add_copies
from autoauto.schedule.fragments import add_streams, assemble
from autoauto.schedule.parallel import check_parallel
from autoauto.schedule.pipeline_rules import check_depth, check_graph
from autoauto.schedule.recompute import add_recompute
from autoauto.schedule.stage_merge import merge_stages, stage_devices
from autoauto.schedule.stash_ops import add_stashes, find_stashes


def transform(graph: PipelineGraph, n_micro_batches: int, *, training: bool, recompute: bool) -> Pipeline:
    """Pipeline a graph: gradients, stages, copies, recomputation, stashes, streams, and the program of all cycles.

    Without training there is nothing to recompute.

    Raises:
        BadInput: the graph breaks one of PopART's rules, or there are too few micro-batches to fill the pipeline.

    >>> from autoauto.schedule.pipeline_input import simple_pipeline
    >>> pipeline = transform(simple_pipeline(3), 6, training=True, recompute=False)
    >>> pipeline.devices, pipeline.stash_entries, len(pipeline.copies), pipeline.program.n_main
    ((0, 1, 2, 1, 0), {0: 5, 1: 3, 2: 0}, 4, 2)
    """
    check_graph(graph)
    ops = merge_stages((*forward_ops(graph), *(backward_ops(graph) if training else ())))
    devices = stage_devices(ops)
    check_depth(len(devices), n_micro_batches, training=training)
    ops = add_copies(ops, graph)
    if recompute:
        ops = add_recompute(ops, graph)
    stashes = find_stashes(ops, graph)
    ops = add_streams(add_stashes(ops, stashes), graph)
    program = assemble(ops, n_micro_batches)
    check_parallel(program, devices)
    return Pipeline(ops, devices, n_micro_batches, stashes, program)
