"""How often tasks are solved: every policy, at every temperature, several games of each task; read from top to bottom.

    schedule  policies x temperatures x games x tasks x trajectories; each policy gets the same deals and sampling seeds
    records   every finished game is played again from its record before it is written
    results   results.json, tables.md, report.html

What is common to evaluations, and resume: `dfc.stages.evaluation_run`.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from dfc.config import EvaluateTasks, GameOptions
from dfc.episodes import Episode
from dfc.errors import ConfigError
from dfc.evaluation import dialogue_results, matches, tasks, tournament
from dfc.evaluation.tasks import EvalSetting
from dfc.games import registry
from dfc.games.rng import derive_seed
from dfc.games.scripted import Player, RandomLegal
from dfc.players import factory, player_specs
from dfc.players.endpoint import Endpoint
from dfc.players.player_specs import OPPONENT, PlayerSpec
from dfc.players.remote import Remote
from dfc.records.episode_store import ROUNDS, Part, Played, Players
from dfc.records.task_groups import split_games
from dfc.report import task_page
from dfc.report.page import Results
from dfc.rollout import trained_weights
from dfc.rollout.host import PolicyWeights
from dfc.rollout.runner import EpisodeSpec
from dfc.rollout.sequential_match import play_episode
from dfc.rollout.workers import RolloutWorkers
from dfc.runs import players_on_record
from dfc.runs.costs import Costs
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.stages import evaluation_run


@dataclasses.dataclass(frozen=True)
class _Play:
    """One game of the schedule; `EpisodeSpec.group` is its task."""

    setting: EvalSetting
    trajectory: int
    episode_spec: EpisodeSpec

    @property
    def key(self) -> tasks.Key:
        return (*self.setting, self.episode_spec.game, self.episode_spec.group, self.trajectory)


def run(config: EvaluateTasks, folder: RunFolder, stop: Stop) -> None:
    """Plays what is not on record yet, and writes the results.

    Raises:
      ConfigError: a policy's model differs from the run's in shape or tokenizer; before any game.
    """
    specs = player_specs.policies(config)
    games = split_games(config.games, config.split)
    settings = [
        EvalSetting(spec.name, temperature)
        for spec in specs
        for temperature in (config.every_temperature if spec.kind == "model" else (None,))
    ]
    schedule = [
        Part(str(setting), [setting.policy], {play.key: play for play in plays(config, games, setting)})
        for setting in settings
    ]

    def prepare() -> None:
        _refuse_other_kinds(config)
        seated = [player_specs.parse(config.model.path, player_specs.SIMULATORS)] * (config.simulators == "initial")
        players_on_record.refuse_others(folder, trained_weights.identities([*specs, *seated]))

    phases = [(schedule, lambda: _Players(config, games, folder, stop))]
    evaluation_run.evaluate(
        config, folder, stop, phases, tasks.key, lambda: _results(config, folder, games, settings), prepare=prepare
    )


# ---- what is played --------------------------------------------------------------------------------------------------


def plays(config: EvaluateTasks, games: Mapping[str, GameOptions], setting: EvalSetting) -> list[_Play]:
    """Returns the games of a setting: of every task all trajectories, one after another.

    A task of a split is a seed of that number; more tasks than the split has, in `tasks_of`, are further trials of it.
    Elsewhere each task is a deal of its own, and none of those that other recipes play.
    """
    found = []
    for game, options in games.items():
        made = registry.make(game, **options)
        info, seat = made.info, matches.policy_seat(game, made, 0, config.learner_roles)
        size = info.splits.get(config.split)
        last = config.first + config.tasks if config.tasks else size or 0
        end = config.tasks_of.get(game, last if size is None else min(last, size))
        for task, trajectory in itertools.product(range(config.first, end), range(config.trajectories)):
            deal = task if info.splits else derive_seed("evaluate tasks deal", game, task)
            sampling_seed = derive_seed("evaluate tasks", config.seed, game, task, trajectory)
            found.append(_Play(setting, trajectory, EpisodeSpec(game, options, deal, seat, task, sampling_seed)))
    return found


# ---- who plays -------------------------------------------------------------------------------------------------------


class _Players(Players[_Play]):
    """Plays games of models and bots; one model's weights at a time are in memory beside the initial ones."""

    def __init__(self, config: EvaluateTasks, games: Mapping[str, GameOptions], folder: RunFolder, stop: Stop) -> None:
        self._config = dataclasses.replace(config, games=games)
        self._folder, self._stop = folder, stop
        self._workers: RolloutWorkers | None = None
        self._loaded: tuple[str, PolicyWeights] | None = None
        self._others: dict[str, Player | Remote] = {}
        self._specs = {spec.name: spec for spec in player_specs.policies(config)}

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.close()
        if self._workers is not None:
            self._workers.close()

    @property
    def endpoints(self) -> list[Endpoint]:
        """Those that were asked, for simulators or in the other seat."""
        here = [player for player in self._others.values() if isinstance(player, Endpoint)]
        return here + (self._workers.endpoints if self._workers is not None else [])

    def begin(self, part: Part[Any, _Play]) -> int:
        del part
        apart: int = max(self._config.rollout.workers, jax.process_count())
        return ROUNDS * self._config.rollout.slots * apart

    def play(self, part: Part[Any, _Play], some: list[_Play]) -> Played:
        spec, episode_specs = self._specs[part.policies[0]], [play.episode_spec for play in some]
        if spec.kind == "scripted":
            episodes = [self._play_scripted(spec, episode_spec) for episode_spec in episode_specs]
        else:
            episodes = self._play_model(spec, episode_specs, some[0].setting.temperature or 0.0)
        records = [_record(play, episode) for play, episode in zip(some, episodes, strict=True)]
        tokens = sum(episode.generated_tokens for episode in episodes)
        return Played(records, {f"generated_tokens/{spec.name}": tokens})

    def wins(self, record: Mapping[str, Any]) -> Iterable[tuple[str, bool]]:
        return [(record["game"], record["outcomes"][record["seat"]] == "win")]

    def _play_scripted(self, spec: PlayerSpec, episode_spec: EpisodeSpec) -> Episode:
        self._stop.check_stop()
        own, name = factory.player(spec), self._opponent(spec.name)
        seats = registry.make(episode_spec.game, **episode_spec.options).seats
        other = own if name == spec.name else self._outside(player_specs.parse(self._config.opponent, OPPONENT))
        seated = [own if seat == episode_spec.seat else other for seat in range(seats)]
        return play_episode(
            episode_spec,
            seated,
            self._config.rollout,
            opponent=name if seats > 1 else "none",
            check_stop=self._stop.check_stop,
        )

    def _outside(self, spec: PlayerSpec) -> Player | Remote:
        """Returns a player of no engine; an endpoint keeps its connection."""
        if spec.name not in self._others:
            endpoint = player_specs.endpoint_config(self._config, spec.name)
            self._others[spec.name] = factory.player(spec, endpoint)
        return self._others[spec.name]

    def _opponent(self, policy: str) -> str:
        """Returns the name of a policy's partner in games for a team, as in records."""
        return policy if self._config.opponent == "itself" else self._config.opponent

    def _play_model(self, spec: PlayerSpec, episode_specs: list[EpisodeSpec], temperature: float) -> list[Episode]:
        if self._workers is None:
            # The filters are on from the beginning: hosts with games of their own all run the same programs.
            filters = dataclasses.replace(self._config.sampling, temperature=1.0)
            self._workers = RolloutWorkers(self._config, self._stop.check_stop, sampling=filters)
            self._folder.note_device(self._workers.host.device)
        sampling = dataclasses.replace(self._config.sampling, temperature=temperature)
        policy = self._policy(spec, self._workers)
        # Where no one plays another seat: a scripted player keeps no conversation in the engine.
        alone = all(info.seats == 1 for info in self._workers.info.values())
        opponent = RandomLegal() if alone else self._config.opponent
        name = "none" if alone else self._opponent(spec.name)
        return self._workers.play(episode_specs, policy, opponent, name=name, sampling=sampling)

    def _policy(self, spec: PlayerSpec, workers: RolloutWorkers) -> PolicyWeights:
        if self._loaded is None or self._loaded[0] != spec.name:
            self._loaded = None  # frees memory for the weights to read
            self._loaded = (spec.name, workers.weights_of(spec))
        return self._loaded[1]


def _refuse_other_kinds(config: EvaluateTasks) -> None:
    """Raises ConfigError if a policy's shape or tokenizer differs from the run's; WeightsError without a model."""
    models = [spec for spec in player_specs.policies(config) if spec.kind == "model"]
    found = []
    for spec in models:
        weights = player_specs.weights_in(spec.who)
        folder = weights.folder
        what = trained_weights.difference(folder, config.model.path)
        if what is not None:
            found.append(
                f"policies: {spec.name!r} ({folder}) has another {what} than model.path={config.model.path!r}; give it "
                "a run of its own, or compare them with the recipe evaluate"
            )
        elif (why := player_specs.thinking_problem(weights, config.model)) is not None:
            found.append(f"policies: {spec.name!r} {why}")
    if found:
        raise ConfigError(found)


def _record(play: _Play, episode: Episode) -> dict[str, Any]:
    """Returns the line of a finished game, after playing it again."""
    record = episode.record(stage="evaluate_tasks", iteration=0, kind="evaluate", reward=None, turns=episode.steps)
    keyed = {**play.setting._asdict(), "task": play.episode_spec.group, "trajectory": play.trajectory}
    return record | keyed | {"counts": tournament.checked(record)}


# ---- results ---------------------------------------------------------------------------------------------------------


def _results(
    config: EvaluateTasks, folder: RunFolder, games: Mapping[str, GameOptions], settings: Sequence[EvalSetting]
) -> Results:
    made = {game: registry.make(game, **options) for game, options in games.items()}
    limits = {game: one.info.max_game_length for game, one in made.items()}
    records = folder.records("episodes")
    found = tasks.of_records(settings, limits, config.trajectories, records)
    rated = [game for game, one in made.items() if one.has_quality]
    dialogues = dialogue_results.of_records(settings, rated, [one for one in records if one["game"] in rated])
    return task_page.results(config, found, dialogues, Costs(folder).total)
