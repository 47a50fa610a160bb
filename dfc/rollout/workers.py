"""Model, tokenizer, engines and players of a run, ready to play."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from dfc import multihost
from dfc.config import (
    GamesRunConfig,
    OpponentReplyConfig,
    PlayersRunConfig,
    PlayingRunConfig,
    RlRunConfig,
    SamplingConfig,
)
from dfc.episodes import Episode, from_bytes, to_bytes
from dfc.errors import ConfigError
from dfc.games import registry, scripted
from dfc.games.game import Game, GameInfo
from dfc.games.rng import GameRng
from dfc.games.scripted import STRENGTHS, Player
from dfc.inference.constraints import cut_reply
from dfc.inference.protocol import RolloutEngine
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.players import factory, player_specs
from dfc.players.endpoint import Endpoint
from dfc.players.player_specs import OPPONENT, PlayerSpec
from dfc.players.remote import Remote
from dfc.rollout import trained_weights
from dfc.rollout.host import ModelHost, PolicyWeights, release
from dfc.rollout.runner import MOST_ACTIONS, EpisodeSpec, RolloutRunner, SeatPlayer, system_prompt

_TRIAL_GAMES, _TRIAL_STEPS = 3, 200  # random-legal games per game id that show its actions, and their length
_OTHER = "other"  # the engine's name for an opponent with weights of its own
Opponent = str | PolicyWeights | Player | Remote


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
      host: the model. initial_params: its weights, on the devices as training splits them, or playing where nothing is
        trained; in four bits if the configuration says so.
      info: what is known of each configured game.
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
        # A run that trains moves weights: every engine has copies, of the initial policy too where the two meet.
        copies = 0
        if isinstance(config, RlRunConfig):
            copies = config.rollout.workers * (2 if conversations(config) > 1 and config.adapter.rank == 0 else 1)
        self.host = ModelHost(
            config.model,
            config.rollout,
            slots=conversations(config) * config.rollout.slots,
            mesh=config.mesh,
            nf4=nf4,
            trained_copies=copies,
        )
        self.initial_params = self.host.initial_params()
        self.info: dict[str, GameInfo] = {g: registry.make(g, **options).info for g, options in config.games.items()}
        _check_first_turns(config, self.host.tokenizer)
        check_actions_fit(config, self.host.tokenizer)
        apart = self.host.apart
        self._first = jax.process_index() if apart else 0  # of the shares of every batch of games
        self._shares = jax.process_count() if apart else config.rollout.workers  # several hosts: one worker each
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
    def engines(self) -> list[RolloutEngine]:
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
                self.host.tokenizer,
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
                release(engine, ["policy", *([_OTHER] if seated == _OTHER else [])], self.initial_params)
            return games

        with ThreadPoolExecutor(len(self._engines)) as pool:  # a program's run releases Python's lock
            played = {i: e for found in pool.map(work, range(len(self._engines))) for i, e in found.items()}
        if not self.host.apart:
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
        hint = (
            ", and they play in one engine; name a model of the same kind, or compare the two with the recipe evaluate"
        )
        self.host.refuse_other(weights, f"{spec.name}: {spec.who!r}", hint)
        if weights.run is None and not self._nf4 and huggingface.resolve(weights.folder) == self.host.source:
            return PolicyWeights(self.initial_params)
        return PolicyWeights(self.host.policy_params(weights))

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

    def _engine(self) -> RolloutEngine:
        trained = self._config if isinstance(self._config, RlRunConfig) else None
        reply = None if trained is None else trained.opponent_reply.sampling
        engine = self.host.engine(
            self.initial_params,
            sampling=self._sampling,
            hosts="own" if self.host.apart else "same",
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
