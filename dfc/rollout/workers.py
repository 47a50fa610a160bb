"""Model, tokenizer, engines and players of a run, ready to play."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import jax

from dfc import multihost
from dfc.config import (
    GamesRunConfig,
    MeshConfig,
    OpponentReplyConfig,
    PlayersRunConfig,
    PlayingRunConfig,
    RlRunConfig,
    RolloutConfig,
    SamplingConfig,
)
from dfc.episodes import Episode, from_bytes, to_bytes
from dfc.errors import ConfigError
from dfc.games import registry, scripted
from dfc.games.game import Game, GameInfo
from dfc.games.rng import GameRng
from dfc.games.scripted import STRENGTHS, Player
from dfc.inference import decoding_mesh
from dfc.inference.constraints import cut_reply
from dfc.inference.engine import Engine
from dfc.inference.slots import tensor_devices_on_one_host
from dfc.inference.stop_strings import StopStrings
from dfc.models import huggingface, sharding
from dfc.models.chat import ChatTokenizer
from dfc.models.config import DecoderConfig
from dfc.models.execution import platform_of
from dfc.models.transformer import Adapters, Params
from dfc.players import factory, player_specs
from dfc.players.endpoint import Endpoint
from dfc.players.player_specs import OPPONENT, PlayerSpec
from dfc.players.remote import Remote
from dfc.rollout import trained_weights
from dfc.rollout.runner import MOST_ACTIONS, EpisodeSpec, RolloutRunner, SeatPlayer, system_prompt


@dataclasses.dataclass(frozen=True)
class PolicyWeights:
    """The weights to play with, in the engine's form, and the adapters on them, if any."""

    params: Params
    adapters: Adapters | None = None


_TRIAL_GAMES, _TRIAL_STEPS = 3, 200  # random-legal games per game id that show its actions, and their length
_OTHER = "other"  # the engine's name for an opponent with weights of its own
Opponent = str | PolicyWeights | Player | Remote


def make_engine(
    rollout: RolloutConfig,
    model: DecoderConfig,
    tokenizer: ChatTokenizer,
    params: Params,
    mesh: jax.sharding.Mesh,
    *,
    sampling: SamplingConfig,
    slots: int,
    hosts: Literal["same", "own"] = "same",
    other_sampling: Sequence[SamplingConfig] = (),
    kept_sets: bool = False,
) -> Engine:
    """Returns an engine that plays as a configuration says; what follows the mesh is as in `Engine`."""
    longer = [text for text in rollout.stop if len(text) > 1]  # a single character is whole in one token
    return Engine(
        model,
        params,
        slots=slots,
        max_length=rollout.max_length,
        stop_token_ids=tokenizer.stop_token_ids(rollout.stop),
        sampling=sampling,
        rows=rollout.rows or rollout.slots,
        prefill_buckets=rollout.prefill_buckets or None,
        decode_steps=min(rollout.decode_steps, rollout.max_reply_length),
        ends=StopStrings(longer, tokenizer.decode) if longer else None,
        mesh=mesh,
        hosts=hosts,
        other_sampling=other_sampling,
        kept_sets=kept_sets,
    )


def make_decoding_mesh(
    rollout: RolloutConfig,
    model: DecoderConfig,
    mesh: jax.sharding.Mesh,
    *,
    conversations: int,
    nf4: bool = False,
    policies: int = 1,
) -> jax.sharding.Mesh:
    """Returns the mesh that engines play on, over the devices of the one that training uses; a choice is printed.

    Conversations are those of one engine, and every worker has one; with `nf4` the weights are held in four bits;
    `policies` counts those whose weights are split for playing at once, all engines' together.
    """
    chosen = decoding_mesh.choose(
        rollout.sharding,
        model,
        MeshConfig(*mesh.devices.shape),
        of_a_host=jax.local_device_count(),
        platform=platform_of(mesh),
        memory=decoding_mesh.device_memory(mesh) if rollout.sharding == "auto" and mesh.size > 1 else None,
        rows=rollout.rows or rollout.slots,
        conversations=conversations * rollout.workers,
        positions=rollout.max_length,
        nf4=nf4,
        policies=policies,
    )
    if chosen.sharding != "training" and multihost.is_primary():
        print(f"playing: {chosen.describe()}", flush=True)  # noqa: T201 - progress
    return decoding_mesh.make(mesh, chosen.sizes)


def load_tokenizer(source: Path, *, enable_thinking: bool | None) -> ChatTokenizer:
    """Returns a model folder's tokenizer; where it departs from the chat template is printed once in a process.

    Raises:
      WeightsError: as `ChatTokenizer.load`.
    """
    tokenizer = ChatTokenizer.load(source, enable_thinking=enable_thinking)
    _print_departures(str(source), tokenizer.departure, tokenizer.opens_thought)
    _print_other_thinking(source, enable_thinking)
    return tokenizer


@functools.cache
def _print_departures(source: str, departure: str | None, opens_thought: bool) -> None:
    if not multihost.is_primary():
        return
    if departure is not None:
        print(f"{source}: {departure}", flush=True)  # noqa: T201 - progress
    if opens_thought:
        print(  # noqa: T201 - the same
            f"{source}: The chat template opens a thought (<think>) before every reply; replies of scripted players, "
            "disturbances and rows that do not close it begin with </think>.",
            flush=True,
        )


@functools.cache
def _print_other_thinking(source: Path, enable_thinking: bool | None) -> None:
    recorded = player_specs.recorded_thinking(source)
    if multihost.is_primary() and recorded not in (None, enable_thinking):
        print(  # noqa: T201 - the same
            f"{source}: was trained with model.enable_thinking={recorded}; here it is {enable_thinking}.", flush=True
        )


def conversations(config: PlayersRunConfig) -> int:
    """Returns how many conversations of one game an engine's cache holds.

    They are those of the seats that a model may play, and of the simulators that the run's own model plays.
    """
    info = [registry.make(game, **options).info for game, options in config.games.items()]
    roles = {role for each in info for role in each.simulators} if config.simulators == "initial" else ()
    return (2 if any(each.seats > 1 for each in info) else 1) + len(roles)


class RolloutWorkers:
    """Loads the initial policy and plays any weights of its shape against any opponent.

    Attributes:
      source: the model's folder. model: its shape. initial_params: its weights, sharded over the mesh, in four bits if
        the configuration says so. mesh: the devices, as training splits them, or playing where nothing is trained.
      info: what is known of each configured game. device: the hardware, as text.
    """

    def __init__(
        self,
        config: PlayingRunConfig,
        check_stop: Callable[[], None] | None = None,
        *,
        sampling: SamplingConfig,
        nf4: bool = False,
    ) -> None:
        """Loads model and tokenizer, and makes the engines.

        Games of the run are played as they are written in `config`, and its endpoints asked; `sampling` is how players'
        tokens are sampled where `play` is not given others. `check_stop` is called between engine calls; its exception
        aborts the play (`dfc.runs.stop_signals.Stop.check_stop`).
        """
        self._config, self._check_stop, self._sampling, self._nf4 = config, check_stop, sampling, nf4
        self.source: Path = huggingface.resolve(config.model.path)
        self.mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
        self._playing_mesh = self.mesh
        if self.mesh.size > 1:
            # A run that trains moves weights: every engine has copies, of the initial policy too where the two meet.
            copied = 0
            if isinstance(config, RlRunConfig):
                copied = config.rollout.workers * (2 if conversations(config) > 1 and config.adapter.rank == 0 else 1)
            self._playing_mesh = make_decoding_mesh(
                config.rollout,
                dataclasses.replace(trained_weights.kind_of(str(self.source))[0], dtype=config.model.dtype),
                self.mesh,
                conversations=conversations(config) * config.rollout.slots,
                nf4=nf4,
                policies=max(1, copied),
            )
        if not isinstance(config, RlRunConfig):  # weights are placed for playing from the beginning
            self.mesh = self._playing_mesh
        self.model, self.initial_params = huggingface.load(
            self.source, mesh=self.mesh, dtype=config.model.dtype, nf4=nf4
        )
        self.tokenizer = load_tokenizer(self.source, enable_thinking=config.model.enable_thinking)
        self.info: dict[str, GameInfo] = {g: registry.make(g, **options).info for g, options in config.games.items()}
        _check_first_turns(config, self.tokenizer)
        check_actions_fit(config, self.tokenizer)
        self.device = f"{jax.device_count()} x {jax.devices()[0].device_kind}, jax {jax.__version__}"
        # Hosts play games of their own where each has whole copies of the model, or shards that no other host shares.
        self._apart = jax.process_count() > 1 and tensor_devices_on_one_host(self._playing_mesh)
        self._first = jax.process_index() if self._apart else 0  # of the shares of every batch of games
        self._shares = jax.process_count() if self._apart else config.rollout.workers  # several hosts: one worker each
        self._players: dict[str, Player | Remote | PolicyWeights] = {}  # opponents that were named
        self._simulators = self._make_simulators()
        self._engines = [self._engine() for _ in range(config.rollout.workers)]

    def close(self) -> None:
        """Frees the engines and their caches; nothing can be played afterwards."""
        self._engines = []
        for player in [*self._players.values(), *self.endpoints]:
            if isinstance(player, Remote):
                player.close()
        self._players = {}
        self._simulators = {}

    @property
    def endpoints(self) -> list[Endpoint]:
        """Chat endpoints among the opponents and simulators, each once; their reports say what was spent."""
        seated = [*self._players.values(), *self._simulators.values()]
        return list({id(who): who for who in seated if isinstance(who, Endpoint)}.values())

    @property
    def engines(self) -> list[Engine]:
        """Every worker's."""
        return list(self._engines)

    def play(
        self,
        specs: Sequence[EpisodeSpec],
        policy: PolicyWeights,
        opponent: Opponent,
        *,
        name: str = "",
        both_seats: bool = False,
        sampling: SamplingConfig | None = None,
        opponent_reply: OpponentReplyConfig | None = None,
    ) -> list[Episode]:
        """Returns the episodes of the specs in their order.

        Every worker, or every host, takes each n-th spec: which one plays what, and in which slot, is the same in
        every run. All hosts return all episodes.

        Args:
          specs: games to play.
          policy: the weights to play with.
          opponent: ``initial`` (the initial policy), ``itself``, or a player as a configuration names one, a model of
            the same shape and tokenizer; or other weights of the same shape, a scripted player, a remote player.
          name: of the opponent in the records; what was given as `opponent` if empty.
          both_seats: against ``itself``: each game of two seats gives two episodes, one for each seat, in this order.
          sampling: how players' tokens are sampled; None: as everywhere.
          opponent_reply: how the opponent replies where it is a policy; None: as the learner.
        """
        name = name or (opponent if isinstance(opponent, str) else "other")
        other = self._opponent(opponent)
        batches = [list(range(len(specs)))]
        # Few games share one pass: apart, each game would leave most slots empty.
        if not self._config.rollout.mix_games and len(specs) > self._config.rollout.slots * len(self._engines):
            games = dict.fromkeys(spec.game for spec in specs)
            batches = [[i for i, spec in enumerate(specs) if spec.game == game] for game in games]

        def work(worker: int) -> dict[int, list[Episode]]:
            engine, seated = self._engines[worker], other
            engine.set_params(policy.params, engine.version() + 1, policy.adapters)
            if isinstance(seated, PolicyWeights):
                engine.set_params(seated.params, 0, seated.adapters, policy=_OTHER)
                seated = _OTHER
            runner = RolloutRunner(
                self._config.rollout,
                self.tokenizer,
                engine,
                opponent=seated,
                opponent_name=name,
                simulators=self._simulators,
                both_seats=both_seats,
                sampling=sampling,
                opponent_reply=opponent_reply,
                check_stop=self._check_stop,
            )
            games: dict[int, list[Episode]] = {}
            try:
                for batch in batches:
                    mine = batch[worker + self._first :: self._shares]
                    games.update(zip(mine, runner.play_all([specs[i] for i in mine]), strict=True))
            finally:  # the engine releases the policies' weights so that the next update does not hold two copies
                engine.set_params(self.initial_params, engine.version())
                if seated == _OTHER:
                    engine.set_params(self.initial_params, 0, policy=_OTHER)
                engine.forget_copies()
            return games

        with ThreadPoolExecutor(len(self._engines)) as pool:  # a program's run releases Python's lock
            played = {i: e for found in pool.map(work, range(len(self._engines))) for i, e in found.items()}
        if not self._apart:
            return [episode for i in range(len(specs)) for episode in played[i]]
        order, found = [], []
        for data in multihost.all_gather_bytes(to_bytes([episode for i in sorted(played) for episode in played[i]])):
            found += from_bytes(data)
        counts = [2 if both_seats and self.info[spec.game].seats > 1 else 1 for spec in specs]
        for host in range(jax.process_count()):
            mine = sorted(i for batch in batches for i in batch[host :: self._shares])
            order += [i for i in mine for _ in range(counts[i])]
        return [episode for _, episode in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]

    def seat(self, opponent: str) -> dict[str, str]:
        """Prepares an opponent before the first game, to fail early if a key is missing.

        Returns:
          What identifies its weights, if it has its own (`trained_weights.identities`).
        """
        if not isinstance(self._opponent(opponent), PolicyWeights):
            return {}
        return trained_weights.identities([player_specs.parse(opponent, OPPONENT)])

    def _opponent(self, opponent: Opponent) -> str | PolicyWeights | Player | Remote:
        """Returns who that is: a policy of the engine by name, other weights, a scripted player or a remote player."""
        if not isinstance(opponent, str):
            return opponent
        if opponent in ("initial", "itself"):
            return {"initial": "initial", "itself": "policy"}[opponent]
        if opponent not in self._players:
            spec = player_specs.parse(opponent, OPPONENT)
            self._players[opponent] = self.weights_of(spec) if spec.kind == "model" else self._player(spec)
        return self._players[opponent]

    def weights_of(self, spec: PlayerSpec) -> PolicyWeights:
        """Returns the weights of a model that can play in these engines.

        Raises:
          ConfigError: there is no such model, or it has another shape or tokenizer than the run's. WeightsError,
            CheckpointError: its weights cannot be read.
        """
        try:
            weights = player_specs.weights_in(spec.who, ("initial", "itself", *STRENGTHS))
        except ConfigError as error:
            raise ConfigError([f"{spec.name}: {problem}" for problem in error.problems]) from error
        what = trained_weights.difference(weights.folder, self._config.model.path)
        if what is not None:
            why = f"has another {what} than model.path={self._config.model.path!r}, and they play in one engine"
            hint = "name a model of the same kind, or compare the two with the recipe evaluate"
            raise ConfigError([f"{spec.name}: {spec.who!r} ({weights.folder}) {why}; {hint}"])
        if (problem := player_specs.thinking_problem(weights, self._config.model)) is not None:
            raise ConfigError([f"{spec.name}: {spec.who!r} {problem}"])
        if weights.run is None and not self._nf4 and huggingface.resolve(weights.folder) == self.source:
            return PolicyWeights(self.initial_params)
        return PolicyWeights(trained_weights.load(weights, self.model, self.mesh))

    def _player(self, spec: PlayerSpec) -> Player | Remote:
        """Returns a player of no engine."""
        if spec.kind == "endpoint" and jax.process_count() > 1:
            why = f"needs a run of one process, this one has {jax.process_count()}, which would get other replies"
            raise ConfigError([f"{spec.name}={spec.who!r}: {why}"])
        return factory.player(spec, player_specs.endpoint_config(self._config, spec.name))

    def _make_simulators(self) -> dict[str, SeatPlayer]:
        """Returns who plays the simulators, by role; empty where the games' scripts do."""
        who, roles = self._config.simulators, {role for info in self.info.values() for role in info.simulators}
        if who == player_specs.SCRIPT or not roles:
            return {}
        spec = player_specs.simulators(self._config)
        return dict.fromkeys(sorted(roles), "initial" if spec is None else self._player(spec))

    def _engine(self) -> Engine:
        rollout = self._config.rollout
        hosts: Literal["same", "own"] = "own" if self._apart else "same"
        trained = self._config if isinstance(self._config, RlRunConfig) else None
        reply = None if trained is None else trained.opponent_reply.sampling
        engine = make_engine(
            rollout,
            self.model,
            self.tokenizer,
            self.initial_params,
            self._playing_mesh,
            sampling=self._sampling,
            slots=conversations(self._config) * rollout.slots,
            hosts=hosts,
            other_sampling=[] if reply is None else [reply],
            kept_sets=trained is not None and self._sampling.filtered,
        )
        engine.set_params(self.initial_params, 0, policy="initial")
        return engine


def _check_first_turns(config: GamesRunConfig, tokenizer: ChatTokenizer) -> None:
    """Raises where a player's first turn leaves no room for a reply: every such game would be truncated unplayed.

    Raises:
      ConfigError: names each game and how many tokens its first turn takes.
    """
    found = []
    for game_id, options in config.games.items():
        game = registry.make(game_id, **options)
        game.reset(0)
        seat = game.to_move or 0
        length = len(tokenizer.first_turn(game.observation(seat), system=system_prompt(config.rollout)))
        most = config.rollout.max_prompt_length
        if length >= config.rollout.max_length:
            found.append(
                f"games.{game_id}: its first turn takes {length} tokens, so no game would begin; rollout.max_length="
                f"{config.rollout.max_length} must be larger, and batch.row_length at least as large"
            )
        elif 0 < most < length:
            found.append(
                f"games.{game_id}: its first turn takes {length} tokens, so no game would begin; "
                f"rollout.max_prompt_length={most} must be at least that, or 0 for no limit of its own"
            )
    if found:
        raise ConfigError(found)


def check_actions_fit(config: GamesRunConfig, tokenizer: ChatTokenizer) -> None:
    """Raises where replies are restricted to legal actions of which one cannot be written to its end.

    A few random-legal games of each game id show what its actions look like; an action that only comes up later ends
    its own game as failed (`dfc.rollout.match`).

    Raises:
      ConfigError: names for each such game the action, its tokens, the limit and what to do.
    """
    rollout, found = config.rollout, []
    most, key = rollout.max_reply_length, "rollout.max_reply_length"
    if isinstance(config, RlRunConfig) and 0 < config.opponent_reply.max_length < most:
        most, key = config.opponent_reply.max_length, "opponent_reply.max_length"
    for game_id, options in config.games.items() if rollout.legal_only else ():
        game = registry.make(game_id, **options)
        limit = min(most, game.max_reply_tokens or most)
        actions = _sampled_legal_actions(game)
        cut = cut_reply(actions, tokenizer.encode_reply, tokenizer.decode, limit=limit, stop=rollout.stop)
        if cut is not None:
            longest = max(len(tokenizer.encode_reply(action)) for action in actions)
            hint = f"set {key} to {longest} or more" if limit < longest else "change rollout.stop"
            if limit < longest and limit < most:
                hint = f"the game itself allows no more than {limit}: set rollout.legal_only=false"
            found.append(f"games.{game_id}: {cut}, so that with rollout.legal_only=true it would be cut; {hint}")
    if found:
        raise ConfigError(found)


def _sampled_legal_actions(game: Game) -> list[str]:
    """Returns the legal actions that a few random-legal games show, each once, where a reply would be restricted."""
    seen_actions: dict[str, None] = {}
    if not game.lists_actions:
        return []
    rng = GameRng(0)
    try:
        simulators = scripted.simulators(game) if game.simulators else {}
        for seed in range(_TRIAL_GAMES):
            game.reset(seed)
            for _ in range(_TRIAL_STEPS):
                seat = game.to_move
                if seat is None:
                    break
                if seat >= game.seats:
                    game.step(simulators[game.role(seat)].act(game, rng))
                    continue
                actions = game.legal_actions()
                if not actions:
                    break
                if len(actions) <= MOST_ACTIONS:
                    seen_actions.update(dict.fromkeys(actions))
                game.step(actions[rng.randrange(len(actions))])
    except (Exception, SystemExit):  # noqa: BLE001 - a game that raises fails the games it does so in, with its cause, and no run
        return list(seen_actions)
    return list(seen_actions)
