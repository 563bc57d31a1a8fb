"""The costs from which training is planned, `StageTable`: a row for every stage, with several stages on a device.

    stage     0     1     2     3     4     5         interleaved, 2 stages on each of 3 devices
    device    0 --> 1 --> 2 --> 0 --> 1 --> 2
             host                           host

    stage     0     1     2     3     4     5         a V shape: nothing moves between stages 2 and 3
    device    0 --> 1 --> 2     2 --> 1 --> 0
             host                           host

A stage either stashes its activations, or recomputes: it stashes its inputs, and its backward pass contains a second
forward pass. Which stages do is the same for all, or chosen with the cuts. What the stages of a device need together is
`device_memory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autoauto.plan.pipeline.problem import evaluate
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import StageBytes, device_memory
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import Plan
from autoauto.records.units import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class StageTable:
    """The costs of any range of layers as each of S stages on P devices.

    Attributes:
        rows: a table with a row for every stage, as if it were a device. The memory of a row is that of the stage
            alone, with the most micro-batches that it ever has in flight.
        devices: (S,) the device of every stage.
        in_flight: of every device (moments, its stages) how many micro-batches of each are in flight, at every moment
            at which the stash may be largest.
        recomputing: the same rows with recomputation, where stages may choose; None where all do as `rows` do.
        spared_prefix_cycles: (n + 1,) running sum of the forward cycles that the last stage does not run again where it
            recomputes; None where it runs all again.
    """

    rows: CostTable
    devices: tuple[int, ...]
    in_flight: tuple[IntArray, ...]
    recomputing: CostTable | None = None
    spared_prefix_cycles: IntArray | None = None

    @classmethod
    def of(
        cls, table: CostTable, recomputing: CostTable | None = None, spared_prefix_cycles: IntArray | None = None
    ) -> StageTable:
        """One stage on each device of a table."""
        in_flight = tuple(np.array([[1 + n_entries]]) for n_entries in table.stash_entries)
        return cls(table, tuple(range(table.n_devices)), in_flight, recomputing, spared_prefix_cycles)

    @property
    def recompute(self) -> bool:
        """Whether the stages of `rows` recompute."""
        return self.rows.memory.recompute

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return len(self.devices)

    @property
    def one_each(self) -> bool:
        """Whether no device has several stages."""
        return len(self.in_flight) == self.n_stages

    @property
    def stages(self) -> list[list[int]]:
        """The stages of every device."""
        stages: list[list[int]] = [[] for _ in self.in_flight]
        for stage, device in enumerate(self.devices):
            stages[device].append(stage)
        return stages

    def allows(self, partition: Sequence[int]) -> bool:
        """Whether stages may be cut at all boundaries of a partition."""
        return all(0 <= cut <= self.rows.n_layers and self.rows.cut_allowed[cut] for cut in partition)

    def cut_at(self, cuts: Sequence[int]) -> StageTable:
        """This table with only those legal cuts that lie before the given layers."""

        def rows(table: CostTable) -> CostTable:
            chosen = np.isin(np.arange(table.n_layers + 1), [0, *cuts, table.n_layers])
            return replace(table, cut_allowed=table.cut_allowed & chosen)

        return replace(self, rows=rows(self.rows), recomputing=self.recomputing and rows(self.recomputing))

    def costs_of(self, recomputes: bool) -> CostTable:
        """The costs of stages that recompute their activations, or of stages that keep them."""
        if recomputes == self.recompute:
            return self.rows
        assert self.recomputing is not None
        return self.recomputing

    def last_costs_of(self, recomputes: bool) -> CostTable:
        """`costs_of` as the last stage has them, on its device alone where devices differ; no stage costs less."""
        table, spared = self.costs_of(recomputes), self.spared_prefix_cycles
        if not recomputes or spared is None:
            return table
        last = table.on(self.n_stages - 1)
        last = replace(
            last,
            compute_prefix_cycles=last.compute_prefix_cycles - spared,
            backward_prefix_cycles=last.backward_prefix_cycles - spared,
        )
        if table.of_devices:
            return replace(table, of_devices=(*table.of_devices[:-1], last))
        return last  # `on` any device is then the table itself

    def stage_memory(self, stage: int, start: int, stop: int, recomputes: bool) -> StageBytes[int]:
        """The memory of a range of layers as a stage."""
        return self.costs_of(recomputes).on(stage).memory.stage(start, stop)

    def evaluate(self, partition: Sequence[int], recomputes: Sequence[bool]) -> Plan:
        """The plan that cuts at `partition`, the S + 1 boundaries of stages, some of which recompute.

        Raises BadInput if the partition is not the boundaries of non-empty stages.
        """
        evaluated = {flag: evaluate(self.costs_of(flag), partition).stages for flag in set(recomputes)}
        stages = [evaluated[flag][s] for s, flag in enumerate(recomputes)]
        stages[-1] = evaluate(self.last_costs_of(recomputes[-1]), partition).stages[-1]
        if not self.one_each:
            # Rows have the memory of stages alone. Of several, shared bytes count once, and the stash is of one moment.
            for device, own in enumerate(self.stages):
                alone = [self.stage_memory(s, *stages[s].layers, stages[s].recomputes) for s in own]
                together = device_memory(alone, self.in_flight[device])
                for s, memory in zip(own, together, strict=True):
                    stages[s] = replace(stages[s], device=device, memory_bytes=memory)
        return Plan(tuple(stages), self.rows.period, self.rows.host_cycles)


def arranged(table: CostTable, devices: Sequence[int], most_in_flight: Sequence[int]) -> CostTable:
    """A row for every stage, from a table with a row for every device.

    A stage receives over the link that joins its device to that of the stage before, whichever way; the link from the
    last device back to the first is like the one that leaves the first device and the one that enters the last. Between
    two stages of one device nothing moves. The host's constants are in the first stage and in the last: stages take
    turns on a device, so that only the turns of these wait for it. Raises BadInput if devices transfer by themselves,
    or any reaches any other.
    """
    if table.period in (Period.SERIAL, Period.DUPLEX) or table.exchange is not None:
        got = "topology all-to-all" if table.exchange is not None else f"period {table.period}"
        raise BadInput(f"several stages a device need devices in a line, and period barrier or overlap, got {got}")
    ends = list(pairwise(devices))
    host_in, host_out = table.receive_cycles[0, 0], table.send_cycles[-1, -1]
    # By device: over the link to the device before it, columns are the boundary before a layer, (P, n + 1).
    before = np.pad(table.receive_cycles - host_in, ((0, 0), (0, 1)))
    after = table.send_cycles - host_out
    nothing: IntArray = np.zeros_like(after[0])

    def link(device: int, other: int) -> IntArray:
        """(n + 1,) by boundary the cycles in which a device moves a tensor over its link to another one."""
        if other == device:
            return nothing
        if other == device - 1:
            row = before[device]
        elif other == device + 1:
            row = after[device]
        elif device == 0:
            row = before[-1]
        else:
            row = after[0]
        cycles: IntArray = row
        return cycles

    receive, send = [nothing + host_in], []
    for previous, device in ends:
        receive.append(link(device, previous))
        send.append(link(previous, device))
    send.append(nothing + host_out)
    rows = list(devices)
    return replace(
        table,
        receive_cycles=np.stack(receive)[:, : table.n_layers],
        send_cycles=np.stack(send),
        memory_limit_bytes=table.memory_limit_bytes[rows],
        speeds=tuple(table.speeds[device] for device in rows),
        stash_entries=tuple(count - 1 for count in most_in_flight),
        of_devices=tuple(table.of_devices[device] for device in rows if table.of_devices),
    )
