"""Names of knobs, configurations, periods and timelines."""

from dataclasses import replace

from autoauto.exporters.exporter import Performance
from autoauto.records.costs.blocks import Experts
from autoauto.records.costs.decoder import Checkpoint, Decoder, DecoderFile
from autoauto.records.schedule import Order
from autoauto.records.target import Origin
from autoauto.report.style import format_value
from autoauto.report.wording import (
    clock_of,
    configuration,
    counted,
    decoder_lines,
    groups_text,
    headline,
    label,
    measured_ratio,
    origin_of,
    outside_text,
    prefill_text,
    ran_on_devices,
    serving_text,
    shown_clock,
    shown_knobs,
    speed_of,
    tie_text,
    time_text,
    trials_origin,
    varying_knobs,
)
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.study_summary import KnobChoice, LeftOut, StudySummary
from tests.report.engines import KNOBS, LARGE, NO_ANSWER, OTHER, RECORD, TRIAL, summary_of
from tests.report.made import made


def test_only_what_varies_is_shown(summary: StudySummary) -> None:
    assert varying_knobs(summary) == ["n_ipu", "memory_proportion"]
    orders = (Order.GPIPE, Order.ONE_F_ONE_B)
    trials = tuple(
        made(i, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1, schedule=order, recompute=False, n_micro_batches=8))
        for i, order in enumerate(orders)
    )
    training = replace(summary, trials=trials)
    assert varying_knobs(training) == ["schedule"]
    assert shown_knobs(training) == ["n_ipu", "memory_proportion", "schedule"]


def test_a_configuration_has_the_knobs_that_matter() -> None:
    training = Knobs(
        n_ipu=2, memory_proportion=0.6, batch_size=4, schedule=Order.GPIPE, recompute=True, n_micro_batches=8
    )
    trains = "n_ipu 2, memory_proportion 0.6, schedule gpipe, recompute on, n_micro_batches 8, batch_size 4"
    assert configuration(training) == trains
    phased = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4, n_micro_batches=16, strategy=Strategy.PHASED)
    assert configuration(phased) == "n_ipu 1, memory_proportion 0.6, n_micro_batches 16, strategy phased, batch_size 4"
    assert (
        configuration(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4, replicas=2))
        == "n_ipu 2, replicas 2, memory_proportion 0.6, batch_size 4"
    )
    assert label(training, ["memory_proportion", "schedule"]) == "gpipe, memory 0.6"
    assert (label(Knobs(2, 8), ["memory_proportion"]), label(Knobs(2, 8), [])) == ("memory 0.6", "all")


def test_a_cost_model_is_not_called_hardware(summary: StudySummary) -> None:
    """8 samples take 2,300 cycles, and 200 samples a second: 57,500 cycles a second."""
    winner = summary.finalists[0]
    assert (origin_of(summary), ran_on_devices(summary)) == ("modelled", False)
    assert clock_of(summary, winner) == 57_500.0


def test_a_plan_that_devices_ran_has_no_clock(summary: StudySummary) -> None:
    ran, winner = replace(summary, attributes={"target": "host 1", "origin": "measured"}), summary.finalists[0]
    assert (origin_of(ran), ran_on_devices(ran)) == ("measured", True)
    assert clock_of(ran, winner) is None


def test_a_headline_has_the_throughput_of_the_cluster_a_replica_and_a_device() -> None:
    def shown(knobs: Knobs) -> str:
        return headline(made(0, knobs, 1200.0), Origin.MEASURED)

    assert shown(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=8)) == "1,200.0 samples/s on 1 device, measured"
    assert shown(Knobs(n_ipu=4, memory_proportion=0.6, batch_size=8)) == (
        "1,200.0 samples/s on 4 devices (one pipeline of 4 devices; 300.0 a device), measured"
    )
    assert shown(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=8, replicas=4)) == (
        "1,200.0 samples/s on 4 devices (4 replicas of 1 device; 300.0 a device), measured"
    )
    assert shown(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8, replicas=3)) == (
        "1,200.0 samples/s on 6 devices (3 replicas of 2 devices; 400.0 a replica, 200.0 a device), measured"
    )
    assert shown(Knobs(n_ipu=1, memory_proportion=1.0, batch_size=8, cores_per_device=3)) == (
        "1,200.0 samples/s on 3 cores (one session of 3 cores; 400.0 a core), measured"
    )
    phased = Knobs(n_ipu=4, memory_proportion=0.6, batch_size=8, n_micro_batches=16, strategy=Strategy.PHASED)
    assert shown(phased) == "1,200.0 samples/s on 4 devices (the same phases on each; 300.0 a device), measured"


def test_a_throughput_that_rounds_to_nothing_has_its_digits() -> None:
    """A model that streams its weights over a slow link gives a sample in some minutes, which is not 0.0 a second."""
    slow = made(0, Knobs(n_ipu=4, memory_proportion=0.6, batch_size=8, replicas=2), 0.01234)
    assert headline(slow, Origin.MODELLED) == (
        "0.0123 samples/s on 8 devices (2 replicas of 4 devices; 0.00617 a replica, 0.00154 a device), modelled"
    )
    assert speed_of(0.004567) == "0.00457"
    assert format_value("tokens_per_s", 0.004567) == "0.00457"
    assert str(Performance(0.004567, Origin.MODELLED)) == "0.00457 samples/s (modelled)"


def test_groups_name_how_they_split_a_model_and_those_of_prompts_beside_them() -> None:
    ranks = KNOBS.with_values(attention_data_parallel=4, expert_parallel=8, n_ipu=2)
    assert groups_text(ranks) == (
        "tensor parallel 2, attention data parallel 4, expert parallel 8 x 2 stages x 2 replicas"
    )
    assert serving_text(ranks) == "vllm bf16 TP2 EP8 PP2 x2 b16"
    pools = KNOBS.with_values(prefill_workers=3, prefill_tensor_parallel=4, prefill_expert_parallel=4)
    assert groups_text(pools).partition(", and ")[2] == "tensor parallel 4, expert parallel 4 x 3 prefill workers"
    assert serving_text(pools) == "vllm bf16 TP2 PP1 x2 b16 +3xTP4"
    busy = replace(TRIAL.tokens, prefill_busy_share=0.625, kv_transfer_s=0.0125)
    trial = replace(TRIAL, knobs=pools.with_values(prefill_batch_size=2), result=replace(TRIAL.result, of_mode=busy))
    assert prefill_text(trial) == "2 prompts at a time, 62% of the time; KV cache moves in 12.5 ms"


def test_the_headline_of_text_has_the_interval_of_our_error_or_of_measurements() -> None:
    """400 and 625 ms between 50 ones of 1,000 tokens/s are 1,250 and 800."""
    groups = "tensor parallel 2 x 1 stage x 2 replicas"
    assert headline(TRIAL, Origin.MODELLED) == f"1,000 tokens/s (800 to 1,250), {groups}, modelled"
    assert headline(TRIAL, None, 50.0) == f"1,000 tokens/s (950 to 1,050), {groups}"


def test_numbers_are_written_to_what_is_known_of_them() -> None:
    assert [time_text(seconds) for seconds in (0.0469, 0.9994, 0.9995, 12.34, 1234.0)] == [
        "46.9 ms",
        "999 ms",
        "1 s",
        "12.3 s",
        "1,230 s",
    ]
    assert [speed_of(speed) for speed in (999.94, 1000.0)] == ["999.9", "1,000"]
    assert [counted(n, "stage") for n in (0, 1, 2)] == ["0 stage", "1 stage", "2 stages"]
    assert counted(1000, "micro-batch", "es") == "1,000 micro-batches"


def test_what_engines_measured_of_another_value_is_compared_with_the_answer() -> None:
    """790 of 800 tokens/s."""
    measured = summary_of(RECORD)
    other, large = (KnobChoice("engine", "x", knobs, 1.0, 1.0) for knobs in (OTHER, LARGE))
    assert measured_ratio(measured, other) == 790 / 800
    assert measured_ratio(measured, large) is None  # it was started, and ran out of memory
    assert measured_ratio(summary_of(NO_ANSWER), other) is None
    assert measured_ratio(summary_of(None), other) is None


def test_ties_are_other_values_that_were_searched() -> None:
    tie = KnobChoice("engine", "sglang", OTHER, 990.0, 0.994, is_tie=True)
    others = (tie._replace(is_tie=False), tie._replace(is_searched=False), tie._replace(name="batch_size"))
    assert tie_text([*others, tie]) == "not told apart from it: engine sglang (x 0.99)"
    assert tie_text(others) == ""


def test_trials_that_are_left_out_are_counted(summary: StudySummary) -> None:
    texts = {
        (0, 0): "",
        (1, 0): "1 further trial of the study lies outside the space of its last search",
        (2, 0): "2 further trials of the study lie outside the space of its last search",
        (0, 1): "1 trial is left out: of another program, or edited",
        (0, 1200): "1,200 trials are left out: of another program, or edited",
    }
    for counts, text in texts.items():
        assert outside_text(replace(summary, left_out=LeftOut(*counts))) == text
    both = outside_text(replace(summary, left_out=LeftOut(1, 1)))
    assert both == f"{texts[1, 0]}; {texts[0, 1]}"


def test_a_clock_that_is_stored_is_shown(summary: StudySummary) -> None:
    assert shown_clock(summary) is None
    assert shown_clock(replace(summary, attributes={"shown_clock_hz": "2e9"})) == 2e9
    assert shown_clock(replace(summary, finalists=())) is None
    runs = summary.finalists[0].with_values(knobs=Knobs(n_ipu=1, batch_size=8, runtime="onnxruntime"))
    assert shown_clock(replace(summary, finalists=(runs,))) == 1e9


def test_origins_of_trials_are_named_once(summary: StudySummary) -> None:
    measured = tuple(replace(trial, origin=Origin.MEASURED) for trial in summary.trials[:2])
    assert trials_origin(summary) == "modelled"
    assert trials_origin(replace(summary, trials=(*measured, *summary.trials[2:]))) == "modelled and measured"


def test_the_clock_of_a_training_step_is_that_of_its_makespan(summary: StudySummary) -> None:
    """Four micro-batches of two samples in 4,000 cycles, of which 400 are done a second: 200,000 cycles."""
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2, schedule=Order.GPIPE, n_micro_batches=4)
    winner = summary.finalists[0].with_values(knobs=knobs, samples_per_s=400.0, makespan_cycles=4000.0)
    assert clock_of(summary, winner) == 400 * 4000 / 8
    assert winner.measured is not None
    measured = replace(winner.measured, host_cycles=1500)  # type: ignore[arg-type]
    slow_host = replace(winner, measured=measured)
    assert clock_of(summary, slow_host) == 400 * 4 * 1500 / 8


def test_a_decoder_is_described_in_three_lines() -> None:
    checkpoint = Checkpoint(max_length=4096)
    small = Decoder("small", "LlamaForCausalLM", 64, 4, 8, 2, 8, 9600, 1000, is_tied=True, checkpoint=checkpoint)
    first, blocks, tokens = decoder_lines(DecoderFile("f", small, "q4_k", 3 * 2**30, "c"))
    assert first == "small: a decoder of architecture LlamaForCausalLM, most weights in q4_k, 3.0 GiB"
    assert blocks == "blocks: 4, 64 wide; 8 heads of 8, 2 of keys and values; 9,600 wide between"
    assert tokens == "tokens: 1,000 in the vocabulary, sequences of up to 4,096, one matrix for embedding and head"
    mixture = replace(small, experts=Experts(8, 2, 3200), is_tied=False, checkpoint=Checkpoint())
    _, blocks, tokens = decoder_lines(DecoderFile("f", mixture, "q4_k", 1, "c"))
    assert blocks.endswith("; 8 experts 3,200 wide, 2 of them for a token")
    assert tokens == "tokens: 1,000 in the vocabulary"
