"""Model, tokenizer, engines and players of a run, ready to play."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import jax

from dfc import agreement
from dfc.config import AdapterConfig, RolloutConfig, RunConfig, SamplingConfig
from dfc.episodes import Episode, from_bytes, to_bytes
from dfc.errors import ConfigError
from dfc.evaluation import policy_specs
from dfc.games import registry, scripted
from dfc.games.chance import Chance
from dfc.games.game import Facts, Game
from dfc.games.scripted import Player
from dfc.models import huggingface, sharding
from dfc.models.chat import ChatTokenizer
from dfc.models.decoder_config import DecoderConfig
from dfc.models.lora import ALL_LINEAR, QKVO, LoraConfig
from dfc.models.transformer import Adapters, Params
from dfc.players import named
from dfc.players.endpoint import Endpoint
from dfc.players.remote import Remote
from dfc.rollout.constraints import cut_reply
from dfc.rollout.engine import Engine
from dfc.rollout.play import MOST_ACTIONS, Answerer, Arena, Job, system_prompt
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


_TRIAL_GAMES, _TRIAL_STEPS = 3, 200  # random-legal games per id that show what its actions look like, and their length
_OTHER = "other"  # the engine's name for an opponent with weights of its own
Opponent = str | Policy | Player | Remote


def make_engine(
    rollout: RolloutConfig,
    model: DecoderConfig,
    tokenizer: ChatTokenizer,
    params: Params,
    mesh: jax.sharding.Mesh,
    *,
    slots: int,
    hosts: Literal["same", "own"] = "same",
) -> Engine:
    """Returns an engine that plays as a configuration says; the last three are as in `Engine`."""
    longer = [text for text in rollout.stop if len(text) > 1]  # a single character is whole in one id
    return Engine(
        model,
        params,
        slots=slots,
        max_length=rollout.max_length,
        stop_ids=tokenizer.stop_ids(rollout.stop),
        sampling=rollout.sampling,
        rows=rollout.rows or rollout.slots,
        widths=rollout.widths or None,
        lengths=rollout.lengths or None,
        decode_steps=min(rollout.decode_steps, rollout.max_reply_length),
        ends=StopStrings(longer, tokenizer.decode) if longer else None,
        mesh=mesh,
        hosts=hosts,
    )


def load_tokenizer(source: Path) -> ChatTokenizer:
    """Returns a model folder's tokenizer; where it departs from the chat template is printed once in a process."""
    tokenizer = ChatTokenizer.load(source)
    _say_departures(str(source), tokenizer.departure, tokenizer.opens_thought)
    return tokenizer


@functools.cache
def _say_departures(source: str, departure: str | None, opens_thought: bool) -> None:
    if not agreement.is_first():
        return
    if departure is not None:
        print(f"{source}: {departure}", flush=True)  # noqa: T201 - what a person wants to know before the first step
    if opens_thought:
        print(  # noqa: T201 - the same
            f"{source}: The chat template opens a thought (<think>) before every reply; replies of scripted players, "
            "disturbances and rows that do not close it begin with </think>.",
            flush=True,
        )


class Table:
    """Loads the initial policy and plays any weights of its shape against any opponent.

    Attributes:
      source: the model's folder. model: its shape. initial: its weights, sharded over the mesh, in four bits if the
        configuration says so.
      facts: what is known of each configured game. device: the hardware, in words.
    """

    def __init__(self, config: RunConfig, look: Callable[[], None] | None = None) -> None:
        """Loads model and tokenizer, and makes the engines.

        Args:
          config: of the run.
          look: ends a play between two calls of the engine by what it raises (`dfc.interruption.Stop.look`).
        """
        self._config, self._look = config, look
        self.source: Path = huggingface.resolve(config.model.path)
        self.mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
        nf4 = config.adapter.base == "nf4"
        self.model, self.initial = huggingface.load(self.source, mesh=self.mesh, dtype=config.model.dtype, nf4=nf4)
        self.tokenizer = load_tokenizer(self.source)
        self.facts: dict[str, Facts] = {g: registry.make(g, **options).facts for g, options in config.games.items()}
        _refuse_what_cannot_begin(config, self.tokenizer)
        refuse_cut_actions(config, self.tokenizer)
        self.device = f"{jax.device_count()} x {jax.devices()[0].device_kind}, jax {jax.__version__}"
        # Hosts play games of their own where each has whole copies of the model, or shards that no other host shares.
        self._apart = jax.process_count() > 1 and tensor_devices_on_one_host(self.mesh)
        self._first = jax.process_index() if self._apart else 0  # of the shares of every batch of games
        self._shares = jax.process_count() if self._apart else config.rollout.workers  # several hosts: one worker each
        self._players: dict[str, Player | Remote] = {}
        self._staff = self._seated_staff()
        if config.recipe == "divide_fuse_conquer" and config.divide_fuse_conquer.opponent != "pool":
            self._opponent(config.divide_fuse_conquer.opponent)  # a key that is missing shows before the first game
        self._engines = [self._engine() for _ in range(config.rollout.workers)]

    def close(self) -> None:
        """Gives up the engines and their caches; nothing can be played afterwards."""
        self._engines = []
        for player in self._players.values():
            if isinstance(player, Remote):
                player.close()
        self._players = {}
        for endpoint in self.endpoints:
            endpoint.close()
        self._staff = {}

    @property
    def endpoints(self) -> list[Endpoint]:
        """Chat endpoints among the staff, each once; their reports say what was spent."""
        return list({id(who): who for who in self._staff.values() if isinstance(who, Endpoint)}.values())

    @property
    def engines(self) -> list[Engine]:
        """Every worker's."""
        return list(self._engines)

    def play(
        self,
        jobs: Sequence[Job],
        policy: Policy,
        opponent: Opponent,
        *,
        name: str = "",
        both_seats: bool = False,
        sampling: SamplingConfig | None = None,
    ) -> list[Episode]:
        """Returns the episodes of the jobs in their order.

        Every worker, or every host, takes each n-th job: which one plays what, and in which slot, is the same in
        every run. All hosts return all episodes.

        Args:
          jobs: games to play.
          policy: the weights to play with.
          opponent: ``initial`` (the initial policy), ``itself``, a program by its strength, a chat endpoint as
            ``http://HOST/v1#MODEL``; or other weights of the same shape, a program, a remote player.
          name: of the opponent in the records; what was given as `opponent` if empty.
          both_seats: against ``itself``: each game of two seats gives two episodes, one for each seat, in this order.
          sampling: how players draw ids; None: as the configuration says.
        """
        name = name or (opponent if isinstance(opponent, str) else "other")
        other = self._opponent(opponent)
        batches = [list(range(len(jobs)))]
        # Few games share one pass: apart, each id would leave most slots empty.
        if not self._config.rollout.mix_games and len(jobs) > self._config.rollout.slots * len(self._engines):
            games = dict.fromkeys(job.game for job in jobs)
            batches = [[i for i, job in enumerate(jobs) if job.game == game] for game in games]

        def work(worker: int) -> dict[int, list[Episode]]:
            engine, seated = self._engines[worker], other
            engine.set_params(policy.params, engine.version() + 1, policy.adapters)
            if isinstance(seated, Policy):
                engine.set_params(seated.params, 0, seated.adapters, policy=_OTHER)
                seated = _OTHER
            arena = Arena(
                self._config.rollout,
                self.tokenizer,
                engine,
                opponent=seated,
                opponent_name=name,
                staff=self._staff,
                both_seats=both_seats,
                sampling=sampling,
                look=self._look,
            )
            games: dict[int, list[Episode]] = {}
            try:
                for batch in batches:
                    mine = batch[worker + self._first :: self._shares]
                    games.update(zip(mine, arena.play_all([jobs[i] for i in mine]), strict=True))
            finally:  # the engine lets go of the policies: what the trainer makes next would lie beside them
                engine.set_params(self.initial, engine.version())
                if seated == _OTHER:
                    engine.set_params(self.initial, 0, policy=_OTHER)
            return games

        with ThreadPoolExecutor(len(self._engines)) as pool:  # a program's run releases Python's lock
            played = {i: e for found in pool.map(work, range(len(self._engines))) for i, e in found.items()}
        if not self._apart:
            return [episode for i in range(len(jobs)) for episode in played[i]]
        order, found = [], []
        for data in agreement.gathered_bytes(to_bytes([episode for i in sorted(played) for episode in played[i]])):
            found += from_bytes(data)
        counts = [2 if both_seats and self.facts[job.game].seats > 1 else 1 for job in jobs]
        for host in range(jax.process_count()):
            mine = sorted(i for batch in batches for i in batch[host :: self._shares])
            order += [i for i in mine for _ in range(counts[i])]
        return [episode for _, episode in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]

    def _opponent(self, opponent: Opponent) -> str | Policy | Player | Remote:
        """Returns who that is: the name of a policy of the engine, other weights, a program or a remote player."""
        if not isinstance(opponent, str):
            return opponent
        if opponent in ("initial", "itself"):
            return {"initial": "initial", "itself": "policy"}[opponent]
        if opponent not in self._players:
            player = named.player(opponent, self._config.divide_fuse_conquer.key_variable)
            if isinstance(player, Remote) and jax.process_count() > 1:
                why = f"needs a run of one process, this one has {jax.process_count()}, which would get other replies"
                raise ConfigError([f"divide_fuse_conquer.opponent={opponent!r}: {why}"])
            self._players[opponent] = player
        return self._players[opponent]

    def _seated_staff(self) -> dict[str, Answerer]:
        """Returns who answers for worlds and judges, by role; nobody where the games' scripts do."""
        who, roles = self._config.staff.who, {role for facts in self.facts.values() for role in facts.staff}
        if who == policy_specs.SCRIPT or not roles:
            return {}
        if who == "initial":
            return dict.fromkeys(sorted(roles), "initial")
        if jax.process_count() > 1:
            why = f"needs a run of one process, this one has {jax.process_count()}, which would get other replies"
            raise ConfigError([f"staff.who={who!r}: {why}"])
        spec = policy_specs.PolicySpec(policy_specs.STAFF, who, "endpoint")
        endpoint = Endpoint(policy_specs.endpoint_config(spec, self._config.staff.endpoint), name=policy_specs.STAFF)
        return dict.fromkeys(sorted(roles), endpoint)

    def _engine(self) -> Engine:
        rollout = self._config.rollout
        voices = 2 if any(facts.seats > 1 for facts in self.facts.values()) else 1
        slots = (voices + sum(isinstance(who, str) for who in self._staff.values())) * rollout.slots
        hosts: Literal["same", "own"] = "own" if self._apart else "same"
        engine = make_engine(rollout, self.model, self.tokenizer, self.initial, self.mesh, slots=slots, hosts=hosts)
        engine.set_params(self.initial, 0, policy="initial")
        return engine


def _refuse_what_cannot_begin(config: RunConfig, tokenizer: ChatTokenizer) -> None:
    """Raises where a player's first turn leaves no room for a reply: every such game would be truncated unplayed.

    Raises:
      ConfigError: names each id and how many ids its first turn takes.
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
                f"games.{game_id}: its first turn takes {length} ids, so no game would begin; rollout.max_length="
                f"{config.rollout.max_length} must be larger, and batch.row_length at least as large"
            )
        elif 0 < most < length:
            found.append(
                f"games.{game_id}: its first turn takes {length} ids, so no game would begin; "
                f"rollout.max_prompt_length={most} must be at least that, or 0 for no limit of its own"
            )
    if found:
        raise ConfigError(found)


def refuse_cut_actions(config: RunConfig, tokenizer: ChatTokenizer) -> None:
    """Raises where replies are restricted to legal actions of which one cannot be written to its end.

    A few random-legal games of each id show what its actions look like; an action that only comes up later ends its
    own game as failed (`dfc.rollout.one_game`).

    Raises:
      ConfigError: names for each such id the action, its tokens, the limit and what to do.
    """
    rollout, found = config.rollout, []
    for game_id, options in config.games.items() if rollout.legal_only else ():
        game = registry.make(game_id, **options)
        limit = min(rollout.max_reply_length, game.reply_ids or rollout.max_reply_length)
        actions = _actions_met(game)
        cut = cut_reply(actions, tokenizer.encode_reply, tokenizer.decode, limit=limit, stop=rollout.stop)
        if cut is not None:
            longest = max(len(tokenizer.encode_reply(action)) for action in actions)
            cure = f"set rollout.max_reply_length to {longest} or more" if limit < longest else "change rollout.stop"
            if limit < longest and limit < rollout.max_reply_length:
                cure = f"the game itself allows no more than {limit}: set rollout.legal_only=false"
            found.append(f"games.{game_id}: {cut}, so that with rollout.legal_only=true it would be cut; {cure}")
    if found:
        raise ConfigError(found)


def _actions_met(game: Game) -> list[str]:
    """Returns the legal actions that a few random-legal games show, each once, where a reply would be restricted."""
    met: dict[str, None] = {}
    if not game.lists_actions:
        return []
    chance = Chance(0)
    try:
        staff = scripted.staff(game) if game.staff else {}
        for seed in range(_TRIAL_GAMES):
            game.reset(seed)
            for _ in range(_TRIAL_STEPS):
                seat = game.to_move
                if seat is None:
                    break
                if seat >= game.seats:
                    game.step(staff[game.role(seat)].act(game, chance))
                    continue
                actions = game.legal_actions()
                if not actions:
                    break
                if len(actions) <= MOST_ACTIONS:
                    met.update(dict.fromkeys(actions))
                game.step(actions[chance.below(len(actions))])
    except Exception:  # noqa: BLE001 - a game that raises fails the games it does so in, with its cause, and no run
        return list(met)
    return list(met)
