"""The opened target "host" of a GGUF file: `LlamaCppTarget`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import ClassVar

from autoauto.engines.llama_cpp import (
    FIRST_PORT,
    FlashAttention,
    LlamaServerOptions,
    activation_bytes,
    kv_cache_bytes,
    server_command,
)
from autoauto.records.costs.decoder import Decoder, DecoderFile, Workload
from autoauto.records.costs.options import Session
from autoauto.records.errors import missing_extra
from autoauto.records.hardware import Period
from autoauto.records.target import Origin, TargetTraits
from autoauto.targets.host.detect import usable_cores
from autoauto.targets.host.machine import MachineLoad, cores, cores_of, excess_load, identity
from autoauto.targets.host.runtimes.llamacpp.server import RunningServer
from autoauto.targets.host.runtimes.llamacpp.session import DEFAULT_BATCH, DEFAULT_UBATCH, LlamaCppSession

SLOTS = (1, 2, 4, 8, 16)
REPLICAS = (1, 2, 4)
DEFAULT_TOKENS = 256
"""Tokens of a prompt, and of an answer, if no number is given."""
MOST_MEASURED = 8
"""Configurations that a search measures at most: each is a server that starts, and takes loads in turn with another."""
NOISE = 0.01


@dataclass(frozen=True, slots=True)
class LlamaCppTarget:
    """Servers of llama.cpp on this machine, those of a configuration beside those that they are compared with."""

    measures_here: ClassVar[bool] = True
    file: DecoderFile
    n_clients: int = SLOTS[-1]
    load: MachineLoad | None = None  # of the machine before the search; None where its cores sufficed for it

    @staticmethod
    def of(file: DecoderFile, n_clients: int | None = None) -> LlamaCppTarget:
        """The target of a file on this machine; raises MissingExtra without the runtime."""
        if not LlamaCppSession.package.is_installed:
            raise missing_extra("serving a GGUF file on the host", LlamaCppSession.package.extra)
        return LlamaCppTarget(file, n_clients or SLOTS[-1], excess_load())

    @property
    def decoder(self) -> Decoder:
        """Implements `ServesDecoder`."""
        return self.file.decoder

    @property
    def version(self) -> str:
        """Implements `Target`."""
        package = LlamaCppSession.package.distribution
        return f"llamacpp 1, {self.n_clients} clients, {package} {version(package)}, {identity()}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the numbers, a sentence each."""
        notes = [
            "Configurations are compared by the CPU time of the server for a token, in turns of loads with another "
            "server; tokens/s are those of the least disturbed load."
        ]
        if self.load is not None:
            notes.append(f"The machine had {self.load} at the start, so its tokens/s are fewer than on an idle one.")
        if (n_cores := usable_cores()) < len(cores()):
            notes.append(f"A quota of its control group leaves {n_cores} of {len(cores())} cores; so many threads run.")
        return tuple(notes)

    @property
    def traits(self) -> TargetTraits:
        """All cores or half of them in a server, and servers side by side on halves and quarters of them.

        What changes answers, the format of the cache, is not varied unless it is asked for.
        """
        n_cores = usable_cores()
        counts = tuple(n for n in REPLICAS if n <= n_cores)
        return TargetTraits(
            origin=Origin.MEASURED,
            trains=False,
            phases=False,
            one_at_a_time=True,
            noise=NOISE,
            n_repeats=0,  # every measurement has several loads in turn with another server
            most_measured=MOST_MEASURED,
            space={
                "n_ipu": (1,),
                "replicas": counts,
                "batch_size": tuple(sorted({self.n_clients, *(n for n in SLOTS if n < self.n_clients)})),
                "cores_per_device": tuple(sorted({n_cores // n for n in counts})),
                "n_batch": (DEFAULT_BATCH, 512),
                "n_ubatch": (DEFAULT_UBATCH, 128),
                "flash_attention": (FlashAttention.AUTO, FlashAttention.OFF),
                "input_tokens": (DEFAULT_TOKENS,),
                "output_tokens": (DEFAULT_TOKENS,),
                "runtime": (LlamaCppSession.runtime,),
                "precision": (None,),
            },
            period=Period.SERIAL,
            groups=("cores_per_device",),
            sessions=(LlamaCppSession,),
            in_seconds=True,
        )

    def needs(self, session: Session) -> str:
        """Implements `ServesDecoder`; the file is all."""
        return ""

    def command(
        self, session: Session, n_slots: int, workload: Workload, replica: int | None = None
    ) -> tuple[str, ...]:
        """Implements `RunsServers`."""
        options = self._options(session, n_slots, workload)
        if replica is None:
            return server_command(options)
        numbers = ",".join(map(str, cores_of(replica, session.group_size)))
        return "taskset", "-c", numbers, *server_command(options._replace(port=FIRST_PORT + replica))

    def serve(self, session: Session, n_slots: int, workload: Workload, replica: int | None = None) -> RunningServer:
        """Implements `RunsServers`."""
        own = () if replica is None else cores_of(replica, session.group_size)
        return RunningServer(server_command(self._options(session, n_slots, workload)), own)

    def memory_bytes(self, session: Session, n_slots: int, workload: Workload) -> dict[str, int]:
        """Implements `RunsServers`."""
        options = self._options(session, n_slots, workload)
        return {
            "weights": self.file.n_bytes,
            "KV cache": kv_cache_bytes(self.decoder, options.n_ctx, options.cache_type),
            "activations": activation_bytes(self.decoder, options.n_ubatch),
        }

    def _options(self, session: Session, n_slots: int, workload: Workload) -> LlamaServerOptions:
        assert isinstance(session, LlamaCppSession)
        return session.options(self.file.path, n_slots, workload)
