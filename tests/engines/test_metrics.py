"""What engines say of themselves, in their own words."""

import pytest

from autoauto.engines.metrics import ServerState
from autoauto.engines.registry import server_state

VLLM = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1e+06
"""
SGLANG = """
sglang:num_running_reqs{model_name="m"} 7
sglang:num_queue_reqs{model_name="m"} 1
sglang:token_usage{model_name="m"} 0.75
"""
LLAMA_CPP = "llamacpp:requests_processing 4\nllamacpp:requests_deferred 12\nllamacpp:tokens_predicted_total 438\n"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (VLLM, ServerState("vLLM", 7, 2, 0.5, 1, 1_000_000)),
        (VLLM.replace("kv_cache_usage", "gpu_cache_usage"), ServerState("vLLM", 7, 2, 0.5, 1, 1_000_000)),
        (SGLANG, ServerState("SGLang", 7, 1, 0.75, None, None)),
        (LLAMA_CPP, ServerState("llama.cpp", 4, 12, None, None, 438)),
        ("process_cpu_seconds_total 3\n", None),
        ("", None),
    ],
)
def test_an_engine_is_known_by_its_names(text: str, state: ServerState | None) -> None:
    assert server_state(text) == state


def test_what_is_no_text_of_metrics_is_refused() -> None:
    with pytest.raises(ValueError, match=r".+"):
        server_state("<html>\n<a href='x'>\n")
