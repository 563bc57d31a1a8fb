"""Serve a small model, and try what a server must stand: many clients, killed processes, many starts.

    python studies/serving.py --requests 10000 --clients 8 --starts 20

The clients are `tritonclient[http]`, each in a thread of its own. A request has 1 to 9 samples of random numbers; its
answer is compared with what NumPy computes. So an answer that belongs to another request is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autoauto.records.units import Array

WIDTH, N_LAYERS, BATCH_SIZE = 64, 4, 8
WEIGHTS = np.random.default_rng(7).standard_normal((N_LAYERS, WIDTH, WIDTH)).astype(np.float32) / np.float32(WIDTH**0.5)
COMMAND = [sys.executable, "-m", "autoauto"]


def save_model(path: Path) -> None:
    """Layers of a product and a Relu each."""
    nodes = []
    for i in range(N_LAYERS):
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"z{i}"], f"matmul{i}"))
        nodes.append(helper.make_node("Relu", [f"z{i}"], [f"h{i + 1}"], f"relu{i}"))
    weights = [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(WEIGHTS)]
    ends = [helper.make_tensor_value_info(f"h{i}", TensorProto.FLOAT, ["n", WIDTH]) for i in (0, N_LAYERS)]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], weights)
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def expected(x: Array) -> Array:
    """What the model computes."""
    for weight in WEIGHTS:
        x = np.maximum(x @ weight, 0)
    return x


class Served:
    """A server of the exported model; `url` is that of its model."""

    def __init__(self, folder: Path) -> None:
        command = [*COMMAND, "serve", str(folder), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        address = re.search(r"http://([^/]+)", line)
        if address is None:
            raise SystemExit(self.process.communicate()[1])
        self.address = address[1]

    @property
    def stages(self) -> list[int]:
        """The processes of its stages."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        return sorted(c for c in children if b"resource_tracker" not in Path(f"/proc/{c}/cmdline").read_bytes())

    def metric(self, name: str) -> int:
        """One of its counters."""
        with urlopen(f"http://{self.address}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(name))

    def end(self, number: int) -> list[int]:
        """End it by a signal; the processes that it leaves behind."""
        stages = self.stages
        self.process.send_signal(number)
        self.process.communicate()
        give_up_s = time.monotonic() + 10.0
        while (left := [pid for pid in stages if is_running(pid)]) and time.monotonic() < give_up_s:
            time.sleep(0.01)
        return left


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """A server that ends with the context."""
    server = Served(folder)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


def send(address: str, seed: int, n_requests: int) -> Counter[str]:
    """The requests of one client, one after the other, by what came of each; samples that were answered, too."""
    from tritonclient import http

    rng, results = np.random.default_rng(seed), Counter[str]()
    client = http.InferenceServerClient(address)
    for number in range(n_requests):
        x = rng.standard_normal((rng.integers(1, 10), WIDTH)).astype(np.float32)
        entry = http.InferInput("h0", x.shape, "FP32")
        entry.set_data_from_numpy(x)
        try:
            answer = client.infer("small", [entry], request_id=f"{seed}.{number}")
        except http.InferenceServerException as error:
            results[str(error.status())] += 1
            time.sleep(0.01)
            continue
        is_own = answer.get_response()["id"] == f"{seed}.{number}"
        outputs = answer.as_numpy(f"h{N_LAYERS}")
        is_right = outputs.shape == x.shape and np.allclose(outputs, expected(x), rtol=1e-4, atol=1e-5)
        results["right" if is_own and is_right else "wrong"] += 1
        results["samples"] += len(x)
    client.close()
    return results


def send_all(server: Served, n_clients: int, n_requests: int) -> Iterator[Any]:
    """All clients at once, as futures."""
    with ThreadPoolExecutor(n_clients) as pool:
        shares = [n_requests // n_clients + (client < n_requests % n_clients) for client in range(n_clients)]
        yield [pool.submit(send, server.address, client, share) for client, share in enumerate(shares)]


def try_requests(folder: Path, n_clients: int, n_requests: int) -> bool:
    """Every request has its own answer, once."""
    with served(folder) as server:
        for futures in send_all(server, n_clients, n_requests):
            results = sum((future.result() for future in futures), Counter[str]())
        n_answers, n_samples = (
            server.metric('autoauto_requests_total{code="200"}'),
            server.metric("autoauto_samples_total"),
        )
        n_batches = server.metric("autoauto_micro_batches_total")
    others = n_requests - results["right"] - results["wrong"]
    print(
        f"{n_requests:,} requests of {n_clients} clients: {results['right']:,} right, "
        f"{results['wrong']} wrong, {others} lost"
    )
    print(
        f"the server counted {n_answers:,} answers and {n_samples:,} samples, {n_samples / n_batches:.1f} a micro-batch"
    )
    return results["right"] == n_requests == n_answers and n_samples == results["samples"]


def try_kills(folder: Path, n_clients: int, n_requests: int) -> bool:
    """While a stage is killed there are right answers and 503s, nothing else; afterwards right answers only."""
    with served(folder) as server:
        for futures in send_all(server, n_clients, n_requests):
            while server.metric("autoauto_samples_total") < n_requests:
                time.sleep(0.01)
            os.kill(server.stages[-1], signal.SIGKILL)
            results = sum((future.result() for future in futures), Counter[str]())
        while not server.metric("autoauto_ready"):
            time.sleep(0.01)
        after = send(server.address, 99, 10)
    del results["samples"]
    shown = ", ".join(f"{n:,} {what}" for what, n in sorted(results.items()))
    print(f"a killed stage: {shown}; then {after['right']} of 10 right")
    return {*results} <= {"right", "503"} and after["right"] == 10


def try_starts(folder: Path, n_starts: int) -> bool:
    """Servers that end well and servers that are killed leave nothing."""
    before, left = shared_memory(), 0
    for number in range(n_starts):
        with served(folder) as server:
            send(server.address, number, 3)
            left += len(server.end(signal.SIGKILL if number % 2 else signal.SIGTERM))
    segments = len(shared_memory() - before)
    print(f"{n_starts} starts: {left} processes left, {segments} segments of shared memory left")
    return left == segments == 0


def shared_memory() -> set[str]:
    """The segments with a name; those without one end with the last process that has them."""
    return {entry for entry in os.listdir("/dev/shm") if "autoauto" in entry or entry.startswith("psm_")}


def main(argv: Sequence[str] | None = None) -> int:
    """Try all; 0 when all went well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--starts", type=int, default=20)
    args = parser.parse_args(argv)
    with TemporaryDirectory() as temporary:
        save_model(Path(temporary) / "small.onnx")
        folder = Path(temporary) / "folder"
        plan = ["--target", "host", "--batch-size", str(BATCH_SIZE), "--estimator", "sum"]
        export = [*COMMAND, "export", f"{temporary}/small.onnx", *plan, "--to", "onnx", "--output", str(folder)]
        subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
        outcomes = [
            try_requests(folder, args.clients, args.requests),
            try_kills(folder, args.clients, args.requests // 5),
            try_starts(folder, args.starts),
        ]
    return 0 if all(outcomes) else 2


if __name__ == "__main__":
    sys.exit(main())
