"""A server of searches under load: many clients with random kills, a large study, and many requests.

    python studies/server_load.py [--storage URL] [--clients 50] [--searches 20] [--common 16] [--kill-s 5]
                                  [--trials 10000] [--others 10000] [--gets 300] [--requests 50000]

Every client is an owner of its own, and asks for searches of one configuration on the ipu target; so many of them are
common to all. Two workers run them, one that has the database and one that has the server only. Meanwhile the server, a
worker, or the connections of a PostgreSQL database are killed at random. Then every search must have finished, be seen
by those who asked for it and nobody else, and have each configuration once. Last, a user with five searches lists them
where others have many.

Times are wall time and those of one run; on a busy machine only their ratio to that of an empty answer is meaningful.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from secrets import token_hex
from statistics import quantiles
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import create_trial
from sqlalchemy import Connection, text, update

from autoauto.server.client import Client, Refused, connect
from autoauto.server.store.tables import HOLDERS, SEARCHES, ServiceDatabase
from autoauto.server.store.trials import study_name
from autoauto.server.store.users import Role, create_token

PROGRAM = [sys.executable, "-m", "autoauto"]
KILLED = ("server", "worker", "worker of the server", "connections")
N_ROUNDS = 10


class RunningSystem:
    """A server and two workers in processes of their own, which are started again when they are killed."""

    def __init__(self, storage: str, folder: Path) -> None:
        self.storage, self._folder = storage, folder
        self.database = ServiceDatabase(storage)
        self._worker_token = create_token(self.database, "machine", Role.WORKER)
        self._listen = "127.0.0.1:0"
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.n_killed: dict[str, int] = dict.fromkeys(KILLED, 0)
        self.url = self.start_server()

    def start_server(self) -> str:
        """Start the server, where it was before; returns its URL."""
        words = ["server", "--no-worker", "--storage", self.storage, "--listen", self._listen]
        server = self._start("server", words, stdout=subprocess.PIPE)
        assert server.stdout is not None
        url = re.search("https?://[^,]*", server.stdout.readline())
        assert url is not None, (self._folder / "server.log").read_text()
        self._listen = str(urlsplit(url[0]).netloc)
        return url[0]

    def start_workers(self) -> None:
        """Start those that do not run."""
        for name, where in (("worker", ["--storage", self.storage]), ("worker of the server", ["--server", self.url])):
            if name not in self.processes or self.processes[name].poll() is not None:
                self._start(name, ["worker", *where], stdout=subprocess.DEVNULL)

    def _start(self, name: str, words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "AUTOAUTO_TOKEN": self._worker_token}
        with (self._folder / f"{name.replace(' ', '-')}.log").open("a") as log:
            process = subprocess.Popen([*PROGRAM, *words], stderr=log, text=True, env=environment, **options)
        self.processes[name] = process
        return process

    def kill_one(self, chance: random.Random) -> None:
        """Kill something, and start it again."""
        what = chance.choice(KILLED[:3] if self.database.file else KILLED)
        self.n_killed[what] += 1
        if what == "connections":
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            self.database.write(
                lambda connection: connection.execute(text(f"{others} AND pid <> pg_backend_pid()")).all()
            )
            return
        self._end(what)
        if what == "server":
            self.start_server()
        self.start_workers()

    def client(self, name: str, role: Role = Role.SUBMITTER) -> Client:
        """A client with a new token."""
        return connect(self.url, create_token(self.database, name, role))

    def close(self) -> None:
        """End all processes."""
        for name in self.processes:
            self._end(name)
        self.database.close()

    def _end(self, name: str) -> None:
        with self.processes[name] as process:  # which closes its pipe
            process.kill()


class Crowd(NamedTuple):
    """What many clients saw.

    Attributes:
        n_distinct: searches that differ.
        n_lost: those that have not finished, or that their owner does not see.
        n_doubled: configurations that were tried twice in one search, and requests with two searches.
        n_visible: searches that another owner saw.
        seconds: until all had finished.
    """

    n_distinct: int
    n_lost: int
    n_doubled: int
    n_visible: int
    seconds: float


def wanted(client: int, number: int, n_common: int) -> dict[str, Any]:
    """A search of one configuration; the first `n_common` are the same for all clients."""
    which = number if number < n_common else n_common + 20 * client + number
    batch_size, proportion = 1 + which % 16, round(0.3 + which // 16 / 1000, 4)
    space = {"n_ipu": [1], "replicas": [1], "batch_size": [batch_size], "memory_proportion": [proportion]}
    return {"cluster": "c600", "space": space, "repeats": 0}


def crowd(system: RunningSystem, n_clients: int, n_searches: int, n_common: int) -> Crowd:
    """Let many clients ask for searches at once, and see what they get."""
    start_s = perf_counter()
    clients = [system.client(f"owner{number}") for number in range(n_clients)]

    def ask(number: int) -> list[str]:
        searches = [clients[number].search(**wanted(number, each, n_common)) for each in range(n_searches)]
        return [search.id for search in searches if search.wait()["state"] == "finished"]

    with ThreadPoolExecutor(n_clients) as pool:
        ids = list(pool.map(ask, range(n_clients)))
    seconds = perf_counter() - start_s
    seen = [{search["id"] for search in client.searches()} for client in clients]
    asked = {search_id for of_client in ids for search_id in of_client}
    n_wanted = len({json.dumps(wanted(n, each, n_common)) for n in range(n_clients) for each in range(n_searches)})
    n_lost = n_clients * n_searches - sum(len(set(a) & b) for a, b in zip(ids, seen, strict=True))
    admin = system.client("root", Role.ADMIN)
    doubled = sum(n_doubled(admin, each) for each in asked)
    n_visible = sum(len(b - set(a)) for a, b in zip(ids, seen, strict=True)) + n_readable(clients, ids)
    return Crowd(len(asked), n_lost, doubled + len(asked) - n_wanted, n_visible, seconds)


def n_doubled(admin: Client, search_id: str) -> int:
    """How many trials of a search have the configuration of another."""
    trials = [(each["batch_size"], each["memory_proportion"]) for each in admin.trials(search_id)]
    return len(trials) - len(set(trials)) if trials else 1


def n_readable(clients: Sequence[Client], ids: Sequence[Sequence[str]]) -> int:
    """How many searches of the neighbour's own each client can read."""
    n_read = 0
    for number, client in enumerate(clients):
        for search_id in set(ids[number - 1]) - set(ids[number]):
            try:
                client.ask("GET", f"/v1/searches/{search_id}")
            except Refused:
                continue
            n_read += 1
    return n_read


def under_kills(system: RunningSystem, every_s: float, work: Callable[[], Crowd]) -> Crowd:
    """Work while something is killed every few seconds; 0 for never."""
    has_ended, chance = threading.Event(), random.Random(7)

    def kill() -> None:
        while every_s and not has_ended.wait(every_s * chance.uniform(0.5, 1.5)):
            system.kill_one(chance)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        return work()
    finally:
        has_ended.set()
        killer.join()


def large_study(system: RunningSystem, n_trials: int) -> str:
    """A search that has finished with so many trials; returns its id."""
    client = system.client("large", Role.ADMIN)
    search = client.search(cluster="c600", space={"n_ipu": [1], "batch_size": [4]}, labels={"nobody": "has"})
    studies = system.database.studies
    study_id = studies.create_new_study([StudyDirection.MAXIMIZE], study_name(search.id))
    ranges: dict[str, BaseDistribution] = dict.fromkeys(("n_ipu", "batch_size"), IntDistribution(1, 10**6))
    ranges |= {"memory_proportion": FloatDistribution(0, 1)}
    for number in range(n_trials):
        params = {"n_ipu": 1, "memory_proportion": 0.5, "batch_size": number + 1}
        facts = {"status": "ok", "samples_per_s": 1000.0 + number, "latency_s": 0.001, "device_bytes": 900_000_000}
        stages = {"stages": [{"first": 0, "end": 121, "cycles": 90_000}] * 4}
        trial = create_trial(value=1.0, params=params, distributions=ranges, user_attrs=facts, system_attrs=stages)
        studies.create_new_trial(study_id, trial)
    ended = update(SEARCHES).where(SEARCHES.c.id == search.id).values(state="finished", n_trials=n_trials)
    system.database.write(lambda connection: connection.execute(ended))
    return search.id


def searches_of_others(system: RunningSystem, n_others: int) -> str:
    """Give others so many searches that have ended, and a user five; returns the token of the user."""
    token = create_token(system.database, "few", Role.SUBMITTER)
    client = connect(system.url, token)
    for size in range(1, 6):
        client.search(cluster="c600", space={"n_ipu": [1], "batch_size": [size]}, labels={"nobody": "has"})

    def add(connection: Connection) -> None:
        row = dict(connection.execute(SEARCHES.select().limit(1)).mappings().one())
        holder = dict(connection.execute(HOLDERS.select().limit(1)).mappings().one())
        del row["number"]
        ids = [(token_hex(10), f"owner{number % 50}") for number in range(n_others)]
        more = [row | {"id": each, "digest": token_hex(32), "owner": name, "state": "finished"} for each, name in ids]
        connection.execute(SEARCHES.insert(), more)
        own = {"is_shared": False, "has_stopped": False}
        connection.execute(HOLDERS.insert(), [holder | own | {"search_id": each, "owner": name} for each, name in ids])

    system.database.write(add)
    return token


def times_of(
    system: RunningSystem, paths: Sequence[str], n_gets: int, token: str | None = None
) -> dict[str, tuple[float, float]]:
    """The median and the 99th percentile, in milliseconds, of GETs of every path, in turns over one connection."""
    token = token or create_token(system.database, "timer", Role.ADMIN)
    seconds: dict[str, list[float]] = {path: [] for path in paths}
    with closing(http.client.HTTPConnection(urlsplit(system.url).netloc)) as connection:
        for path in (path for _ in range(n_gets) for path in paths):
            start_s = perf_counter()
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            content = response.read()
            seconds[path].append(perf_counter() - start_s)
            assert response.status == 200, content
    cuts = {path: quantiles(taken, n=100) for path, taken in seconds.items()}
    return {path: (1000 * each[49], 1000 * each[98]) for path, each in cuts.items()}


def memory_over(system: RunningSystem, path: str, n_requests: int) -> list[float]:
    """The memory of the server in MiB before, and after each tenth of so many GETs by eight clients."""
    token = create_token(system.database, "many", Role.ADMIN)
    sizes = [resident_mib(system.processes["server"].pid)]

    def ask(n: int) -> None:
        with closing(http.client.HTTPConnection(urlsplit(system.url).netloc)) as connection:
            for number in range(n):
                wanted = path if number % 2 else "/v1/searches?limit=10"
                connection.request("GET", wanted, headers={"Authorization": f"Bearer {token}"})
                connection.getresponse().read()

    for _ in range(N_ROUNDS):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, [max(1, n_requests // N_ROUNDS // 8)] * 8))
        sizes.append(resident_mib(system.processes["server"].pid))
    return sizes


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def main(argv: Sequence[str] | None = None) -> None:
    """Print what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage")
    counts = {"clients": 50, "searches": 20, "common": 16, "trials": 10_000, "others": 10_000, "gets": 300}
    counts |= {"requests": 50_000}
    for name, default in counts.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kill-s", type=float, default=5.0, help="mean seconds between kills; 0 for none")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        system = RunningSystem(args.storage or f"sqlite:///{folder}/server.db", Path(folder))
        try:
            report(system, args)
        finally:
            system.close()


def report(system: RunningSystem, args: argparse.Namespace) -> None:
    """Run all parts."""
    system.start_workers()
    seen = under_kills(system, args.kill_s, lambda: crowd(system, args.clients, args.searches, args.common))
    killed = ", ".join(f"{number} x {what}" for what, number in system.n_killed.items() if number)
    print(
        f"{args.clients} clients x {args.searches} searches, {seen.n_distinct} distinct, in {seen.seconds:.0f} s; "
        f"killed: {killed or 'nothing'}; lost {seen.n_lost}, doubled {seen.n_doubled}, seen by others {seen.n_visible}",
        flush=True,
    )
    search = f"/v1/searches/{large_study(system, args.trials)}"
    paths = ("/health", search, f"{search}/trials?limit=50&first={args.trials // 2}", "/v1/searches")
    for path, (median_ms, p99_ms) in times_of(system, paths, args.gets).items():
        print(f"GET {path.replace(search, '/v1/searches/ID')}: p50 {median_ms:.1f} ms, p99 {p99_ms:.1f} ms", flush=True)
    sizes = ", ".join(f"{size:.0f}" for size in memory_over(system, search, args.requests))
    print(f"memory of the server over {args.requests} requests, MiB: {sizes}")
    token = searches_of_others(system, args.others)
    for whose, key in (("a user with 5", token), ("an administrator", None)):
        [(median_ms, p99_ms)] = times_of(system, ["/v1/searches"], args.gets, key).values()
        about = f"{whose}, {args.others} of others"
        print(f"GET /v1/searches of {about}: p50 {median_ms:.1f} ms, p99 {p99_ms:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
