"""Model, tokenizer, engines and players of a run, ready to play."""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax

from dfc.config import AdapterConfig, RunConfig
from dfc.episodes import Episode
from dfc.games import registry, scripted
from dfc.games.game import Facts
from dfc.models import huggingface, sharding
from dfc.models.chat import ChatTokenizer
from dfc.models.lora import ALL_LINEAR, QKVO, LoraConfig
from dfc.models.transformer import Adapters, Params
from dfc.rollout.engine import Engine
from dfc.rollout.play import Arena, Job


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
        self._seats = [(self._engine(), self._engine()) for _ in range(config.rollout.workers)]

    def close(self) -> None:
        """Gives up the engines and their caches; nothing can be played afterwards."""
        self._seats = []

    @property
    def engines(self) -> list[Engine]:
        """Every worker's engines: the policy's, the opponent's."""
        return [engine for pair in self._seats for engine in pair]

    def play(self, jobs: Sequence[Job], policy: Policy, opponent: str) -> list[Episode]:
        """Returns the episodes of the jobs in their order.

        Every worker takes each n-th job: which one plays what, and in which slot, is the same in every run.

        Args:
          jobs: games to play.
          policy: the weights to play with.
          opponent: ``initial`` (the initial policy), ``itself`` or ``random_legal``.
        """
        opposite = {"initial": Policy(self.initial), "itself": policy, "random_legal": None}
        if opponent not in opposite:
            raise ValueError(f"opponent must be one of {', '.join(opposite)}, got {opponent!r}")
        batches = [list(range(len(jobs)))]
        # Few games share one pass: apart, each id would leave most slots empty.
        if not self._config.rollout.mix_games and len(jobs) > self._config.rollout.slots * len(self._seats):
            games = dict.fromkeys(job.game for job in jobs)
            batches = [[i for i, job in enumerate(jobs) if job.game == game] for game in games]

        def work(worker: int) -> dict[int, Episode]:
            policy_engine, opponent_engine = self._seats[worker]
            policy_engine.set_params(policy.params, policy_engine.version + 1, policy.adapters)
            other: Engine | scripted.RandomLegal = scripted.RandomLegal()
            if (other_policy := opposite[opponent]) is not None:
                opponent_engine.set_params(other_policy.params, opponent_engine.version + 1, other_policy.adapters)
                other = opponent_engine
            arena = Arena(self._config.rollout, self.tokenizer, policy_engine, other, opponent_name=opponent)
            mine = [batch[worker :: len(self._seats)] for batch in batches]
            return {i: e for part in mine for i, e in zip(part, arena.play([jobs[i] for i in part]), strict=True)}

        with ThreadPoolExecutor(len(self._seats)) as pool:  # a program's run releases Python's lock
            played = {i: e for found in pool.map(work, range(len(self._seats))) for i, e in found.items()}
        return [played[i] for i in range(len(jobs))]

    def _engine(self) -> Engine:
        rollout = self._config.rollout
        return Engine(
            self.model,
            self.initial,
            slots=rollout.slots,
            max_length=rollout.max_length,
            stop_ids=self.tokenizer.stop_ids(rollout.stop),
            sampling=rollout.sampling,
            mesh=self.mesh,
        )
