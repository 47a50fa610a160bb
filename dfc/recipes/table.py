"""Model, tokenizer, engines and players of a run, ready to play."""

from collections.abc import Sequence
from pathlib import Path

import jax

from dfc.config import RunConfig
from dfc.episodes import Episode
from dfc.games import registry, scripted
from dfc.games.game import Facts
from dfc.models import huggingface, sharding
from dfc.models.chat import ChatTokenizer
from dfc.models.transformer import Params
from dfc.rollout.engine import Engine
from dfc.rollout.play import Arena, Job


class Table:
    """Loads the initial policy and plays any weights of its shape against any opponent.

    Attributes:
      source: the model's folder. model: its shape. initial: its weights, sharded over the mesh.
      facts: what is known of each configured game. device: the hardware, in words.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self.source: Path = huggingface.resolve(config.model.path)
        self.mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
        self.model, self.initial = huggingface.load(self.source, mesh=self.mesh, dtype=config.model.dtype)
        self.tokenizer = ChatTokenizer.load(self.source)
        self.facts: dict[str, Facts] = {g: registry.make(g, **options).facts for g, options in config.games.items()}
        self.device = f"{jax.device_count()} x {jax.devices()[0].device_kind}, jax {jax.__version__}"
        self.policy_engine, self.opponent_engine = self._engine(), self._engine()

    def play(self, jobs: Sequence[Job], params: Params, opponent: str) -> list[Episode]:
        """Returns the episodes of the jobs in their order.

        Args:
          jobs: games to play.
          params: the policy's weights.
          opponent: ``initial`` (the initial policy), ``itself`` or ``random_legal``.
        """
        self.policy_engine.set_params(params, self.policy_engine.version + 1)
        other: Engine | scripted.RandomLegal = self.opponent_engine
        if opponent == "itself":
            self.opponent_engine.set_params(params, self.policy_engine.version)
        elif opponent == "initial":
            self.opponent_engine.set_params(self.initial, 0)
        elif opponent == "random_legal":
            other = scripted.RandomLegal()
        else:
            raise ValueError(f"opponent must be initial, itself or random_legal, got {opponent!r}")
        arena = Arena(self._config.rollout, self.tokenizer, self.policy_engine, other, opponent_name=opponent)
        if self._config.rollout.mix_games:
            return arena.play(jobs)
        played: dict[int, Episode] = {}
        for game in dict.fromkeys(job.game for job in jobs):
            places = [index for index, job in enumerate(jobs) if job.game == game]
            played.update(zip(places, arena.play([jobs[index] for index in places]), strict=True))
        return [played[index] for index in range(len(jobs))]

    def _engine(self) -> Engine:
        rollout = self._config.rollout
        return Engine(
            self.model,
            self.initial,
            slots=rollout.slots,
            max_length=rollout.max_length,
            stop_ids=self.tokenizer.stop_ids(rollout.stop),
            sampling=rollout.sampling,
        )
