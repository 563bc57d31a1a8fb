"""Compile every kind of layer once, alone, and profile a model: `Profiler`, `check_batch_size`, `isolate`.

Batch sizes between two that were compiled are interpolated: `interpolate`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from autoauto.memo import Memo
from autoauto.profile.cache import ProfileCache
from autoauto.profile.liveness import carried, checkpointed, gradient_pattern, stashed
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import (
    GRADIENT,
    PARAMETER,
    PROFILE_SCHEMA,
    CompiledRange,
    LayerProfile,
    ModelProfile,
    category,
)
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Device
from autoauto.records.layers import Derivative, Layer, LayerGraph, LayerRange, Tensor, derivative
from autoauto.records.target import Target, traits_of

Progress = Callable[[int, int], None]
"""Called with the number of finished and of all compiles."""
_MAX_UNBOUND = 8192  # layers in memory, the variants of a model at all batch sizes of a search


def interpolate(low: LayerProfile, high: LayerProfile, share: Fraction) -> LayerProfile:
    """One layer, compiled alone, interpolated linearly at `share` of the way from `low` to `high`.

    A key that is missing in one of them has 0 bytes there. Numbers are rounded up: memory is not underestimated. The
    tensors around the layer in its model are not interpolated: their sizes are exact at any batch size.

    >>> low = LayerProfile(10, 0, {"code_a": 4}, {"parameter": 8}, 100, 0, 0, 0, 0)
    >>> high = LayerProfile(17, 0, {"code_a": 4}, {"parameter": 8}, 400, 0, 0, 0, 0)
    >>> third = interpolate(low, high, Fraction(1, 3))
    >>> third.forward_cycles, third.temporary_bytes, dict(third.exclusive)
    (13, 200, {'parameter': 8})
    """

    def between(first: int, second: int) -> int:
        return -((first * (share - 1) - second * share) // 1)

    def by_key(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
        return {key: between(first.get(key, 0), second.get(key, 0)) for key in {**first, **second}}

    return LayerProfile(
        forward_cycles=between(low.forward_cycles, high.forward_cycles),
        backward_cycles=between(low.backward_cycles, high.backward_cycles),
        shared=by_key(low.shared, high.shared),
        exclusive=by_key(low.exclusive, high.exclusive),
        temporary_bytes=between(low.temporary_bytes, high.temporary_bytes),
        carried_bytes=0,
        input_bytes=0,
        output_bytes=0,
        activation_bytes=0,
        weight_cycles=between(low.weight_cycles, high.weight_cycles),
    )


class Profiler:
    """Profiles of a model for one device: every kind of layer is compiled once, alone.

    For training a kind is compiled once more where its layers differ in which of their inputs need gradients. When the
    target compiles at two other batch sizes, every number is interpolated between them. Layers share the bytes to which
    the target gives equal keys: equal codelets, which Poplar shares, or all code of one kind, as with the layer-level
    sharing of [auto-pipeline].

    What depends on no option is made once. Sessions whose bounds a layer does not feel share what it compiles to
    (`CompiledRange.binding_below_bytes`).
    """

    def __init__(self, graph: LayerGraph, target: Target, device: Device, cache: ProfileCache) -> None:
        self._graph, self._target, self._device, self._cache = graph, target, device, cache
        self._variants: dict[bool, _Variants] = {}  # by whether the model is trained
        self._unbound: Memo[_Compile, _Unbound] = Memo(_MAX_UNBOUND)  # by options with the common session

    def profile(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """The profile of all layers at one batch size; what the cache has is not compiled.

        Raises:
            Infeasible: the model cannot run at this batch size.
        """
        graph = self._graph
        check_batch_size(graph, options.batch_size)
        if options.training not in self._variants:
            self._variants[options.training] = _Variants(graph, options.training)
        variants = self._variants[options.training]
        return ModelProfile(
            model=graph.name,
            target=f"{self._target.version} {self._device.name}",
            options=options,
            names=tuple(layer.name for layer in graph.layers),
            kinds=tuple(layer.kind for layer in graph.layers),
            tied=tuple(layer.tied for layer in graph.layers),
            layers=_in_model(variants, options, self._alone_at(variants, options, progress)),
            outlined=() if options.training else traits_of(self._target).outlined,
        )

    def _alone_at(
        self, variants: _Variants, options: CompileOptions, progress: Progress | None
    ) -> dict[str, LayerProfile]:
        """A layer of every variant alone, interpolated between the batch sizes at which the target compiles."""
        batch_sizes = self._target.profiled(options.batch_size)
        low, high = batch_sizes[0], batch_sizes[-1]
        assert low <= options.batch_size <= high, batch_sizes
        ends = [replace(options, batch_size=n) for n in dict.fromkeys((low, high))]
        compiled = self._compiled(
            variants, [_Compile(end, variant) for end in ends for variant in variants.first], progress
        )
        alone = [{variant: compiled[_Compile(end, variant)] for variant in variants.first} for end in ends]
        if low == high:
            return alone[0]
        share = Fraction(options.batch_size - low, high - low)
        return {variant: interpolate(alone[0][variant], alone[1][variant], share) for variant in variants.first}

    def _compiled(
        self, variants: _Variants, compiles: Collection[_Compile], progress: Progress | None
    ) -> dict[_Compile, LayerProfile]:
        """Compile what the cache does not have; the cache stores the results, also when a later compile fails."""
        digests = _digests(self._target, self._device, compiles)
        cached = self._cache.read(digests.values())
        compiled = {job: cached[digest] for job, digest in digests.items() if digest in cached}
        missing = [job for job in compiles if job not in compiled]
        new: dict[str, LayerProfile] = {}
        try:
            for job in missing:
                if progress is not None:
                    progress(len(compiled), len(compiles))
                compiled[job] = new[digests[job]] = self._compile(variants, job)
        finally:
            if new:
                self._cache.write(new)
        if progress is not None:
            progress(len(compiles), len(compiles))
        return compiled

    def _compile(self, variants: _Variants, job: _Compile) -> LayerProfile:
        """A layer alone, compiled unless it was with another bound, and feels neither that nor its own."""
        options, variant = job
        bound_bytes = options.session.bound_bytes(self._device)
        any_bound = _Compile(replace(options, session=options.session.common), variant)
        known = self._unbound.get(any_bound)
        if known is not None and known.from_bytes <= bound_bytes:
            return known.profile
        model = variants.alone(variant)
        layer = LayerRange(len(model) - 1, len(model))
        compiled = self._target.compile(model, layer, self._device, options)
        profile = _alone(compiled)
        if compiled.binding_below_bytes <= bound_bytes:
            self._unbound[any_bound] = _Unbound(profile, compiled.binding_below_bytes)
        return profile


def check_batch_size(graph: LayerGraph, batch_size: int) -> None:
    """Refuse a batch size that the model cannot run at.

    Raises:
        Infeasible: the model is fixed to batch size 1.
    """
    if graph.fixed_batch is not None and batch_size > 1:
        raise Infeasible(
            f"{graph.name} runs at batch size 1 only ({graph.fixed_batch}), got {batch_size}; "
            "try --batch-size 1, or export the model with a dynamic batch dimension",
            0,
        )


class _Variants:
    """The layers of a model by what they compile to at equal options, with or without a backward pass.

    Attributes:
        backward: the backward pass; without training nothing has one.
        of_layers: the variant of every layer: its kind, and which of its inputs need gradients.
        first: the first layer of each.
        n_readers: by tensor, how many layers have it as a weight.
    """

    def __init__(self, graph: LayerGraph, training: bool) -> None:
        self.backward = derivative(graph) if training else Derivative(graph, frozenset())
        self.of_layers = [f"{layer.kind}/{gradient_pattern(self.backward, layer)}" for layer in graph.layers]
        self.first: dict[str, int] = {}
        for index, variant in enumerate(self.of_layers):
            self.first.setdefault(variant, index)
        self.n_readers = Counter(index for layer in graph.layers for index in layer.weights)
        self._alone: dict[str, LayerGraph] = {}

    def alone(self, variant: str) -> LayerGraph:
        """A layer of a variant as the last of a model of its own."""
        if variant not in self._alone:
            self._alone[variant] = isolate(self.backward.graph, self.first[variant], self.backward)
        return self._alone[variant]

    def shared_weights(self, layer: Layer, options: CompileOptions) -> dict[str, int]:
        """Weights that other layers read too, and their gradients: stored once in a range, so they count as shared."""
        parameters = self.backward.parameters(layer) if options.training else ()
        return {
            f"{name}_{index}": self.backward.graph.tensors[index].stored_bytes(options.batch_size, options.precision)
            for name, weights in ((PARAMETER, layer.weights), (GRADIENT, parameters))
            for index in weights
            if self.n_readers[index] > 1
        }


class _Compile(NamedTuple):
    """One compile of one layer."""

    options: CompileOptions
    variant: str


class _Unbound(NamedTuple):
    """A layer alone, whatever bounds it: any bound of `from_bytes` or more on the temporaries of a tile."""

    profile: LayerProfile
    from_bytes: float


def _digests(target: Target, device: Device, compiles: Iterable[_Compile]) -> dict[_Compile, str]:
    """By compile the digest of all that its result depends on, one tuple; all but its variant is written down once."""
    written: dict[CompileOptions, str] = {}
    digests = {}
    for job in compiles:
        if job.options not in written:
            depends_on = target.depends_on(device, job.options)
            written[job.options] = repr((PROFILE_SCHEMA, target.version, depends_on)).removesuffix(")")
        content = f"{written[job.options]}, {job.variant!r})"
        digests[job] = hashlib.sha256(content.encode()).hexdigest()
    return digests


def _alone(compiled: CompiledRange) -> LayerProfile:
    """A compiled layer with nothing around it."""
    return LayerProfile(
        forward_cycles=compiled.forward_cycles,
        backward_cycles=compiled.backward_cycles,
        shared=dict(compiled.shared),
        exclusive=dict(compiled.exclusive),
        temporary_bytes=compiled.temporary_bytes,
        carried_bytes=0,
        input_bytes=0,
        output_bytes=0,
        activation_bytes=0,
        weight_cycles=compiled.weight_cycles,
    )


def _in_model(
    variants: _Variants, options: CompileOptions, alone: Mapping[str, LayerProfile]
) -> tuple[LayerProfile, ...]:
    """All layers in their model, by their variants alone; equal layers are one object, as those of BERT's encoders."""
    graph, size, precision = variants.backward.graph, options.batch_size, options.precision
    around = zip(
        *carried(graph, size, precision),
        *stashed(variants.backward, size, precision),
        checkpointed(graph, size, precision) if options.training else [0] * len(graph),
        strict=True,
    )
    same: dict[object, LayerProfile] = {}

    def in_model(layer: Layer, variant: str, around: Sequence[int]) -> LayerProfile:
        shared = variants.shared_weights(layer, options)
        key = (variant, tuple(shared.items()), around)
        if key not in same:
            same[key] = _with_tensors_around(alone[variant], shared, *map(int, around))
        return same[key]

    return tuple(map(in_model, graph.layers, variants.of_layers, around))


def _with_tensors_around(
    alone: LayerProfile,
    shared_weights: Mapping[str, int],
    carried_bytes: int,
    input_bytes: int,
    output_bytes: int,
    activation_bytes: int,
    stashed_input_bytes: int,
    checkpoint_bytes: int,
) -> LayerProfile:
    """A layer in its model: weights that other layers read too are shared bytes, no exclusive ones."""
    exclusive = Counter(alone.exclusive)
    for key, n_bytes in shared_weights.items():
        exclusive[category(key)] -= n_bytes
    return replace(
        alone,
        shared={**alone.shared, **shared_weights},
        exclusive=dict(exclusive),
        carried_bytes=carried_bytes,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        activation_bytes=activation_bytes,
        stashed_input_bytes=stashed_input_bytes,
        checkpoint_bytes=checkpoint_bytes,
    )


def isolate(graph: LayerGraph, index: int, derivative: Derivative) -> LayerGraph:
    """One layer as the last of a model of its own: its inputs are inputs of the model, its outputs are outputs.

    Inputs that need a gradient are the outputs of a layer before it, which has a parameter.
    """
    layer = graph.layers[index]
    used = sorted({*layer.operands, *layer.inputs, *layer.outputs, *layer.weights} - {-1})
    number = {old: new for new, old in enumerate(used)} | {-1: -1}
    with_gradient = {i for i in used if derivative.needs_gradient(i) and i not in layer.outputs}
    outputs_before = tuple(number[i] for i in layer.inputs if i in with_gradient)
    producers = (_producer(outputs_before, len(used)),) if with_gradient else ()
    alone = replace(
        layer,
        inputs=tuple(number[i] for i in layer.inputs),
        outputs=tuple(number[i] for i in layer.outputs),
        weights=tuple(number[i] for i in layer.weights),
        operands=tuple(number[i] for i in layer.operands),
    )
    n_before = len(producers)
    spans = dict.fromkeys(with_gradient, (0, n_before)) | dict.fromkeys(layer.outputs, (n_before, n_before + 1))
    tensors = [_with_span(graph.tensors[i], *spans.get(i, (-1, n_before))) for i in used]
    parameter = (Tensor("parameter", (2,), None, "float", -1, 0),) * n_before
    return replace(graph, layers=(*producers, alone), tensors=(*tensors, *parameter), blocks=())


def _producer(outputs: tuple[int, ...], weight: int) -> Layer:
    return Layer("before", "Identity", (), (), outputs, (weight,), (weight,), "before", None)


def _with_span(tensor: Tensor, producer: int, last_use: int) -> Tensor:
    return tensor._replace(producer=producer, last_use=last_use)
