"""The players of a tournament, ready to play: endpoints, scripted players, and models in as few engines as possible.

Weights of the same architecture and tokenizer share engines. Only what the present meeting needs is in memory: two
models at most, and configured simulators.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from dfc import multihost
from dfc.config import EndpointConfig, Evaluate, ModelConfig
from dfc.episodes import Episode
from dfc.errors import CheckpointError, DfcError, Interrupted, WeightsError
from dfc.evaluation.pairing import Meeting
from dfc.games import registry
from dfc.games.scripted import Player
from dfc.inference.protocol import RolloutEngine
from dfc.models.transformer import Params
from dfc.players import factory, player_specs
from dfc.players.endpoint import Endpoint
from dfc.players.remote import Remote
from dfc.rollout import trained_weights
from dfc.rollout.host import ModelHost
from dfc.rollout.model_player import ModelPlayer, OutOfContextError
from dfc.rollout.runner import EpisodeSpec, RolloutRunner
from dfc.rollout.sequential_match import play_episode
from dfc.rollout.workers import check_actions_fit

_FIRST_POLICY = "first"  # names of the two sides' weights in an engine
_SECOND_POLICY = "second"


@dataclasses.dataclass
class _EngineGroup:
    """Models that can share engines."""

    host: ModelHost
    engines: list[RolloutEngine] = dataclasses.field(default_factory=list)


class TournamentPlayers:
    """All players of a tournament. Close it, or use it as a context manager.

    Attributes:
      device: the hardware, as text.
    """

    def __init__(self, config: Evaluate) -> None:
        """Reads keys, configurations and tokenizers, no weights.

        Raises:
          ConfigError: a key is not set. WeightsError: a folder holds no supported model.
        """
        self._config = config
        self._specs = {spec.name: spec for spec in player_specs.policies(config)}
        helper = player_specs.simulators(config)
        if helper is not None:
            self._specs[helper.name] = helper
        self._has_simulators = helper is not None
        made = {
            spec.name: factory.player(spec, player_specs.endpoint_config(config, spec.name))
            for spec in self._specs.values()
            if spec.kind != "model"
        }
        self._bots = {name: player for name, player in made.items() if not isinstance(player, Endpoint)}
        self._endpoints = {name: player for name, player in made.items() if isinstance(player, Endpoint)}
        self._engine_groups: dict[str, _EngineGroup] = {}
        self._engine_group_of: dict[str, str] = {}
        self._sources = {
            spec.name: player_specs.weights_in(spec.who) for spec in self._specs.values() if spec.kind == "model"
        }
        self._thinking = {
            name: config.enable_thinking.get(name, source.enable_thinking) for name, source in self._sources.items()
        }
        for name, source in self._sources.items():
            self._sort(name, source.folder, self._thinking[name])
        self._weights: dict[str, Params] = {}
        self._known: dict[str, str] = {}  # fingerprints
        self._generated_tokens: dict[str, int] = {}
        self.device = multihost.device_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for endpoint in self._endpoints.values():
            endpoint.close()

    def fingerprints(self) -> dict[str, str]:
        """Returns what identifies each policy: addresses, digests of weights.

        What is passed to the chat template of a policy belongs to it.
        """
        self._known = trained_weights.identities(self._specs.values())
        told = {name: value for name, value in self._thinking.items() if value is not None}
        return self._known | {name: f"{self._known[name]}, enable_thinking={value}" for name, value in told.items()}

    def concurrency(self, meeting: Meeting) -> int:
        """Returns how many games of a meeting are well played at a time."""
        if any(self._specs[name].kind == "model" for name in _sides(meeting)):
            return self._config.rollout.slots * self._config.rollout.workers
        asked = [self._endpoints[name].config for name in _sides(meeting) if name in self._endpoints]
        return max((how.concurrency for how in asked), default=EndpointConfig().concurrency)

    def generated_tokens(self) -> dict[str, float]:
        """Returns what models have sampled since this process began, as ``generated_tokens/POLICY``."""
        return {f"generated_tokens/{name}": float(count) for name, count in self._generated_tokens.items()}

    def endpoints(self) -> list[Endpoint]:
        """Returns the chat endpoints that play; their reports say what was spent."""
        return list(self._endpoints.values())

    def slow(self, meeting: Meeting) -> bool:
        """Whether two models meet that cannot share an engine, so that one of them replies one game at a time."""
        groups = [self._engine_group_of[name] for name in _sides(meeting) if name in self._engine_group_of]
        return len(set(groups)) > 1

    # ---- playing ------------------------------------------------------------------------------------------------

    def play(
        self, meeting: Meeting, episode_specs: Sequence[EpisodeSpec], check_stop: Callable[[], None] = lambda: None
    ) -> list[tuple[EpisodeSpec, Episode]]:
        """Plays episode specs of a meeting; returns those that were played to their end with their episodes.

        An episode is seen by a model where one plays, otherwise by the meeting's first policy. A spec's `seat` is that
        of the meeting's first policy. Once `check_stop` raises `Interrupted` (`dfc.runs.stop_signals.Stop.check_stop`),
        games in flight are given up, and no further one begins.
        """
        self._load_models(meeting)
        models = [name for name in _sides(meeting) if name in self._engine_group_of]
        if not models:
            return self._play_without_engine(meeting, episode_specs, check_stop)
        own = models[0]
        other = next((name for name in _sides(meeting) if name != own), None)
        workers = len(self._engine_groups[self._engine_group_of[own]].engines)

        def work(worker: int) -> tuple[list[tuple[EpisodeSpec, Episode]], dict[str, int]]:
            mine = episode_specs[worker::workers]
            seen = (
                mine
                if own == meeting.first
                else [dataclasses.replace(episode_spec, seat=1 - episode_spec.seat) for episode_spec in mine]
            )
            ended, generated_tokens = self._play_in_engine(own, other, seen, worker, check_stop)
            return [(mine[number], ended[number]) for number in sorted(ended)], generated_tokens

        with ThreadPoolExecutor(workers) as pool:  # a compiled program's run releases Python's lock
            shares = list(pool.map(work, range(workers)))
        for _, generated_tokens in shares:
            for name, tokens in generated_tokens.items():
                self._generated_tokens[name] = self._generated_tokens.get(name, 0) + tokens
        turns = itertools.zip_longest(*(played for played, _ in shares))
        return [pair for turn in turns for pair in turn if pair is not None]

    def _play_in_engine(
        self,
        own: str,
        other: str | None,
        episode_specs: Sequence[EpisodeSpec],
        worker: int,
        check_stop: Callable[[], None],
    ) -> tuple[dict[int, Episode], dict[str, int]]:
        """Plays a model's games in its engine; returns those that ended, by spec, and each side's sampled tokens."""
        group = self._engine_groups[self._engine_group_of[own]]
        engine = group.engines[worker]
        together = other is not None and self._engine_group_of.get(other) == self._engine_group_of[own]
        opposite = None if other is None else _SECOND_POLICY if together else self._player(other, worker)
        roles = {
            role
            for episode_spec in episode_specs
            for role in registry.make(episode_spec.game, **episode_spec.options).simulators
        }
        simulator = self._simulator(worker)
        runner = RolloutRunner(
            self._config.rollout,
            group.host.tokenizer,
            engine,
            policy=_FIRST_POLICY,
            opponent=opposite,
            opponent_name=other or "none",
            simulators={} if simulator is None else dict.fromkeys(roles, simulator),
            check_stop=check_stop,
        )
        players = [(other or "none", opposite), (player_specs.SIMULATORS, simulator)]
        seated = {name: player for name, player in players if isinstance(player, ModelPlayer)}
        before = engine.counts.generated_tokens
        ended: dict[int, list[Episode]] = {}
        try:
            with contextlib.suppress(Interrupted):
                runner.play_all(episode_specs, ended=ended)
        finally:
            for player in seated.values():
                player.close()
        episodes = {number: _truncated(episode) for number, (episode,) in ended.items()}
        generated_tokens = {own: sum(episode.generated_tokens for episode in episodes.values())}
        if other is not None and together:
            generated_tokens[other] = max(0, engine.counts.generated_tokens - before - generated_tokens[own])
        return episodes, generated_tokens | {name: player.generated_tokens for name, player in seated.items()}

    def _simulator(self, worker: int) -> Player | Remote | None:
        """Returns who plays the simulators, None where the games' scripts do."""
        return self._player(player_specs.SIMULATORS, worker) if self._has_simulators else None

    def _player(self, name: str, worker: int) -> Player | Remote:
        """Returns a player that is not asked through the games' own engine."""
        if name in self._endpoints:
            return self._endpoints[name]
        if name in self._engine_group_of:
            group = self._engine_groups[self._engine_group_of[name]]
            at = _FIRST_POLICY if name == player_specs.SIMULATORS else _SECOND_POLICY
            return ModelPlayer(self._config.rollout, group.host.tokenizer, group.engines[worker], at)
        return self._bots[name]

    def _play_without_engine(
        self, meeting: Meeting, episode_specs: Sequence[EpisodeSpec], check_stop: Callable[[], None]
    ) -> list[tuple[EpisodeSpec, Episode]]:
        """Plays games without a model among the players, several side by side where they wait for endpoints."""
        simulator = self._simulator(0)

        def one(episode_spec: EpisodeSpec) -> tuple[EpisodeSpec, Episode] | None:
            names = _sides(meeting) if episode_spec.seat == 0 else _sides(meeting)[::-1]
            try:
                check_stop()
                episode = play_episode(
                    episode_spec,
                    [self._player(name, 0) for name in names],
                    self._config.rollout,
                    opponent=meeting.second or "none",
                    simulator=simulator,
                    check_stop=check_stop,
                )
            except Interrupted:
                return None
            return episode_spec, episode

        waits = any(name in self._endpoints for name in _sides(meeting))
        with contextlib.ExitStack() as stack:
            if isinstance(simulator, ModelPlayer):  # not to be shared between threads
                stack.callback(simulator.close)
                waits = False
            pool = stack.enter_context(ThreadPoolExecutor(self.concurrency(meeting) if waits else 1))
            return [pair for pair in pool.map(one, episode_specs) if pair is not None]

    # ---- models -------------------------------------------------------------------------------------------------

    def _sort(self, name: str, folder: str, enable_thinking: bool | None) -> None:
        """Finds the engine group of a model by its configuration, tokenizer and setting, without reading weights."""
        try:
            model, digest = trained_weights.kind_of(folder)
        except DfcError as error:
            raise type(error)(f"policy {name!r}: {error}") from error
        # Simulators have engines of their own: they may answer in the middle of a game of the same model.
        group_name = name if name == player_specs.SIMULATORS else f"{model}/{digest}/{enable_thinking}"
        self._engine_group_of[name] = group_name
        if group_name not in self._engine_groups:
            config, own = self._config, ModelConfig(folder, self._config.dtype, enable_thinking)
            try:
                host = ModelHost(own, config.rollout, slots=2 * config.rollout.slots, mesh=config.mesh)
            except WeightsError as error:  # its chat template
                raise WeightsError(f"policy {name!r}: {error}") from error
            self._engine_groups[group_name] = _EngineGroup(host)
            if name != player_specs.SIMULATORS:  # which is never restricted
                check_actions_fit(config, host.tokenizer)

    def _load_models(self, meeting: Meeting) -> None:
        """Releases the weights a meeting does not need, then reads those it needs."""
        wanted = [name for name in [*_sides(meeting), player_specs.SIMULATORS] if name in self._engine_group_of]
        groups = {self._engine_group_of[name] for name in wanted}
        for group_name, group in self._engine_groups.items():
            if group_name not in groups:
                group.engines = []
            _seat(group.engines, {}, {})  # otherwise old and new weights would be in memory together
        self._weights = {name: weights for name, weights in self._weights.items() if name in wanted}
        models = [name for name in _sides(meeting) if name in self._engine_group_of]
        for name in wanted:
            if name not in self._weights:
                self._weights[name] = self._load(name, self._engine_groups[self._engine_group_of[name]])
        for group_name in groups:
            group = self._engine_groups[group_name]
            here = [name for name in wanted if self._engine_group_of[name] == group_name]
            first = here[0]
            second = models[1] if len(models) > 1 and models[1] in here else first
            if not group.engines:
                group.engines = [
                    group.host.engine(self._weights[first], sampling=self._config.sampling)
                    for _ in range(self._config.rollout.workers)
                ]
            _seat(group.engines, self._weights[first], self._weights[second])

    def _load(self, name: str, group: _EngineGroup) -> Params:
        """Returns a policy's weights; CheckpointError if its run continued, so that they are no longer the same."""
        source = self._sources[name]
        weights = group.host.policy_params(source)
        if source.run is not None and name in self._known and trained_weights.fingerprint(source) != self._known[name]:
            raise CheckpointError(
                f"policy {name!r}: {source.run} has a newer checkpoint than the one that played so far; let the run"
                " end, or copy its folder and give another --workdir"
            )
        return weights


def _seat(engines: Iterable[RolloutEngine], first: Params, second: Params) -> None:
    """Gives engines the weights of the two sides."""
    for engine in engines:
        for at, params in (("policy", first), (_FIRST_POLICY, first), (_SECOND_POLICY, second)):
            engine.set_params(params, 0, policy=at)


def _sides(meeting: Meeting) -> list[str]:
    return [meeting.first] if meeting.second is None else [meeting.first, meeting.second]


def _truncated(episode: Episode) -> Episode:
    """Returns a game that a model of another engine could not read to its end as truncated instead of failed."""
    failure = episode.failure or ""
    seated = failure.startswith("opponent ")  # and not simulators, whose game has failed
    if not seated or OutOfContextError.__name__ not in failure:
        return episode
    spoke = any(reply.seat != episode.seat and reply.speaker == "opponent" for reply in episode.replies)
    return dataclasses.replace(episode, failure=None, overrun_by=1 - episode.seat if spoke else None)
