"""The command line of llama.cpp's server, its memory, and why it does not come up."""

import pytest

from autoauto.engines.llama_cpp import (
    CacheType,
    FlashAttention,
    LlamaServerOptions,
    context_tokens,
    kv_cache_bytes,
    read_command,
    server_command,
    why,
)
from autoauto.records.costs.decoder import Decoder, Workload
from autoauto.records.errors import BadInput

PLAIN = LlamaServerOptions("m.gguf", 8, 2, 4, 2048, 512, 2048)
DECODER = Decoder("m", "llama", 512, 7, 8, 4, 64, 1408, 1000, is_tied=False)


def test_threads_of_a_command_do_not_spin() -> None:
    command = " ".join(server_command(PLAIN))
    assert command == (
        "llama-server -m m.gguf --parallel 8 --threads 2 --threads-batch 4 --batch-size 2048 --ubatch-size 512 "
        "--ctx-size 2048 --poll 0"
    )


@pytest.mark.parametrize(
    "options",
    [PLAIN, PLAIN._replace(flash_attention=FlashAttention.ON, cache_type=CacheType.Q8_0), PLAIN._replace(poll=50)],
)
def test_a_command_says_all_options(options: LlamaServerOptions) -> None:
    assert read_command(server_command(options)) == options


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(BadInput, match="--paralel"):
        read_command((*server_command(PLAIN), "--paralel", "3"))


@pytest.mark.parametrize(
    ("tokens", "n_slots", "n_ctx"), [((64, 32), 4, 1024), ((200, 56), 2, 1024), ((255, 1), 1, 512)]
)
def test_every_slot_has_room_for_a_request(tokens: tuple[int, int], n_slots: int, n_ctx: int) -> None:
    requests = Workload(*tokens)
    assert context_tokens(n_slots, requests) == n_ctx
    assert n_ctx // n_slots > requests.max_length


def test_keys_and_values_of_a_context() -> None:
    assert kv_cache_bytes(DECODER, 1024, CacheType.F16) == 1024 * 7 * 2 * (4 * 64) * 2
    assert kv_cache_bytes(DECODER, 1024, CacheType.Q8_0) == 1024 * 7 * 2 * (4 * 64) * 34 // 32


def test_the_reason_is_the_last_line_that_has_one() -> None:
    log = ("loading", "llama_model_load: error loading model: tensor 'x' data is not within the file bounds", "exiting")
    assert why(log).startswith("llama_model_load: error loading model")
    assert why(("only this",)) == "only this"
    assert why(()) == "it left no log"
