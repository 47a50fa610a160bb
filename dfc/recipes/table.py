"""Model, tokenizer, engines and players of a run, ready to play."""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax

from dfc import agreement
from dfc.config import AdapterConfig, RunConfig
from dfc.episodes import Episode, from_bytes, to_bytes
from dfc.games import registry, scripted
from dfc.games.game import Facts
from dfc.models import huggingface, sharding
from dfc.models.chat import ChatTokenizer
from dfc.models.lora import ALL_LINEAR, QKVO, LoraConfig
from dfc.models.transformer import Adapters, Params
from dfc.rollout.engine import Engine
from dfc.rollout.play import Arena, Job
from dfc.rollout.slots import tensor_devices_on_one_host
from dfc.rollout.stopping import StopStrings


def lora_config(adapter: AdapterConfig) -> LoraConfig | None:
    """Returns the adapters a configuration asks for; None if all weights are trained."""
    if adapter.rank == 0:
        return None
    targets = QKVO if adapter.targets == "qkvo" else ALL_LINEAR
    return LoraConfig(rank=adapter.rank, alpha=adapter.alpha, dropout=adapter.dropout, targets=targets)


@dataclasses.dataclass(frozen=True)
class Policy:
    """What plays: weights as the engine wants them, and the adapters on them, if there are any."""

    params: Params
    adapters: Adapters | None = None


class Table:
    """Loads the initial policy and plays any weights of its shape against any opponent.

    Attributes:
      source: the model's folder. model: its shape. initial: its weights, sharded over the mesh, in four bits if the
        configuration says so.
      facts: what is known of each configured game. device: the hardware, in words.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self.source: Path = huggingface.resolve(config.model.path)
        self.mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
        nf4 = config.adapter.base == "nf4"
        self.model, self.initial = huggingface.load(self.source, mesh=self.mesh, dtype=config.model.dtype, nf4=nf4)
        self.tokenizer = ChatTokenizer.load(self.source)
        self.facts: dict[str, Facts] = {g: registry.make(g, **options).facts for g, options in config.games.items()}
        self.device = f"{jax.device_count()} x {jax.devices()[0].device_kind}, jax {jax.__version__}"
        # Hosts play games of their own where each has whole copies of the model, or shards that no other host shares.
        self._apart = jax.process_count() > 1 and tensor_devices_on_one_host(self.mesh)
        self._first = jax.process_index() if self._apart else 0  # of the shares of every batch of games
        self._shares = jax.process_count() if self._apart else config.rollout.workers  # several hosts: one worker each
        self._engines = [self._engine() for _ in range(config.rollout.workers)]

    def close(self) -> None:
        """Gives up the engines and their caches; nothing can be played afterwards."""
        self._engines = []

    @property
    def engines(self) -> list[Engine]:
        """Every worker's."""
        return list(self._engines)

    def play(self, jobs: Sequence[Job], policy: Policy, opponent: str) -> list[Episode]:
        """Returns the episodes of the jobs in their order.

        Every worker, or every host, takes each n-th job: which one plays what, and in which slot, is the same in
        every run. All hosts return all episodes.

        Args:
          jobs: games to play.
          policy: the weights to play with.
          opponent: ``initial`` (the initial policy), ``itself`` or ``random_legal``.
        """
        opponents: dict[str, str | scripted.RandomLegal] = {
            "initial": "initial",
            "itself": "policy",
            "random_legal": scripted.RandomLegal(),
        }
        if opponent not in opponents:
            raise ValueError(f"opponent must be one of {', '.join(opponents)}, got {opponent!r}")
        batches = [list(range(len(jobs)))]
        # Few games share one pass: apart, each id would leave most slots empty.
        if not self._config.rollout.mix_games and len(jobs) > self._config.rollout.slots * len(self._engines):
            games = dict.fromkeys(job.game for job in jobs)
            batches = [[i for i, job in enumerate(jobs) if job.game == game] for game in games]

        def work(worker: int) -> dict[int, Episode]:
            engine, others = self._engines[worker], opponents[opponent]
            engine.set_params(policy.params, engine.version() + 1, policy.adapters)
            arena = Arena(self._config.rollout, self.tokenizer, engine, opponent=others, opponent_name=opponent)
            played: dict[int, Episode] = {}
            try:
                for batch in batches:
                    mine = batch[worker + self._first :: self._shares]
                    played.update(zip(mine, arena.play([jobs[i] for i in mine]), strict=True))
            finally:  # the engine lets go of the policy: what the trainer makes next would lie beside it
                engine.set_params(self.initial, engine.version())
            return played

        with ThreadPoolExecutor(len(self._engines)) as pool:  # a program's run releases Python's lock
            played = {i: e for found in pool.map(work, range(len(self._engines))) for i, e in found.items()}
        if not self._apart:
            return [played[i] for i in range(len(jobs))]
        order, episodes = [], []
        for data in agreement.gathered_bytes(to_bytes([played[i] for i in sorted(played)])):
            episodes += from_bytes(data)
        for host in range(jax.process_count()):
            order += sorted(i for batch in batches for i in batch[host :: self._shares])
        return [episode for _, episode in sorted(zip(order, episodes, strict=True), key=lambda pair: pair[0])]

    def _engine(self) -> Engine:
        rollout = self._config.rollout
        stop = self.tokenizer.stop_ids(rollout.stop)
        longer = [text for text in rollout.stop if len(text) > 1]  # a single character is whole in one id
        engine = Engine(
            self.model,
            self.initial,
            slots=2 * rollout.slots if any(facts.seats > 1 for facts in self.facts.values()) else rollout.slots,
            max_length=rollout.max_length,
            stop_ids=stop,
            sampling=rollout.sampling,
            rows=rollout.rows or rollout.slots,
            widths=rollout.widths or None,
            lengths=rollout.lengths or None,
            decode_steps=min(rollout.decode_steps, rollout.max_reply_length),
            ends=StopStrings(longer, self.tokenizer.decode) if longer else None,
            mesh=self.mesh,
            hosts="own" if self._apart else "same",
        )
        engine.set_params(self.initial, 0, policy="initial")
        return engine
