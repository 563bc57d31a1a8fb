"""The opened target "host" of a GGUF file: `LlamaCppTarget`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from autoauto.engines.llama_cpp import (
    LlamaServerOptions,
    activation_bytes,
    context_tokens,
    kv_cache_bytes,
    server_command,
)
from autoauto.records.costs.decoder import Decoder, DecoderFile, Workload
from autoauto.records.costs.options import Session
from autoauto.records.errors import missing_extra
from autoauto.records.hardware import Period
from autoauto.records.target import Origin, TargetTraits
from autoauto.targets.host.detect import usable_cores
from autoauto.targets.host.machine import MachineLoad, cores, excess_load, identity
from autoauto.targets.host.runtimes.llamacpp.server import RunningServer
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession

SLOTS = (1, 2, 4, 8, 16)
DEFAULT_TOKENS = 256
"""Of a prompt, and of an answer, where none are given."""
MOST_MEASURED = 8
"""Configurations that a search measures at most: each is a server that starts, and takes loads in turn with another."""
NOISE = 0.01


@dataclass(frozen=True, slots=True)
class LlamaCppTarget:
    """Servers of llama.cpp on this machine, one at a time beside one that they are compared with.

    Attributes:
        file: what they serve.
        n_clients: that send requests.
        load: of the machine before the search, where its cores do not suffice for it.
    """

    file: DecoderFile
    n_clients: int = SLOTS[-1]
    load: MachineLoad | None = None

    @staticmethod
    def of(file: DecoderFile, n_clients: int | None = None) -> LlamaCppTarget:
        """The target of a file on this machine.

        Raises:
            MissingExtra: the runtime is not installed.
        """
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
        """What one should know of the numbers, a sentence each."""
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
        """All cores or half of them in one server; what changes answers is not varied unless it is asked for."""
        n_cores = usable_cores()
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
                "replicas": (1,),
                "batch_size": tuple(sorted({self.n_clients, *(n for n in SLOTS if n < self.n_clients)})),
                "cores_per_device": tuple(sorted({max(n_cores // 2, 1), n_cores})),
                "n_ubatch": (128, 512),
                "input_tokens": (DEFAULT_TOKENS,),
                "output_tokens": (DEFAULT_TOKENS,),
                "runtime": (LlamaCppSession.runtime,),
                "precision": (None,),
            },
            period=Period.SERIAL,
            groups="cores_per_device",
            sessions=(LlamaCppSession,),
            in_seconds=True,
        )

    def needs(self, session: Session) -> str:
        """Implements `ServesDecoder`; the file is all."""
        return ""

    def command(self, session: Session, n_slots: int, workload: Workload) -> tuple[str, ...]:
        """Implements `RunsServers`."""
        return server_command(self._options(session, n_slots, workload))

    def serve(self, session: Session, n_slots: int, workload: Workload) -> RunningServer:
        """Implements `RunsServers`."""
        return RunningServer(self.command(session, n_slots, workload))

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
        return LlamaServerOptions(
            self.file.path,
            n_slots,
            *session.threads,
            session.n_batch,
            session.n_ubatch,
            context_tokens(n_slots, workload),
            session.flash_attention,
            session.cache_type,
        )
