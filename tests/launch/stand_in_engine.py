"""A stand-in for a serving engine: a process that reads vLLM's or SGLang's options and speaks their protocol.

    python stand_in_engine.py vllm serve MODEL --port P ...

It computes nothing: tokens come at times of its own, for which a file in the variable `STAND_IN` says what is true and
what goes wrong. The file is JSON:

    step_s        of a step of n sequences: step_s x (1 + n / 8) / tensor-parallel size, by default 0.002
    bend          a step of a group of n GPUs takes n ** bend times as long
    most          sequences beyond which the engine runs out of memory when it starts
    refuses       an option that it does not have
    dies_after    tokens after which the process ends
    wrong_tokens  tokens that it counts too many in an answer
    names         the model as it calls it
    late          True: it comes up and never says that it is ready
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from aiohttp import web

TRUTH = json.loads(Path(os.environ["STAND_IN"]).read_text(encoding="utf-8")) if "STAND_IN" in os.environ else {}
_OPTIONS = {
    "vllm": ("--port", "--max-num-seqs", "--tensor-parallel-size", "model"),
    "sglang": ("--port", "--max-running-requests", "--tp-size", "--model-path"),
}


def main() -> None:
    """Read the options as the engine does, and serve."""
    from autoauto.engines.sglang import ENGINE as SGLANG
    from autoauto.engines.vllm import ENGINE as VLLM

    words = sys.argv[1:]
    name = "vllm" if words[0] == "vllm" else "sglang"
    if (refused := TRUTH.get("refuses")) in words:
        sys.exit(f"{name} serve: error: unrecognized arguments: {refused}")
    given = {"vllm": VLLM, "sglang": SGLANG}[name].launcher.syntax.parse(words)
    port, most, groups, model = (given[option] for option in _OPTIONS[name])
    _note(f"start {os.getpid()} {most}")
    if most > TRUTH.get("most", most):
        print("INFO loading weights", file=sys.stderr)
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", file=sys.stderr)
        sys.exit(1)
    engine = Engine(model, most, groups)
    app = web.Application()
    app.router.add_get("/health", engine.health)
    app.router.add_get("/health_generate", engine.health)
    app.router.add_get("/v1/models", engine.models)
    app.router.add_get("/metrics", engine.metrics)
    app.router.add_post("/v1/completions", engine.generate)
    web.run_app(app, host="0.0.0.0", port=port, print=None, reuse_address=True)


def _note(line: str) -> None:
    """A line in the file that tests read: which process was started, with how many sequences."""
    with open(os.environ["STAND_IN"] + ".log", "a", encoding="utf-8") as file:
        file.write(line + "\n")


class Engine:
    """The state of the server."""

    def __init__(self, model: str, most: int, groups: int) -> None:
        self._model, self._most, self._groups = TRUTH.get("names", model), most, groups
        self._running = asyncio.Semaphore(most)
        self._n_running = self._n_tokens = 0

    @property
    def step_s(self) -> float:
        """Of all sequences that run."""
        scale = self._groups ** TRUTH.get("bend", 0.0) / self._groups
        return float(TRUTH.get("step_s", 0.002) * scale * (1 + self._n_running / 8))

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if TRUTH.get("late") else 200)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self._model, "object": "model"}]})

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            text=f'vllm:num_requests_running{{engine="0"}} {self._n_running}\n'
            'vllm:num_requests_waiting{engine="0"} 0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
            f'vllm:generation_tokens_total{{engine="0"}} {self._n_tokens}\n'
        )

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async with self._running:
            self._n_running += 1
            try:
                await self._stream(response, body)
            finally:
                self._n_running -= 1
        return response

    async def _stream(self, response: web.StreamResponse, body: dict[str, object]) -> None:
        n_tokens = int(str(body["max_tokens"]))
        for number in range(n_tokens):
            await asyncio.sleep(self.step_s)
            self._n_tokens += 1
            if self._n_tokens > TRUTH.get("dies_after", float("inf")):
                print("RuntimeError: CUDA error: an illegal memory access was encountered", file=sys.stderr, flush=True)
                os._exit(1)
            choice = {"index": 0, "text": "a", "finish_reason": "length" if number == n_tokens - 1 else None}
            await response.write(_event(choices=[choice]))
        prompt = body["prompt"]
        assert isinstance(prompt, list)
        counted = n_tokens + TRUTH.get("wrong_tokens", 0)
        usage = {"completion_tokens": counted, "prompt_tokens": len(prompt)}
        await response.write(_event(choices=[], usage=usage) + b"data: [DONE]\n\n")
        await response.write_eof()


def _event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


if __name__ == "__main__":
    main()
