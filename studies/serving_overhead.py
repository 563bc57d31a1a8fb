"""What a request costs beside the model: `autoauto serve` against FastAPI with ONNX Runtime in its process.

    python studies/serving_overhead.py --requests 2000 --rate 21 --seconds 10

Both serve one small model at batch size 1 from the same core, and get the same requests from one client: first one
after the other, of which the CPU time of all processes of a server is counted, then at random times. FastAPI with
uvicorn (`pip install fastapi uvicorn`) has one endpoint that takes and gives the bytes of a tensor.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, N_LAYERS = 256, 4
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
N_WARM_UP = 50

APPLICATION = """
import sys
import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, Request, Response

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options)
application = FastAPI()


@application.post("/infer")
async def infer(request: Request) -> Response:
    x = np.frombuffer(await request.body(), np.float32).reshape(1, -1)
    (y,) = session.run(None, {"h0": x})
    return Response(y.tobytes(), media_type="application/octet-stream")


uvicorn.run(application, port=int(sys.argv[2]), log_level="warning")
"""


class Target(NamedTuple):
    """A server that runs.

    Attributes:
        name: of its kind.
        address: host and port.
        path, head, headers: of its requests; the body is the head and the bytes of a tensor.
        pid: its process.
    """

    name: str
    address: str
    path: str
    head: bytes
    headers: dict[str, str]
    pid: int

    def cpu_s(self) -> float:
        """CPU time of its process and of those that it has started."""
        return sum(map(_cpu_s, _tree(self.pid)))


class Measured(NamedTuple):
    """What a server took.

    Attributes:
        cpu_ms: CPU time per request.
        closed_ms: median time of requests one after the other.
        open_ms: median and 95th percentile of requests at random times.
    """

    cpu_ms: float
    closed_ms: float
    open_ms: tuple[float, float]


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _tree(int(child))


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS_PER_S


def save_model(path: Path) -> None:
    """Layers of a product and a Relu each."""
    rng, nodes, weights = np.random.default_rng(7), [], []
    for i in range(N_LAYERS):
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"z{i}"], f"matmul{i}"))
        nodes.append(helper.make_node("Relu", [f"z{i}"], [f"h{i + 1}"], f"relu{i}"))
        weight = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / np.float32(WIDTH**0.5)
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
    ends = [helper.make_tensor_value_info(f"h{i}", TensorProto.FLOAT, ["n", WIDTH]) for i in (0, N_LAYERS)]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], weights)
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@contextmanager
def ours(model: Path) -> Iterator[Target]:
    """`autoauto serve` of a plan of one process at batch size 1."""
    command, folder = [sys.executable, "-m", "autoauto"], model.parent / "exported"
    plan = ["--target", "host", "--batch-size", "1", "--estimator", "sum", "--to", "onnx", "--output", str(folder)]
    subprocess.run([*command, "export", str(model), *plan], check=True, stdout=subprocess.DEVNULL)
    server = subprocess.Popen([*command, "serve", str(folder), "--listen", "127.0.0.1:0"], stdout=-1, text=True)
    try:
        assert server.stdout is not None
        lines = iter(server.stdout.readline, "")
        url = next(match for line in lines if (match := re.search(r"http://([^/]+)(\S+?),", line)))
        head = (
            f'{{"inputs": [{{"name": "h0", "shape": [1, {WIDTH}], "datatype": "FP32", '
            f'"parameters": {{"binary_data_size": {4 * WIDTH}}}}}], "parameters": {{"binary_data_output": true}}}}'
        ).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        yield Target("autoauto serve", url[1], f"{url[2]}/infer", head, headers, server.pid)
    finally:
        server.terminate()
        server.wait()


@contextmanager
def fastapi(model: Path) -> Iterator[Target]:
    """FastAPI in one process of uvicorn."""
    port = 20_000 + os.getpid() % 20_000
    server = subprocess.Popen([sys.executable, "-c", APPLICATION, str(model), str(port)])
    try:
        target = Target("FastAPI, ONNX Runtime", f"127.0.0.1:{port}", "/infer", b"", {}, server.pid)
        while server.poll() is None:
            try:
                http.client.HTTPConnection(target.address).connect()
            except ConnectionRefusedError:
                time.sleep(0.05)
            else:
                break
        yield target
    finally:
        server.terminate()
        server.wait()


def measure(target: Target, n_requests: int, rate_per_s: float, seconds: float) -> Measured:
    """Requests one after the other, then at random times."""
    connection = http.client.HTTPConnection(target.address)
    x = np.random.default_rng(0).standard_normal(WIDTH).astype(np.float32)

    def send() -> float:
        start_s = time.perf_counter()
        connection.request("POST", target.path, target.head + x.tobytes(), target.headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return 1000 * (time.perf_counter() - start_s)

    for _ in range(N_WARM_UP):
        send()
    before_s = target.cpu_s()
    closed_ms = [send() for _ in range(n_requests)]
    cpu_ms = 1000 * (target.cpu_s() - before_s) / n_requests
    rng, open_ms, stop_s = random.Random(1), [], time.perf_counter() + seconds
    while time.perf_counter() < stop_s:
        time.sleep(rng.expovariate(rate_per_s))
        open_ms.append(send())
    return Measured(cpu_ms, median(closed_ms), (median(open_ms), float(np.percentile(open_ms, 95))))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both in turns, and print the ratios of their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--rate", type=float, default=21.0, help="requests/s at random times")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args(argv)
    kinds = [ours] + [fastapi] * all(map(find_spec, ("fastapi", "uvicorn")))
    results: dict[str, list[Measured]] = {}
    with TemporaryDirectory() as temporary:
        for turn in range(args.turns):
            for kind in kinds:
                folder = Path(temporary) / f"{kind.__name__}-{turn}"
                folder.mkdir()
                save_model(folder / "small.onnx")
                with kind(folder / "small.onnx") as target:
                    measured = measure(target, args.requests, args.rate, args.seconds)
                results.setdefault(target.name, []).append(measured)
    print(f"{'measured':<24}{'CPU ms':>9}{'p50 ms':>9}{f'p50 at {args.rate:g}/s':>13}{'p95':>8}")
    rows = {}
    for name, turns in results.items():
        each = zip(*((m.cpu_ms, m.closed_ms, *m.open_ms) for m in turns), strict=True)
        rows[name] = cpu, closed, p50, p95 = [median(values) for values in each]
        print(f"{name:<24}{cpu:>9.2f}{closed:>9.2f}{p50:>13.2f}{p95:>8.2f}")
    if len(rows) == 2:
        first, second = rows.values()
        ratios = [a / b for a, b in zip(first, second, strict=True)]
        print(f"{'ratio':<24}{ratios[0]:>9.2f}{ratios[1]:>9.2f}{ratios[2]:>13.2f}{ratios[3]:>8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
