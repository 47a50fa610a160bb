"""A policy loaded, its programs compiled, and the server that answers for it until a signal; slow clients are cut."""

import asyncio
import contextlib
import dataclasses
import math
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Literal

import jax
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dfc.config import ModelConfig, RolloutConfig, SamplingConfig, ServingConfig
from dfc.errors import CheckpointError, ConfigError, WeightsError
from dfc.inference.engine import Engine
from dfc.models import huggingface, model_folders
from dfc.models.chat import ChatTokenizer
from dfc.players import player_specs
from dfc.players.key_search import Secret
from dfc.players.player_specs import WeightsSource
from dfc.rollout import trained_weights
from dfc.rollout.host import ModelHost
from dfc.runs.checkpoint import Checkpointer
from dfc.tools.serving import gate
from dfc.tools.serving.app import Served, create_app
from dfc.tools.serving.engine_loop import EngineLoop

_TRIES = 3  # a run may write checkpoints, and delete them, while one is read
# Requests bring their own. Programs hold the filters that some setting needs: with this one all of them.
_EVERY_FILTER = SamplingConfig(top_k=1, top_p=0.5)
_SILENT: AbstractContextManager[None] = nullcontext()  # may be entered again and again


@dataclasses.dataclass(frozen=True)
class Policy:
    """A model that can answer. Attributes: engine, all slots free; served: what clients are shown of it."""

    engine: Engine
    served: Served


def load(path: str, config: ServingConfig) -> Policy:
    """Returns the policy that a path means, its programs compiled; raises as `open_policy`."""
    policy = open_policy(path, config)
    policy.engine.warm_up()
    return policy


def open_policy(path: str, config: ServingConfig) -> Policy:
    """Returns the policy that a path means, nothing compiled.

    The path is a folder with weights or a run, or the name of a bundled model. Of a run that has no policy yet it is
    the one that it accepted last, from its newest checkpoint.

    Raises:
      ConfigError: the path means no model. WeightsError, CheckpointError: its weights cannot be read.
    """
    weights = player_specs.weights_in(path, (), endpoints=False)
    default = weights.enable_thinking if config.enable_thinking is None else config.enable_thinking
    rollout = RolloutConfig(
        slots=config.slots,
        max_length=config.max_length,
        max_reply_length=config.max_length,
        decode_steps=config.decode_steps,
    )
    model = ModelConfig(weights.folder, _own_type(weights), default)
    host = ModelHost(model, rollout, slots=config.slots)
    for attempt in range(_TRIES):
        try:
            params, step = trained_weights.load_with_step(weights, host.model, host.mesh)
            fingerprint = trained_weights.fingerprint(weights, step)
            break
        except (CheckpointError, OSError):
            if attempt == _TRIES - 1 or not _is_alive(weights):
                raise
    engine = host.engine(params, sampling=_EVERY_FILTER, plain_logprobs=True)
    name = config.name or player_specs.parse(path).name
    words = _in_words(name if weights.run is None else weights.run.name, weights, step)
    return Policy(
        engine,
        Served(name, words, f"fp_{fingerprint[:16]}", host.tokenizer, config.max_length, thinking(host.tokenizer)),
    )


def _own_type(weights: WeightsSource) -> Literal["float32", "bfloat16"]:
    """Returns the type that a model computes in: of the two the one nearest to its own; on a CPU float32 is faster."""
    if jax.default_backend() == "cpu":
        return "float32"
    config = weights.config and weights.config["model"]  # of a run that has no policy yet
    config = config or model_folders.read_json(huggingface.resolve(weights.folder) / model_folders.CONFIG)
    text = config.get("text_config") or {}  # of a model that reads images
    named = next(filter(None, (part.get(key) for part in (config, text) for key in ("dtype", "torch_dtype"))), None)
    return "bfloat16" if named in ("bfloat16", "float16") else "float32"


def thinking(tokenizer: ChatTokenizer) -> dict[bool, ChatTokenizer]:
    """Returns tokenizers for requests that set ``enable_thinking``; none where the template has no such setting."""
    found = {}
    for wanted in (True, False) if tokenizer.reads_thinking else ():
        with contextlib.suppress(WeightsError):  # the template cannot be appended to with this setting
            found[wanted] = tokenizer.with_thinking(wanted)
    return found


def _is_alive(weights: WeightsSource) -> bool:
    """Whether there is another checkpoint to try."""
    return weights.run is not None and bool(Checkpointer(weights.run / "checkpoints", keep=None).steps())


def _in_words(name: str, weights: WeightsSource, step: int | None) -> str:
    if weights.run is None:
        return f"weights of {name}"
    return f"the policy that the run {name} accepted last, as of its checkpoint {step}"


class Impatient(H11Protocol):
    """Ends slow connections; for `uvicorn.Config(http=...)`, by `impatient`.

    A connection is ended if a request's head is not there `seconds` after its first byte or after the connection was
    made, and if nothing can be written for as long because its client does not read. How long a body may take is
    limited by the application.
    """

    seconds = 30.0
    _reading: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begins to wait for a request."""
        super().connection_made(transport)
        self._reading = self._later()

    def data_received(self, data: bytes) -> None:
        """Waits no more where a request's head is there."""
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self._reading is not None:
            self._reading.cancel()
            self._reading = None
        elif not answering and self._reading is None:
            self._reading = self._later()

    def pause_writing(self) -> None:
        """Begins to wait for the client to read."""
        super().pause_writing()
        self._writing = self._writing or self._later()

    def resume_writing(self) -> None:
        """Waits no more: it has read."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends with the connection."""
        super().connection_lost(exc)
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()

    def _later(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self.seconds, self.transport.abort)


def impatient(seconds: float) -> type[Impatient]:
    """Returns the protocol with another time limit."""
    return type("Impatient", (Impatient,), {"seconds": seconds})


class Server(uvicorn.Server):
    """Answers until SIGTERM or Ctrl-C: then refuses what waits and answers what runs, for `ServingConfig.grace`."""

    def __init__(
        self, policy: Policy, config: ServingConfig, key: Secret, *, listens: Callable[[], None] = lambda: None
    ) -> None:
        """Makes a server that is not running.

        Clients must send the key, an empty value: none; `listens` is called once it answers.

        Raises:
          ConfigError: other machines reach `config.host` and there is no key.
        """
        self._listens = listens
        self._loop = EngineLoop(policy.engine, queue=config.queue, failed=self._leave)
        self._grace = config.grace
        super().__init__(
            uvicorn.Config(
                create_app(self._loop, policy.served, config, key),
                http=impatient(config.patience),
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="critical",  # tracebacks may hold what a client sent
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(config.grace),
            )
        )

    @property
    def failure(self) -> str | None:
        """Why the engine ended; None: it did not, or was stopped."""
        return self._loop.failure

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to answer."""
        await super().startup(sockets)
        self._listens()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to stop; a second Ctrl-C stops at once."""
        self._loop.drain(self._grace * 0.9)  # the rest is for the way to the clients
        super().handle_exit(sig, frame)

    def leave(self) -> None:
        """Begins to stop, as a signal does; any thread may call it."""
        self.handle_exit(signal.SIGTERM, None)

    def _leave(self) -> None:
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that is bound to an address.

    Raises:
      ConfigError: it cannot be.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except (OSError, UnicodeError) as error:
        found.close()
        why = getattr(error, "strerror", None) or error
        raise ConfigError([f"--host={host} --port={port}: {why}; choose another port, or 0 for any"]) from error
    return found


def serve(
    path: str,
    config: ServingConfig,
    key: Secret,
    *,
    say: Callable[[str], None] = print,
    loading: AbstractContextManager[None] = _SILENT,
) -> str | None:
    """Serves a policy until a signal comes; returns why the engine failed, None if it did not.

    The path is a folder with weights, a run, or tiny_player. `loading` is open while weights are read and the programs
    of the fewest rows compiled, such as `dfc.runs.activity.reported`; those of more rows are compiled while it answers.

    Raises:
      ConfigError: the path means no model, or the address cannot be used. WeightsError, CheckpointError: weights
        cannot be read.
    """
    gate.check_address(config.host, key)
    with listen(config.host, config.port) as bound:  # before minutes are spent on loading
        say(f"loading {path} ...")
        with loading:
            policy = open_policy(path, config)
            compiled = policy.engine.warm_up_rows()
            next(compiled)
        served = policy.served
        host, port = bound.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
        line = f"serving {served.name} ({served.policy}) at {address}; Ctrl-C ends it"
        server = Server(policy, config, key, listens=lambda: say(line))
        ended = threading.Event()
        compiler = threading.Thread(target=lambda: any(ended.is_set() for _ in compiled), name="dfc-compiler")
        compiler.start()
        try:
            server.run([bound])
        finally:
            ended.set()
            compiler.join()  # XLA must not compile while the process ends
    return server.failure
