"""Compile every kind of layer once, alone, and profile a model: `Profiler`, `check_batch_size`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import inf
from time import monotonic
from typing import NamedTuple

from autoauto.memo import Memo
from autoauto.profile.cache import ProfileCache
from autoauto.profile.last_writes import write_waiting, write_when_gone
from autoauto.profile.positions import Positions
from autoauto.profile.variants import Variants
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import (
    PROFILE_SCHEMA,
    LayerProfile,
    ModelProfile,
    UnboundLayer,
)
from autoauto.records.costs.stash import stash_of
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.target import CompilingTarget, Prepares, traits_of

Progress = Callable[[int, int], None]
"""Called with the number of finished and of all compiles."""
_MAX_IN_MODEL = 128  # in memory: batch sizes of a search
_MAX_OPTIONS = 512  # and of each with several bounds
_WRITE_EVERY_S = 0.5
"""Minimum time between two transactions, each of which takes a third of it; a killed process loses no more."""
_MAX_SESSIONS = 8  # for each of them, whose bounds differ


def interpolate(low: LayerProfile, high: LayerProfile, share: Fraction) -> LayerProfile:
    """One layer, compiled alone, interpolated linearly at `share` of the way from `low` to `high`.

    A key that is missing in one of them has 0 bytes there. Numbers are rounded up: memory is not underestimated. Alone
    there are no tensors around a layer, whose sizes are exact at any batch size and need no interpolation.

    >>> low = LayerProfile(10, 0, {"code_a": 4}, {"parameter": 8}, 100, 0, 0, 0, 0)
    >>> high = LayerProfile(17, 0, {"code_a": 4}, {"parameter": 8}, 400, 0, 0, 0, 0)
    >>> third = interpolate(low, high, Fraction(1, 3))
    >>> third.forward_cycles, third.temporary_bytes, dict(third.exclusive)
    (13, 200, {'parameter': 8})
    """

    def between(first: int, second: int) -> int:
        return -((first * (share - 1) - second * share) // 1)  # up: the floor of the negative, negated

    def by_key(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
        return {key: between(first.get(key, 0), second.get(key, 0)) for key in {**first, **second}}

    return replace(
        low,
        forward_cycles=between(low.forward_cycles, high.forward_cycles),
        backward_cycles=between(low.backward_cycles, high.backward_cycles),
        shared=by_key(low.shared, high.shared),
        exclusive=by_key(low.exclusive, high.exclusive),
        temporary_bytes=between(low.temporary_bytes, high.temporary_bytes),
        weight_cycles=between(low.weight_cycles, high.weight_cycles),
    )


class Profiler:
    """Profiles of a model for one device: every kind of layer is compiled once, alone.

    For training a kind is compiled once more where its layers differ in which of their inputs need gradients. When the
    target compiles at two other batch sizes, every number is interpolated between them. Layers share the bytes to which
    the target gives equal keys: equal codelets, which Poplar shares, or all code of one kind, as with the layer-level
    sharing of [auto-pipeline].

    What depends on no option is made once. Sessions whose bounds a layer does not feel share what it compiles to
    (`CompiledRange.binding_below_bytes`), in memory and in the cache, and where no layer feels them the whole profile.
    """

    def __init__(self, graph: LayerGraph, target: CompilingTarget, device: Device, cache: ProfileCache) -> None:
        self._graph = graph
        self._target = target
        self._device = device
        self._cache = cache
        self._variants: dict[bool, Variants] = {}  # by whether the model is trained
        self._positions = Positions(graph)
        self._names: Memo[CompileOptions, _Named] = Memo(_MAX_OPTIONS)
        # By options with the common session, and by variant.
        self._unbound: Memo[CompileOptions, dict[str, UnboundLayer]] = Memo(_MAX_IN_MODEL)
        self._unwritten: dict[str, LayerProfile | UnboundLayer] = {}  # by digest
        self._written_s = -inf
        write_when_gone(self, partial(_write_last, cache, self._unwritten))
        write_waiting()
        # By options with the common session: the layers in their model, for each of the layers alone that differ.
        self._in_model: Memo[CompileOptions, list[_InModel]] = Memo(_MAX_IN_MODEL)

    def profile(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """The profile of all layers; what the cache has is not compiled. `Infeasible` as `check_batch_size`."""
        graph = self._graph
        check_batch_size(graph, options.batch_size)
        if options.training not in self._variants:
            self._variants[options.training] = Variants(stash_of(graph, options).passes)
        variants = self._variants[options.training]
        return ModelProfile.of_graph(
            graph,
            f"{self._target.version} {self._device.name}",
            options,
            self._layers(variants, options, self._alone_at(variants, options, progress)),
            outlined=() if options.training else traits_of(self._target).outlined,
        )

    def _alone_at(
        self, variants: Variants, options: CompileOptions, progress: Progress | None
    ) -> dict[str, LayerProfile]:
        """A layer of every variant alone, interpolated between the batch sizes at which the target compiles."""
        batch_sizes = self._target.profiled(options.batch_size)
        low, high = batch_sizes[0], batch_sizes[-1]
        assert low <= options.batch_size <= high, batch_sizes
        ends = [self._named(replace(options, batch_size=n)) for n in dict.fromkeys((low, high))]
        alone = self._compiled(variants, ends, progress)
        if low == high:
            return alone[0]
        share = Fraction(options.batch_size - low, high - low)
        return {variant: interpolate(alone[0][variant], alone[1][variant], share) for variant in variants.first}

    def _named(self, options: CompileOptions) -> _Named:
        return self._names.of(options, lambda: _Named.of(options, self._target, self._device))

    def _layers(
        self, variants: Variants, options: CompileOptions, alone: dict[str, LayerProfile]
    ) -> tuple[LayerProfile, ...]:
        known = self._in_model.of(self._named(options).any_bound, list)
        for known_alone, layers in known:
            if all(profile is known_alone[variant] for variant, profile in alone.items()):
                return layers
        layers = self._positions.in_model(variants, options, alone)
        known.append((alone, layers))
        del known[:-_MAX_SESSIONS]
        return layers

    def _compiled(
        self, variants: Variants, ends: Sequence[_Named], progress: Progress | None
    ) -> list[dict[str, LayerProfile]]:
        """Compile what the cache does not have; the cache stores the results, also when a later compile fails."""
        compiled = self._known(variants, ends)
        missing: list[tuple[_Named, str, dict[str, LayerProfile]]] = []  # what to compile, and where to put it
        for end, layers in zip(ends, compiled, strict=True):
            missing += [(end, variant, layers) for variant in variants.first if variant not in layers]
        if isinstance(self._target, Prepares):
            for options in dict.fromkeys(end.options for end, _, _ in missing):
                models = (variants.alone(variant) for end, variant, _ in missing if end.options == options)
                self._target.prepare(models, self._device, options)
        n_all = len(ends) * len(variants.first)
        new: dict[str, LayerProfile | UnboundLayer] = {}
        try:
            for done, (end, variant, layers) in enumerate(missing, n_all - len(missing)):
                if progress is not None:
                    progress(done, n_all)
                result = self._compile(variants, variant, end.options)
                if isinstance(result, UnboundLayer):
                    new[end.unbound_digest(variant)] = result
                    self._unbound_at(end)[variant] = result
                    layers[variant] = result.profile
                else:
                    new[end.digest(variant)] = result
                    layers[variant] = result
        except BaseException:  # also Ctrl-C: the search may not come back here
            self._store(new, at_once=True)
            raise
        self._store(new)
        if progress is not None:
            progress(n_all, n_all)
        return compiled

    def _store(self, new: Mapping[str, LayerProfile | UnboundLayer], *, at_once: bool = False) -> None:
        """Store what was compiled; where little time has passed, with what is compiled next, or at the end."""
        self._unwritten.update(new)
        if at_once or monotonic() - self._written_s > _WRITE_EVERY_S:
            _write(self._cache, self._unwritten)
            self._written_s = monotonic()

    def _known(self, variants: Variants, ends: Sequence[_Named]) -> list[dict[str, LayerProfile]]:
        """For each end the layers that were compiled before: with its bound, or with another that does not bind."""
        known = [self._known_unbound(end) for end in ends]
        # By digest, which variant is looked for, and among which layers it is put.
        bound: dict[str, tuple[str, dict[str, LayerProfile]]] = {}
        unbound: dict[str, tuple[str, dict[str, UnboundLayer]]] = {}
        for end, layers in zip(ends, known, strict=True):
            with_any_bound = self._unbound_at(end)
            for variant in variants.first:
                if variant in layers:
                    continue
                bound[end.digest(variant)] = variant, layers
                if end.bound_bytes < inf and variant not in with_any_bound:
                    unbound[end.unbound_digest(variant)] = variant, with_any_bound
        stored = self._cache.read_layers(unbound, bound)
        for digest, layer in stored.bound.items():
            variant, layers = bound[digest]
            layers[variant] = layer
        for digest, result in stored.unbound.items():
            variant, with_any_bound = unbound[digest]
            with_any_bound[variant] = result
        if stored.unbound:  # now more layers may be known not to feel the bound of an end
            for end, layers in zip(ends, known, strict=True):
                layers.update(self._known_unbound(end))
        return known

    def _unbound_at(self, named: _Named) -> dict[str, UnboundLayer]:
        return self._unbound.of(named.any_bound, dict)

    def _known_unbound(self, named: _Named) -> dict[str, LayerProfile]:
        """By variant the layers that do not feel the bound of a session."""
        layers = self._unbound_at(named).items()
        return {variant: layer.profile for variant, layer in layers if layer.from_bytes <= named.bound_bytes}

    def _compile(self, variants: Variants, variant: str, options: CompileOptions) -> LayerProfile | UnboundLayer:
        """A layer alone; one that does not feel the bound of its session, with the bytes from which it does not."""
        model = variants.alone(variant)
        layer = LayerRange(len(model) - 1, len(model))
        compiled = self._target.compile(model, layer, self._device, options)
        profile = LayerProfile(
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
        bound_bytes = options.session.bound_bytes(self._device)
        if bound_bytes == inf or compiled.binding_below_bytes > bound_bytes:  # it is of this session only
            return profile
        return UnboundLayer(profile, compiled.binding_below_bytes)


def _write(cache: ProfileCache, entries: dict[str, LayerProfile | UnboundLayer]) -> None:
    written = dict(entries)
    entries.clear()
    cache.write(written)


def _write_last(cache: ProfileCache, entries: dict[str, LayerProfile | UnboundLayer]) -> None:
    """Write entries at the end; a cache that cannot be used any more costs time only."""
    with suppress(BadInput):
        _write(cache, entries)


def check_batch_size(graph: LayerGraph, batch_size: int) -> None:
    """Raise `Infeasible` for a batch size that the model cannot run at."""
    if graph.fixed_batch is not None and batch_size > 1:
        raise Infeasible(
            f"{graph.name} runs at batch size 1 only ({graph.fixed_batch}), got {batch_size}; "
            "try --batch-size 1, or export the model with a dynamic batch dimension",
            0,
        )


class _Named(NamedTuple):
    """Options, and the keys by which what compiles with them is found: all that results depend on but the variant."""

    options: CompileOptions
    any_bound: CompileOptions  # with the session that all have in common which differ in their bound alone
    bound_bytes: float  # the bound of its session
    text: str
    any_bound_text: str

    @classmethod
    def of(cls, options: CompileOptions, target: CompilingTarget, device: Device) -> _Named:
        any_bound = replace(options, session=options.session.common)

        def text(options: CompileOptions) -> str:
            depends_on = target.depends_on(device, options)
            # Without the closing bracket: `digest` adds the variant, so that this long part is written once for all.
            return repr((PROFILE_SCHEMA, target.version, depends_on)).removesuffix(")")

        return cls(options, any_bound, options.session.bound_bytes(device), text(options), text(any_bound))

    def digest(self, variant: str) -> str:
        """The digest of all that a layer depends on, one tuple."""
        return hashlib.sha256(f"{self.text}, {variant!r})".encode()).hexdigest()

    def unbound_digest(self, variant: str) -> str:
        """The digest of a layer that no bound on temporary memory has changed."""
        return hashlib.sha256(f"{self.any_bound_text}, {f'{variant} under any bound'!r})".encode()).hexdigest()


_InModel = tuple[Mapping[str, LayerProfile], tuple[LayerProfile, ...]]
"""Layers alone by their variants, and all layers in their model."""
