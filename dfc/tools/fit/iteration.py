"""What each stage of a run holds and how often each program runs in it: all that is read of a recipe's settings.

The compiler knows a program, not a game: how long replies are, how many turns an episode has and how uneven the tail
of a batch is decide the rest. `Lengths` is an assumption and is printed with every time derived from it.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from dfc import packing
from dfc.config import (
    BatchConfig,
    Branch,
    BuildData,
    BuildDialogues,
    Collect,
    CollectRound,
    Evaluate,
    EvaluateAnswers,
    EvaluateTasks,
    GamesRunConfig,
    LanguageSelfPlay,
    Minigames,
    ModelConfig,
    Preference,
    RlRunConfig,
    RunConfig,
    Sft,
    SmallModel,
    TinyPlayer,
)
from dfc.evaluation import pairing
from dfc.evaluation.tasks import EvalSetting
from dfc.methods.language_self_play import update
from dfc.models.config import DecoderConfig
from dfc.players import player_specs
from dfc.players.player_specs import PlayerSpec
from dfc.records import attempts, branches
from dfc.records.task_groups import split_games
from dfc.runs.stages import planned
from dfc.stages import evaluate_tasks
from dfc.tools.fit.workload import Workload
from dfc.tools.small_models import tiny_player

_GROUPS = 4  # start fixed or random, winnable or not: as many policies at most
Find = Callable[[ModelConfig], DecoderConfig]  # the shape of a model that a configuration names
_QUESTIONS = 1000  # of a file that is not read here: GSM8K has 1,319, MBPP 974, HumanEval 164
EVALUATION = "evaluation"  # the stage in which the recipe tiny_player plays


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stretch of a run during which the devices hold the same.

    Attributes:
      name: of the recipe, or of the stage in it.
      config: of the stage, by its own recipe.
      times: how often it comes, in rounds.
      episodes: that it plays, where its configuration does not say.
    """

    name: str
    config: RunConfig
    times: int = 1
    episodes: int | None = None

    @property
    def idle(self) -> str:
        """Why the stage uses no device; empty if it does."""
        if isinstance(self.config, BuildData | BuildDialogues | Minigames):
            return "rows are chosen on the host"
        if isinstance(self.config, Collect) and self.config.demonstrator:
            return "a demonstrator plays"
        if isinstance(self.config, Evaluate | EvaluateTasks) and not models_of(self.config):
            return "no player is a model on this machine"
        if isinstance(self.config, EvaluateAnswers) and not self.episodes:
            return "nothing is sampled"
        return ""


@dataclasses.dataclass(frozen=True)
class Lengths:
    """What an episode, or a row of data, is assumed to be.

    Attributes:
      episode: tokens of one seat's context at the end, or of a side of a row.
      generated_share: share of them the policy samples; the rest is prefilled.
    """

    episode: int
    generated_share: float


@dataclasses.dataclass(frozen=True)
class ProgramCalls:
    """Runs of each program in one unit of a stage, all rows busy until the last episode ends.

    Attributes:
      unit: an iteration of reinforcement learning, an update on rows, or all games of a stage that only plays.
      episodes: of it, or rows.
      further: episodes at most beside them that are played where groups teach nothing, and counted in `decode` and
        `prefill` (`RlRunConfig.refill`).
      decode: calls that sample in every row, each for all its steps.
      prefill: calls that only prefill, in every row.
      micro_batches: forward and backward passes.
      of_parts: of them, those of each of several losses, by its name.
      rewards: calls that score answers by a model of preferences.
      updates: optimizer steps; the weights for decoding are renewed after the last one.
      scored: micro-batches whose log-probabilities are taken apart from updates; on rows a share of one pass over all.
    """

    unit: str
    episodes: int
    further: int = 0
    decode: int = 0
    prefill: int = 0
    micro_batches: int = 0
    of_parts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    rewards: int = 0
    updates: int = 0
    scored: float = 0.0

    def describe(self, lengths: Lengths) -> str:
        """Returns the assumption as text."""
        if not self.decode:
            return f"{self.unit} of {self.episodes} rows, {lengths.episode} tokens each"
        share = f"{lengths.generated_share:.0%} of them sampled"
        more = f", and up to {self.further} of further groups (refill)" if self.further else ""
        return f"{self.unit}, {self.episodes} episodes of {lengths.episode} tokens per episode, {share}{more}"


# ---- stages ----------------------------------------------------------------------------------------------------------


def stages_of(config: RunConfig) -> list[Stage]:
    """Returns the stages of a run that begins; rounds are alike, and the stages of one stand for all."""
    if isinstance(config, TinyPlayer):
        playing, episodes = tiny_player.playing(config, Path(config.name)), len(config.games) * config.evaluation_games
        return [Stage("training", config), Stage(EVALUATION, playing, episodes=episodes)]
    if isinstance(config, EvaluateAnswers):
        asked = len(config.policies) * len(config.questions) * config.samples
        if config.pairwise.instructions and config.policies:  # of which the baseline's own may be asked for twice
            asked += len(config.policies) + config.pairwise.baseline_again
        return [Stage(config.recipe, config, episodes=asked * (config.questions_each or _QUESTIONS))]
    if isinstance(config, LanguageSelfPlay):
        judged = config.groups_per_iteration * config.group_size if config.judges else 0
        return [Stage(config.recipe, config, episodes=config.samples + judged)]
    nowhere = Path(os.devnull)  # no earlier stage has left anything there
    plan = planned(config, nowhere)
    if plan is None:
        return [Stage(config.recipe, config)]
    found: dict[str, Stage] = {}
    for stage in plan:
        name = stage.name.rpartition("/")[2]
        found[name] = Stage(name, stage.config, found[name].times + 1 if name in found else 1)
    return list(found.values())


def models_of(config: Evaluate | EvaluateTasks) -> list[PlayerSpec]:
    """Returns who is a model, of a tournament its simulators too."""
    specs = player_specs.policies(config)
    if isinstance(config, Evaluate) and specs:
        specs += [spec] if (spec := player_specs.simulators(config)) else []
    return [spec for spec in specs if spec.kind == "model"]


def meetings_of(config: Evaluate) -> list[pairing.Meeting]:
    """Returns the meetings of a tournament."""
    return pairing.meetings([spec.name for spec in player_specs.policies(config)], config.games)


def lengths_of(config: RunConfig, episode: int | None = None, generated_share: float | None = None) -> Lengths:
    """Returns the given lengths; without them half of the longest context, half of it sampled."""
    longest = 0
    if isinstance(config, Sft | Preference | SmallModel):
        longest = config.batch.row_length
    elif isinstance(config, GamesRunConfig | EvaluateAnswers | LanguageSelfPlay):
        longest = config.rollout.max_length
    return Lengths(episode or max(1, longest // 2), generated_share or 0.5)


# ---- how often -------------------------------------------------------------------------------------------------------


def _episodes(config: RunConfig) -> int:
    """Returns the episodes of one unit that a model plays, or rows of data; a game of two models counts twice."""
    found = 0
    match config:
        case RlRunConfig():
            found = config.most_groups(max(1, len(config.games))) * config.group_size
        case CollectRound():
            found = config.steps * config.samples
        case Branch():
            found = len(branches.planned(config, "")) if config.trajectories else 0
        case Collect():
            found = len(attempts.planned(config.games, config))
        case EvaluateTasks():
            games, setting = split_games(config.games, config.split), EvalSetting("", None)
            settings = len(models_of(config)) * len(config.every_temperature)
            found = len(evaluate_tasks.plays(config, games, setting)) * settings
        case Evaluate():
            models = {spec.name for spec in models_of(config)}
            for meeting in meetings_of(config):
                seated = len(models & {meeting.first, meeting.second})
                found += seated * len(pairing.episode_specs(meeting, config.seeds, config.seed))
        case Sft() | Preference():
            found = config.batch_size * (2 if isinstance(config, Preference) else 1)
        case SmallModel():
            found = config.transcripts_per_step
    return found


def passes(config: RunConfig, batch: BatchConfig, lengths: Lengths, shards: int, updates: int = 1) -> int:
    """Returns into how many micro-batches an update is cut, smaller ones for the remaining rows included.

    Two at least where stored rows go into packed ones of several lengths, of which each has its own micro-batches.
    `shards` are devices that rows are split over, `updates` those of a unit.
    """
    if isinstance(config, LanguageSelfPlay):
        units = list(_episodes_of_parts(config).values())
    else:
        units = [math.ceil(_episodes(config) / updates)]
    several = isinstance(config, Sft | Preference) and len(packing.row_lengths(batch.row_length)) > 1
    counts = packing.Halves(shards).counts(batch.micro_batch_rows, batch.row_length, batch.micro_batch_rows)
    rows = [math.ceil(_rows(count, batch, lengths) / counts[-1]) * counts[-1] for count in units]
    found = sum(len(packing.cut(one, counts)) for one in rows)
    return max(found, 2) if several and max(units) > 1 else found


def micro_batches(config: RunConfig, batch: BatchConfig, lengths: Lengths) -> int:
    """Returns how many of the largest micro-batches hold the rows of a unit, which their time is counted by."""
    if isinstance(config, LanguageSelfPlay):
        return sum(micro_batches_of_parts(config, lengths).values())
    return _cut(_episodes(config), batch, lengths)


def micro_batches_of_parts(config: LanguageSelfPlay, lengths: Lengths) -> dict[str, int]:
    """Returns the same for each of the losses; a judge's replies are no rows."""
    return {name: _cut(count, config.batch, lengths) for name, count in _episodes_of_parts(config).items()}


def _episodes_of_parts(config: LanguageSelfPlay) -> dict[str, int]:
    found = {update.SOLVER: config.groups_per_iteration * config.group_size}
    if config.trains_challenger:
        found[update.CHALLENGER] = config.groups_per_iteration
    return found


def _rows(episodes: int, batch: BatchConfig, lengths: Lengths) -> int:
    return math.ceil(episodes * lengths.episode / batch.row_length)


def _cut(episodes: int, batch: BatchConfig, lengths: Lengths) -> int:
    return math.ceil(_rows(episodes, batch, lengths) / batch.micro_batch_rows)


def runs(config: RunConfig, lengths: Lengths, workload: Workload, episodes: int | None = None) -> ProgramCalls:
    """Counts one unit of a stage; one seat per episode, no episode dropped; `episodes` are those of its `Stage`."""
    episodes = _episodes(config) if episodes is None else episodes
    found = ProgramCalls(
        "all games" if not workload.trains else "one iteration" if workload.plays else "one update", episodes
    )
    if workload.plays:
        further = episodes * config.refill if isinstance(config, RlRunConfig) else 0
        waves, generated = (episodes + further) / workload.call_rows, lengths.episode * lengths.generated_share
        found = dataclasses.replace(
            found,
            further=further,
            decode=math.ceil(waves * generated / workload.steps),
            prefill=math.ceil(waves * (lengths.episode - generated) / workload.prefill),
        )
    if workload.trains:
        count, updates = micro_batches(config, workload.batch, lengths), workload.updates
        # The first update of an iteration is at the weights that sampled; a run on rows scores all of them once.
        share = 1 / config.epochs if isinstance(config, Sft | Preference) else 1 - 1 / updates
        scored = count * share if workload.scores else 0.0
        found = dataclasses.replace(found, micro_batches=count, updates=updates, scored=scored)
    if isinstance(config, LanguageSelfPlay):
        model = config.reward.preference
        rows = math.ceil(config.groups_per_iteration * config.group_size * lengths.episode / model.row_length)
        rewards = math.ceil(rows / model.rows) if "preference" in config.reward.weights else 0
        found = dataclasses.replace(found, of_parts=micro_batches_of_parts(config, lengths), rewards=rewards)
    return found
