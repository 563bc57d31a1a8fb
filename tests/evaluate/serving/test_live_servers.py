"""Servers of this machine without any: how clients are shared out, what loads say, and what a search makes of it.

The numbers of loads are made by hand; what is started, loaded and ended is noted.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import nan
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autoauto.evaluate.serving.live import references as references_module
from autoauto.evaluate.serving.live import server_group as group_module
from autoauto.evaluate.serving.live.flow import LiveFlow
from autoauto.evaluate.serving.live.readings import LoadReading
from autoauto.evaluate.serving.live.references import References
from autoauto.evaluate.serving.live.server_group import ServerGroup
from autoauto.load.tokens import TokenLoad, TokenMeasurement
from autoauto.records.costs.decoder import Checkpoint, Decoder, Workload
from autoauto.records.costs.traffic.requests import Percentiles
from autoauto.records.errors import BadInput, DoesNotFit, Infeasible, OutOfMemory, Unsupported
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.target import Origin
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.numbers import TokenResult
from autoauto.space.trial import Status
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession

PLAIN = Knobs(1, 4, mode=Generation(64, 32), session=LlamaCppSession())
DECODER = Decoder("m", "LlamaForCausalLM", 64, 4, 8, 2, 8, 96, 100, is_tied=False, checkpoint=Checkpoint(max_length=97))
DEVICE = Device("core", 1e9, 250, 1, 250)
CLUSTER = Cluster("host", "host", (DEVICE,) * 4, (Link(1e9, 1),) * 4, (Link(1e9, 1),) * 4)


class Server:
    """A server that ends when it is told to; it computes half a second a load of this machine."""

    def __init__(self, address: str) -> None:
        self.address, self.is_alive, self.cpu_s = address, True, 0.0

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_alive = False

    def failure(self) -> DoesNotFit | None:
        return None if self.is_alive else OutOfMemory("its log says: no memory", 0)


class Target:
    """Starts what is called a server, and notes how."""

    def __init__(self, n_clients: int = 8) -> None:
        self.n_clients, self.decoder = n_clients, DECODER
        self.started: list[tuple[Any, ...]] = []
        self.servers: list[Server] = []
        self.fails = 99

    def serve(self, session: Any, n_slots: int, workload: Workload, replica: int | None = None) -> Server:
        if len(self.servers) == self.fails:
            raise OutOfMemory("no room", 3)
        self.started.append((session, n_slots, workload, replica))
        self.servers.append(Server(f"http://s{len(self.servers)}"))
        return self.servers[-1]

    def memory_bytes(self, session: Any, n_slots: int, workload: Workload) -> dict[str, int]:
        """Of weights 50, and 10 a slot."""
        return {"weights": 50, "KV cache": 10 * n_slots}


REQUESTS = Workload(64, 32)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, TokenLoad]]:
    """What clients sent; each load takes two seconds, in which its server computes half of one."""
    sent: list[tuple[str, TokenLoad]] = []
    now_s = [0.0]

    def clock() -> float:
        now_s[0] += 1.0
        return now_s[0]

    def measured(address: str, load: TokenLoad) -> TokenMeasurement:
        sent.append((address, load))
        mean = float(load.n_clients)  # so that servers with more clients count for more
        ttft, tpot, itl, latency = (Percentiles(mean * scale, nan, nan, nan, nan) for scale in (1.0, 0.5, 2.0, 3.0))
        n_tokens = load.n_clients * load.output_tokens
        wall_s = 2.0 + len(address)
        return TokenMeasurement(1.0, 0.1, ttft, tpot, itl, latency, load.n_clients, 0, n_tokens, wall_s)

    monkeypatch.setattr(group_module, "measure_tokens", measured)
    monkeypatch.setattr(group_module, "perf_counter", clock)
    return sent


def group_of(target: Target, knobs: Knobs = PLAIN) -> ServerGroup:
    return ServerGroup(cast("Any", target), knobs, REQUESTS)


def test_servers_side_by_side_are_numbered_and_end_together() -> None:
    target = Target()
    with group_of(target, PLAIN.with_values(replicas=3)) as group:
        assert [(slots, workload, number) for _, slots, workload, number in target.started] == [
            (4, REQUESTS, number) for number in range(3)
        ]
        assert group.is_alive
        target.servers[1].is_alive = False
        assert not group.is_alive
    assert not any(server.is_alive for server in target.servers)
    with group_of(target) as alone:
        assert target.started[-1][3] is None  # a server alone has all cores
        assert alone.is_alive
        alone.close()
        assert not alone.is_alive


def test_servers_that_were_started_end_where_another_does_not_come_up() -> None:
    target = Target()
    target.fails = 2
    with pytest.raises(OutOfMemory, match="no room"):
        group_of(target, PLAIN.with_values(replicas=3))
    assert [server.is_alive for server in target.servers] == [False, False]


def test_clients_are_shared_out_and_a_load_has_means_of_all_requests(loads: list[tuple[str, TokenLoad]]) -> None:
    """Of 5 clients 3 and 2: means 3 and 2 are (3 * 3 + 2 * 2) / 5 = 2.6; 160 tokens in the longest 11 s."""
    target = Target()
    with group_of(target, PLAIN.with_values(replicas=2)) as group:
        before = group.cpu_s
        target.servers[0].cpu_s = 0.0
        reading = group.load(5)
        assert before == 0.0
    assert sorted((address, load.n_clients, load.n_requests, load.seed) for address, load in loads) == [
        ("http://s0", 3, 3, 2),
        ("http://s1", 2, 2, 3),
    ]
    [(_, load), _] = loads
    assert (load.input_tokens, load.output_tokens, load.vocabulary_size, load.n_warmup) == (64, 32, 100, 0)
    assert load.extra == {"cache_prompt": False}
    assert (reading.ttft_s, reading.tpot_s, reading.latency_s) == pytest.approx((2.6, 1.3, 7.8))
    assert reading.tokens_per_s == pytest.approx(160 / 11)


def test_cpu_time_is_that_of_all_servers_during_the_load(
    loads: list[tuple[str, TokenLoad]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers compute 2 s and 1 s in one second for 64 tokens."""
    target = Target()
    with group_of(target, PLAIN.with_values(replicas=2)) as group:
        for server in target.servers:
            server.cpu_s = 10.0
        measured = group._all_measured

        def computing(n_clients: int, output_tokens: int) -> list[TokenMeasurement]:
            target.servers[0].cpu_s, target.servers[1].cpu_s = 12.0, 11.0
            return measured(n_clients, output_tokens)

        monkeypatch.setattr(group, "_all_measured", computing)
        reading = group.load(2)
    assert (reading.cpu_s, reading.cores) == pytest.approx((3 / 64, 3.0))


def test_prompts_are_others_in_every_load_and_short_to_warm_up(loads: list[tuple[str, TokenLoad]]) -> None:
    with group_of(Target()) as group:
        group.warm_up(2)
        group.load(2)
        group.load(2)
    assert [(load.output_tokens, load.seed) for _, load in loads] == [(2, 1), (32, 2), (32, 3)]


def test_a_server_without_a_client_is_sent_nothing(loads: list[tuple[str, TokenLoad]]) -> None:
    with group_of(Target(), PLAIN.with_values(replicas=3)) as group:
        group.load(2)
    assert [load.n_clients for _, load in loads] == [1, 1]


@pytest.mark.parametrize(
    ("result", "is_alive", "kind", "message"),
    [
        (BadInput("no tokens"), True, Unsupported, "the server fails: no tokens"),
        (OSError("reset"), False, OutOfMemory, "its log says: no memory"),
        ({"n_failed": 1, "notes": ("a request failed",)}, True, Unsupported, "answers wrongly: a request failed"),
        ({"n_tokens": 63}, True, Unsupported, "answers wrongly: answers have 63 tokens together"),
        ({"n_tokens": 65}, False, OutOfMemory, "its log says: no memory"),
    ],
)
def test_a_server_that_fails_ends_all_and_says_why(
    result: Any, is_alive: bool, kind: type[DoesNotFit], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target()
    whole = TokenMeasurement(1.0, 0.1, *(Percentiles(1.0, 1.0, 1.0, 1.0, 1.0),) * 4, 2, 0, 64, 2.0)

    def measured(address: str, load: TokenLoad) -> TokenMeasurement:
        target.servers[0].is_alive = is_alive
        if isinstance(result, Exception):
            raise result
        return replace(whole, **result)

    monkeypatch.setattr(group_module, "measure_tokens", measured)
    group = group_of(target)
    with pytest.raises(kind, match=message):
        group.load(2)
    assert not group.is_alive


def test_a_server_whose_connections_end_a_moment_before_it_does_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target()

    def measured(address: str, load: TokenLoad) -> TokenMeasurement:
        monkeypatch.setattr(target.servers[0], "failure", lambda: OutOfMemory("killed", 0))
        raise OSError("reset")

    monkeypatch.setattr(group_module, "measure_tokens", measured)
    with pytest.raises(OutOfMemory, match="killed"):
        group_of(target).load(2)


class Group:
    """Servers whose loads are read from `scripts` by their configuration; `events` notes all."""

    scripts: Callable[[Knobs, int], LoadReading]
    events: list[tuple[object, ...]]
    fails: dict[int, DoesNotFit]

    def __init__(self, target: Any, knobs: Knobs, requests: Workload) -> None:
        self.knobs, self.is_alive = knobs, True
        self.events.append(("start", knobs.batch_size, knobs.replicas))
        if failure := self.fails.get(knobs.batch_size):
            raise failure

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.is_alive:
            self.events.append(("end", self.knobs.batch_size, self.knobs.replicas))
        self.is_alive = False

    def warm_up(self, n_clients: int) -> None:
        self.events.append(("warm", self.knobs.batch_size, n_clients))

    def load(self, n_clients: int) -> LoadReading:
        assert self.is_alive
        self.events.append(("load", self.knobs.batch_size, n_clients))
        return type(self).scripts(self.knobs, n_clients)


def steady(knobs: Knobs, n_clients: int) -> LoadReading:
    """A step takes 6 ms of CPU, and 2 ms a sequence: of one client a token takes 8 ms, of 8 slots 2.75 ms."""
    n = min(knobs.batch_size, n_clients // knobs.replicas)
    return LoadReading(6e-3 / n + 2e-3, 1.0 * knobs.replicas, knobs.replicas * 1 / (6e-3 / n + 2e-3), 0.01, 0.2, 0.5)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Group]]:
    made = type("Made", (Group,), {"events": [], "fails": {}, "scripts": staticmethod(steady)})
    monkeypatch.setattr(references_module, "ServerGroup", made)
    yield made
    gc.collect()


def references(target: Target | None = None, machine_bytes: int = 1000) -> References:
    """Servers need 50 bytes each and 10 a slot."""
    return References(
        cast("Any", target or Target()), lambda knobs: knobs.replicas * (50 + 10 * knobs.batch_size), machine_bytes
    )


def test_the_reference_has_a_slot_for_every_client_and_is_measured_once(groups: type[Group]) -> None:
    known = references()
    reference = known.of(PLAIN)
    assert (reference.knobs.batch_size, reference.knobs.session) == (8, LlamaCppSession())
    assert reference.tokens_per_s == pytest.approx(1 / 2.75e-3)
    assert reference.single_tokens_per_s == pytest.approx(1 / 8e-3)
    assert reference.fit.tokens_per_s(8) == pytest.approx(reference.tokens_per_s)
    assert reference.fit.tokens_per_s(1) == pytest.approx(1 / 8e-3)
    one_client, all_clients = ("load", 8, 1), ("load", 8, 8)
    assert groups.events == [
        ("start", 8, 1),
        one_client,
        ("warm", 8, 8),
        *[one_client] * 3,
        *[all_clients] * 3,  # until the two least agree
    ]
    assert known.of(PLAIN.with_values(n_ubatch=128)) is reference
    assert len(groups.events) == 9
    del known, reference
    gc.collect()
    assert groups.events[9:] == [("end", 8, 1)]


def test_a_configuration_is_compared_in_turns_and_ended(groups: type[Group]) -> None:
    """With 4 slots a token takes 3.5 ms where 8 take 2.75; of the reference itself nothing is started."""
    known = references()
    rate, best = known.measured(PLAIN)
    assert rate == pytest.approx(1 / 2.75e-3 * 2.75 / 3.5)
    assert best.cpu_s == pytest.approx(3.5e-3)
    assert groups.events[9:] == [
        ("start", 4, 1),
        ("warm", 4, 8),
        *[("load", 8, 8), ("load", 4, 8)] * 3,
        ("end", 4, 1),
    ]
    before = len(groups.events)
    assert known.measured(PLAIN.with_values(batch_size=8)) == (
        known.of(PLAIN).tokens_per_s,
        known.of(PLAIN).readings.best,
    )
    assert len(groups.events) == before


def test_a_second_reference_has_the_scale_of_the_first(groups: type[Group]) -> None:
    """Two servers give twice as many tokens/s as one, which is measured again beside them, 1.1 times as quick."""
    known = references()
    first = known.of(PLAIN)
    groups.scripts = staticmethod(
        lambda knobs, n: steady(knobs, n)._replace(tokens_per_s=400.0 if knobs.replicas == 1 else 1000.0)
    )
    second = known.of(PLAIN.with_values(replicas=2))
    assert second.tokens_per_s == pytest.approx(first.tokens_per_s * 1000 / 400)
    assert [event[0] for event in groups.events[9:]].count("start") == 1
    assert ("load", 8, 8) in groups.events[9:]
    assert known.n_in_flight(PLAIN.with_values(replicas=2)) == 4
    assert known.n_in_flight(PLAIN.with_values(replicas=3)) == 3
    assert known.n_in_flight(PLAIN.with_values(batch_size=2)) == 2


def test_references_end_where_memory_lacks_and_start_again(groups: type[Group]) -> None:
    """The reference of 8 slots needs 130 bytes; beside 230 of two servers with 6 slots 300 are too few."""
    known = references(machine_bytes=300)
    known.of(PLAIN)
    two = PLAIN.with_values(replicas=2, batch_size=6)
    groups.events.clear()
    known.of(two)
    assert groups.events[:2] == [("end", 8, 1), ("start", 8, 2)]
    groups.events.clear()
    known.measured(PLAIN)
    assert groups.events[:2] == [("end", 8, 2), ("start", 4, 1)]
    groups.events.clear()
    known.measured(two)  # the second reference is started again, beside which 170 bytes are needed
    assert groups.events[:4] == [("end", 8, 1), ("start", 8, 2), ("warm", 8, 8), ("start", 6, 2)]


def test_the_reference_has_half_the_slots_until_memory_suffices(groups: type[Group]) -> None:
    groups.fails = {8: OutOfMemory("no memory", 5), 4: OutOfMemory("no memory", 2)}
    known = references()
    assert known.of(PLAIN).knobs.batch_size == 2
    assert [event for event in groups.events if event[0] == "start"] == [("start", n, 1) for n in (8, 4, 2)]
    with pytest.raises(Infeasible, match="it needs no less memory than a server with"):
        known.faults.check(PLAIN.with_values(batch_size=5))
    groups.fails = {n: OutOfMemory("no memory", n) for n in (8, 4, 2, 1)}
    none = references()
    for _ in range(2):  # it is tried once
        with pytest.raises(OutOfMemory, match="no memory"):
            none.of(PLAIN)
    assert [event for event in groups.events if event[0] == "start"][3:] == [("start", n, 1) for n in (8, 4, 2, 1)]


def test_threads_that_wait_for_each_other_are_not_tried_further(groups: type[Group]) -> None:
    """One client gets 125 tokens/s from the first, and less than half as many from other threads."""
    known = references()
    known.of(PLAIN)
    for rate, is_refused in ((62.6, False), (62.4, True)):
        groups.scripts = staticmethod(lambda knobs, n, rate=rate: steady(knobs, n)._replace(tokens_per_s=rate))
        more = PLAIN.with_values(session=LlamaCppSession(2 + is_refused))
        if is_refused:
            with pytest.raises(Infeasible, match=r"a server on 3 cores gives one client 62.4 tokens/s, .* 125; try it"):
                known.of(more)
            assert groups.events[-1] == ("end", 8, 1)
            known.faults.check(more)  # it is no fault of its values
        else:
            known.of(more)


def test_a_known_trial_is_the_reference_with_its_rate(groups: type[Group]) -> None:
    known = references()
    flow = live_flow()
    trial = flow._trial(PLAIN, replace(TOKENS, tokens_per_s=500.0), 1.0, Origin.MEASURED)
    known.continue_from(trial)
    reference = known.of(PLAIN.with_values(batch_size=2))
    assert (reference.knobs, reference.tokens_per_s) == (PLAIN, 500.0)
    assert reference.fit.tokens_per_s(4) == pytest.approx(500.0)


def test_a_server_that_fails_under_load_is_ended_and_remembered(groups: type[Group]) -> None:
    def fails(knobs: Knobs, n_clients: int) -> LoadReading:
        if knobs.batch_size == 4 and n_clients == 8:
            raise OutOfMemory("killed", 7)
        return steady(knobs, n_clients)

    known = references()
    known.of(PLAIN)
    groups.scripts = staticmethod(fails)
    with pytest.raises(OutOfMemory, match="killed"):
        known.measured(PLAIN)
    assert groups.events[-1] == ("end", 4, 1)
    with pytest.raises(Infeasible, match=r"no less memory than a server with .*batch_size 4.*: killed"):
        known.faults.check(PLAIN.with_values(batch_size=5))


TOKENS = TokenResult(400.0, 0.01, 0.2)


def live_flow(target: Target | None = None, constraints: tuple[Constraint, ...] = ()) -> LiveFlow:
    """On a machine of four cores with 250 bytes each."""
    setting = SimpleNamespace(
        cluster=CLUSTER,
        graph=SimpleNamespace(layers=(None,) * 3),
        constraints=constraints,
        device_of=lambda _: DEVICE,
    )
    return LiveFlow(cast("Any", setting), cast("Any", target or Target()))


@pytest.mark.parametrize(
    ("knobs", "kind", "message"),
    [
        (PLAIN.with_values(n_ipu=2), Unsupported, "a server is no pipeline of several devices"),
        (PLAIN.with_values(replicas=9), Unsupported, "every server needs a client, got 9 for 8; try more --clients"),
        (PLAIN.with_values(replicas=2), Unsupported, "each of 2 servers has 4 of 8 clients, .* got 4 slots; try"),
        (PLAIN.with_values(replicas=2, batch_size=7), Unsupported, "--batch-size 8, or fewer slots than 4"),
        (PLAIN.with_values(input_tokens=65), Unsupported, "shorter than the 97 tokens of the model's context, got 97"),
        (PLAIN.with_values(batch_size=96), Infeasible, "the server needs 10 B more than this machine has"),
        (PLAIN.with_values(replicas=2, batch_size=46), Infeasible, "the server needs 20 B more than this machine"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(
    knobs: Knobs, kind: type[DoesNotFit], message: str, groups: type[Group]
) -> None:
    flow = live_flow()
    with pytest.raises(kind, match=message):
        flow._check(knobs)
    trial = flow.evaluate(knobs)
    assert not trial.fits
    assert groups.events == []


def test_what_just_fits_is_tried() -> None:
    flow = live_flow()
    for knobs in (
        PLAIN.with_values(replicas=8, batch_size=8),
        PLAIN.with_values(replicas=2, batch_size=3),
        PLAIN.with_values(replicas=2, batch_size=8),
        PLAIN.with_values(batch_size=95),  # 50 + 950 bytes are all
        PLAIN.with_values(input_tokens=64),
    ):
        if knobs.replicas < 8:
            flow._check(knobs)
        else:
            with pytest.raises(Infeasible, match="the server needs 40 B more"):
                flow._check(knobs)


def test_a_forecast_is_of_waves_of_requests(groups: type[Group]) -> None:
    """8 clients on 4 slots are two waves: a token of 4 sequences takes 14 ms of CPU, so of each 14 ms.

    A request waits for half a wave of 32 tokens: 14 ms * (1 + 32 / 2) to the first, and 31 more to the last.
    """
    trial = live_flow().forecast(PLAIN)
    assert (trial.status, trial.origin) == (Status.OK, Origin.ESTIMATED)
    tokens = trial.tokens
    assert tokens.tokens_per_s == pytest.approx(4 / 14e-3)
    assert (tokens.tpot_s, tokens.ttft_s) == pytest.approx((14e-3, 14e-3 * 17))
    assert trial.latency_s == pytest.approx(14e-3 * (17 + 31))
    assert tokens.kv_cache_bytes == 40
    assert trial.estimated_samples_per_s == pytest.approx(tokens.tokens_per_s)
    one_wave = live_flow().forecast(PLAIN.with_values(batch_size=8)).tokens
    assert one_wave.ttft_s == pytest.approx(one_wave.tpot_s)
    two = live_flow().forecast(PLAIN.with_values(replicas=2, batch_size=8)).tokens
    assert two.tpot_s == pytest.approx(2 * 4 / two.tokens_per_s)


def test_a_measurement_has_the_rate_by_comparison_and_the_times_of_its_best_load(groups: type[Group]) -> None:
    flow = live_flow()
    trial = flow.evaluate(PLAIN)
    assert trial.origin is Origin.MEASURED
    assert trial.samples_per_s == pytest.approx(1 / 2.75e-3 * 2.75 / 3.5)
    assert (trial.tokens.tpot_s, trial.tokens.ttft_s, trial.latency_s) == (0.01, 0.2, 0.5)
    assert trial.estimated_samples_per_s == pytest.approx(4 / 14e-3)
    [stage] = flow.best_plan(PLAIN).stages
    assert (stage.layers.start, stage.layers.stop, stage.limit_bytes) == (0, 3, 1000)
    assert stage.forward_cycles == round(14e-3 * 1e9)
    assert (flow.fits(PLAIN), flow.gap(PLAIN)) == (True, 0.0)
    assert flow.timeline(PLAIN, flow.best_plan(PLAIN)).period_cycles == stage.forward_cycles
    groups.scripts = staticmethod(
        lambda knobs, n: steady(knobs, n)._replace(cpu_s=3e-3 if knobs.batch_size == 4 else 4e-3)
    )
    quicker = flow.evaluate(PLAIN)  # 4 ms of the reference are 3 of this
    assert quicker.samples_per_s == pytest.approx(1 / 2.75e-3 * 4 / 3)
    assert quicker.estimated_samples_per_s == trial.estimated_samples_per_s
    bounded = live_flow(constraints=(Constraint("tpot_s < 0.005"),))
    assert bounded.evaluate(PLAIN).status is Status.CONSTRAINED


def test_what_runs_out_of_memory_was_measured_and_what_is_refused_was_not(groups: type[Group]) -> None:
    flow = live_flow()
    flow.forecast(PLAIN)
    groups.fails = {4: OutOfMemory("killed", 7), 3: Unsupported("no such format")}
    killed = flow.evaluate(PLAIN)
    assert (killed.status, killed.reason, killed.excess_bytes) == (Status.OUT_OF_MEMORY, "killed", 7)
    refused = flow.evaluate(PLAIN.with_values(batch_size=3))
    assert (refused.status, refused.reason) == (Status.UNSUPPORTED, "no such format")
    with pytest.raises(Infeasible):
        flow.best_plan(PLAIN.with_values(batch_size=5))
    assert not flow.fits(PLAIN.with_values(batch_size=5))


def test_a_search_continues_from_its_trials(groups: type[Group]) -> None:
    """The best that is known is the reference; what ran out of memory bounds what is tried."""
    before = live_flow()
    slow, fast = (
        before._trial(PLAIN.with_values(batch_size=n), replace(TOKENS, tokens_per_s=100.0 * n), 1.0, Origin.ESTIMATED)
        for n in (2, 3)
    )
    lacking = before._unfit(PLAIN.with_values(batch_size=9), OutOfMemory("killed", 7), before._plan(PLAIN, 0))
    assert lacking.status is Status.OUT_OF_MEMORY
    flow = live_flow()
    flow.continue_from([fast, lacking, slow])
    assert flow._references.of(PLAIN).knobs.batch_size == 3
    with pytest.raises(Infeasible, match="killed"):
        flow._check(PLAIN.with_values(batch_size=10))
    kind, arguments = flow.__reduce__()
    assert kind(*arguments).setting is flow.setting


def test_a_server_takes_and_pays_for_all_its_cores(groups: type[Group]) -> None:
    """Two servers of two cores are four, of 3 dollars an hour each."""
    priced = replace(CLUSTER, devices=(replace(DEVICE, price_per_hour=3.0),) * 4)
    flow = live_flow()
    cast("Any", flow.setting).cluster = priced
    knobs = PLAIN.with_values(replicas=2, batch_size=3, session=LlamaCppSession(2))
    trial = flow.forecast(knobs)
    assert (knobs.n_devices, trial.result.devices.usd_per_hour) == (4, 12.0)
    assert trial.device_samples_per_s == pytest.approx(trial.samples_per_s / 4)
