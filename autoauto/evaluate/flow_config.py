"""The arguments of a `Flow` as plain values, which a study stores and another process opens again: `FlowConfig`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.load import DEFAULT_CLUSTERS, check_cluster, load_flow, read_cluster
from autoauto.records.constraint import Constraint
from autoauto.records.correction import Estimator
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.units import MIB, Precision

IPU_ONLY = ("overlap", "synthetic_data", "overlap_io", "partials", "float_operators")
HOST_ONLY = ("cores_per_device", "device_memory_mib")
"""Fields that only one target takes."""


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """The names, files and options that make a `Flow`.

    Attributes:
        model: a built-in name or the path of an ONNX file.
        target: "ipu" or "host".
        cluster: a built-in name or a file; None is the target's default.
        headroom: share of every device's memory that is left free.
        precision, estimator, planning_proportion, overlap: as in `load_flow`; None is the default.
        constraints: expressions that must hold, over knobs or over results; None is none.
        max_latency_s: the same as the constraint "latency_s <= S"; None is no bound.
        synthetic_data: data is made on the device, so the host's links cost nothing (ipu).
        overlap_io: I/O tiles exchange with the host while the others compute (ipu).
        partials: format of partial sums; None is fp16 (ipu).
        float_operators: ONNX operators that run in fp32, with commas (ipu).
        cores_per_device: cores of a device; None is 1 (host).
        device_memory_mib: what a device may hold, in MiB; None is an equal part of the machine's (host).
    """

    model: str
    target: str = "ipu"
    cluster: str | None = None
    headroom: float = 0.0
    precision: str | None = None
    estimator: str = Estimator.REGRESSION
    planning_proportion: float | None = None
    overlap: bool = False
    constraints: tuple[str, ...] | None = None
    max_latency_s: float | None = None
    synthetic_data: bool = False
    overlap_io: bool = False
    partials: str | None = None
    float_operators: str = ""
    cores_per_device: int | None = None
    device_memory_mib: int | None = None

    @staticmethod
    def of(values: Mapping[str, object]) -> FlowConfig:
        """A config from values by field name, for example parsed arguments; names that are no field are ignored."""
        return FlowConfig(**{field.name: values[field.name] for field in fields(FlowConfig) if field.name in values})  # type: ignore[arg-type]

    @staticmethod
    def from_json(text: str, **changes: object) -> FlowConfig:
        """Read what `to_json` wrote, with some fields changed.

        Raises:
            BadInput: a field is missing.
        """
        values = {"headroom": 0.0} | json.loads(text) | changes  # older texts have no headroom
        if missing := [field.name for field in fields(FlowConfig) if field.name not in values]:
            raise BadInput(f"the configuration of a flow must hold {', '.join(missing)}; search anew by another name")
        if values["constraints"] is not None:
            values["constraints"] = tuple(values["constraints"])
        return FlowConfig.of(values)

    def to_json(self) -> str:
        """All fields as JSON, with files by their absolute paths."""
        values = asdict(self)
        for name in ("model", "cluster"):
            if values[name] is not None and Path(values[name]).is_file():
                values[name] = str(Path(values[name]).resolve())
        return json.dumps(values)

    def open(self, storage: str | None = None) -> Flow:
        """The model on the cluster.

        Args:
            storage: as in `load_flow`.

        Raises:
            BadInput: no such model or cluster, one that cannot be read, or an option of another target.
        """
        self._check_options()
        return self._open_ipu(storage) if self.target == "ipu" else self._open_host(storage)

    @property
    def all_constraints(self) -> tuple[Constraint, ...]:
        """The constraints and the bound on latency, each once."""
        texts = list(self.constraints or ())
        if self.max_latency_s is not None:
            texts.append(f"latency_s <= {self.max_latency_s!r}")
        return tuple(dict.fromkeys(map(Constraint, texts)))

    def _check_options(self) -> None:
        defaults = {field.name: field.default for field in fields(self)}
        others = HOST_ONLY if self.target == "ipu" else IPU_ONLY
        given = [f"--{name.replace('_', '-')}" for name in others if getattr(self, name) != defaults[name]]
        if given:
            raise BadInput(f"--target {self.target} has no {', '.join(given)}; leave them out, or try another --target")

    def _open_ipu(self, storage: str | None) -> Flow:
        from onnx.defs import has as has_operator

        from autoauto.targets.ipu.operator_cost import CompilerSettings
        from autoauto.targets.ipu.target import IpuTarget, overlap_io

        cluster, operators = self._cluster(), [name for name in self.float_operators.split(",") if name]
        if self.synthetic_data:
            cluster = cluster.with_synthetic_data()
        elif self.overlap_io:
            cluster = overlap_io(cluster)
        flow = load_flow(
            self.model,
            cluster,
            IpuTarget(CompilerSettings(Precision(self.partials or Precision.FP16), frozenset(operators))),
            self.precision,
            self.planning_proportion,
            self.overlap,
            self.estimator,
            storage,
            self._over_results,
        )
        known = {layer.op for layer in flow.graph.layers}
        if unknown := [name for name in operators if name not in known and not has_operator(name)]:
            raise BadInput(f"--float-operators takes ONNX operators, got {unknown[0]!r}; try Gelu,LayerNormalization")
        return flow

    def _open_host(self, storage: str | None) -> Flow:
        from autoauto.graph.cut.source import onnx_source
        from autoauto.targets.host.target import HostTarget

        if self.precision not in (None, Precision.FP32):
            raise BadInput(f"on the host a model runs in the formats of its file, got --precision {self.precision}")
        return load_flow(
            self.model,
            self._cluster(),
            HostTarget(onnx_source(self.model), self._n_cores),
            planning_proportion=self.planning_proportion,
            estimator=self.estimator,
            storage=storage,
            constraints=self._over_results,
        )

    @property
    def _over_results(self) -> tuple[Constraint, ...]:
        """The constraints on results, which a `Flow` checks; those on knobs belong to the `SearchSpace`."""
        return tuple(constraint for constraint in self.all_constraints if not constraint.over_knobs)

    @property
    def _n_cores(self) -> int:
        return self.cores_per_device or 1

    def _cluster(self) -> Cluster:
        """The devices, with the memory that plans may fill."""
        return self._whole_cluster().with_headroom(self.headroom)

    def _whole_cluster(self) -> Cluster:
        name = DEFAULT_CLUSTERS[self.target] if self.cluster is None else self.cluster
        if name == "host" and self.target == "host":
            from autoauto.targets.host.machine.detect import host_cluster

            memory_mib = self.device_memory_mib
            return host_cluster(self._n_cores, None if memory_mib is None else memory_mib * MIB)
        cluster = read_cluster(name)
        check_cluster(cluster, self.target, self._n_cores)
        if self.device_memory_mib is not None:
            raise BadInput("--device-memory-mib is for the detected machine; write memory_bytes into the cluster file")
        return cluster
