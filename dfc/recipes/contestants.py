"""The players of a tournament, ready to play: endpoints, programs, and models in as few engines as possible.

Weights of the same architecture and tokenizer share engines. Only what the present meeting needs is in memory: two
models at most, and configured staff.
"""

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import jax
import numpy as np

from dfc.config import RunConfig
from dfc.episodes import Episode, Reply, Speaker
from dfc.errors import CheckpointError, DfcError
from dfc.evaluation import policy_specs
from dfc.evaluation.pairing import Meeting
from dfc.games import registry, scripted
from dfc.games.chance import Chance, derive_seed
from dfc.games.game import Verdict
from dfc.games.scripted import Player
from dfc.interruption import Interrupted
from dfc.models import families, folders, huggingface, sharding
from dfc.models.chat import ChatTokenizer
from dfc.models.decoder_config import DecoderConfig
from dfc.models.folders import TOKENIZER_FILES
from dfc.models.safetensors_files import Location
from dfc.models.transformer import Params
from dfc.players import rounds
from dfc.players.endpoint import Endpoint
from dfc.players.named import AnyGame
from dfc.players.remote import Call, Message, Remote
from dfc.recipes import trained_weights
from dfc.recipes.seated_model import OutOfContextError, SeatedModel
from dfc.recipes.table import load_tokenizer, make_engine, refuse_cut_actions
from dfc.rollout.engine import Engine
from dfc.rollout.play import Arena, Job, system_prompt

_AT_THE_FIRST = "first"  # names of the two sides' weights in an engine
_AT_THE_SECOND = "second"


@dataclasses.dataclass
class _Kind:
    """Models that can share engines."""

    model: DecoderConfig
    tokenizer: ChatTokenizer
    engines: list[Engine] = dataclasses.field(default_factory=list)


class _Prompted(Remote):
    """An endpoint that is told first how to play, where no arena does that."""

    def __init__(self, endpoint: Endpoint, system: str) -> None:
        super().__init__(lambda _: "", name=endpoint.name)
        self._endpoint = endpoint
        self._system = system

    def ask(self, messages: Sequence[Message]) -> Call:
        """Starts a call of the endpoint."""
        return self._endpoint.ask([Message(role="system", content=self._system), *messages])


class Contestants:
    """Everybody who plays in a tournament. Close it, or use it as a context manager.

    Attributes:
      device: the hardware, in words.
    """

    def __init__(self, config: RunConfig) -> None:
        """Reads keys, configurations and tokenizers; weights are read when they are needed.

        Raises:
          ConfigError: a key is not set. WeightsError: a folder is no model that is computed here.
        """
        self._config = config
        self._specs = {spec.name: spec for spec in policy_specs.policies(config)}
        helper = policy_specs.staff(config.evaluate)
        if helper is not None:
            self._specs[helper.name] = helper
        self._has_staff = helper is not None
        settings = config.evaluate.endpoint
        self._endpoints = {
            spec.name: Endpoint(
                policy_specs.endpoint_config(spec, settings, temperature=0.0 if spec is helper else None),
                name=spec.name,
            )
            for spec in self._specs.values()
            if spec.kind == "endpoint"
        }
        self._kinds: dict[str, _Kind] = {}
        self._kind_of: dict[str, str] = {}
        self._sources = {
            spec.name: policy_specs.weights_in(spec.who) for spec in self._specs.values() if spec.kind == "model"
        }
        for name, source in self._sources.items():
            self._sort(name, huggingface.resolve(source.folder))
        self._weights: dict[str, Params] = {}
        self._known: dict[str, str] = {}  # fingerprints
        self._drawn: dict[str, int] = {}
        self.mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
        self.device = f"{jax.device_count()} x {jax.devices()[0].device_kind}, jax {jax.__version__}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for endpoint in self._endpoints.values():
            endpoint.close()

    def fingerprints(self) -> dict[str, str]:
        """Returns what tells each policy from another one of the same name: addresses, digests of weights."""
        self._known = {name: trained_weights.fingerprint(source) for name, source in self._sources.items()}
        return {name: spec.who for name, spec in self._specs.items()} | self._known

    def concurrency(self, meeting: Meeting) -> int:
        """Returns how many games of a meeting are well played at a time."""
        if any(self._specs[name].kind == "model" for name in _sides(meeting)):
            return self._config.rollout.slots * self._config.rollout.workers
        return self._config.evaluate.endpoint.concurrency

    def spent(self) -> dict[str, float]:
        """Returns what was counted since this process began, as ``measure/policy``."""
        found = {f"ids_drawn/{name}": float(count) for name, count in self._drawn.items()}
        for name, endpoint in self._endpoints.items():
            counts = endpoint.report()
            for measure in ("requests", "input_ids", "output_ids", "money"):
                found[f"{measure}/{name}"] = float(counts[measure])
        return found

    def slow(self, meeting: Meeting) -> bool:
        """Whether two models meet that cannot share an engine, so that one of them replies one game at a time."""
        kinds = [self._kind_of[name] for name in _sides(meeting) if name in self._kind_of]
        return len(set(kinds)) > 1

    # ---- playing ------------------------------------------------------------------------------------------------

    def play(
        self, meeting: Meeting, jobs: Sequence[Job], look: Callable[[], None] = lambda: None
    ) -> list[tuple[Job, Episode]]:
        """Plays jobs of a meeting; returns those that were played to their end with their episodes.

        An episode is seen by a model where one plays, otherwise by the meeting's first policy.

        Args:
          meeting: who plays.
          jobs: `Job.seat` is that of the meeting's first policy.
          look: once it raises `Interrupted` (`dfc.interruption.Stop.look`), games in flight are given up, and no
            further one begins.
        """
        self._make_ready(meeting)
        models = [name for name in _sides(meeting) if name in self._kind_of]
        if not models:
            return self._play_outside(meeting, jobs, look)
        own = models[0]
        other = next((name for name in _sides(meeting) if name != own), None)
        workers = len(self._kinds[self._kind_of[own]].engines)

        def work(worker: int) -> tuple[list[tuple[Job, Episode]], dict[str, int]]:
            mine = jobs[worker::workers]
            seen = mine if own == meeting.first else [dataclasses.replace(job, seat=1 - job.seat) for job in mine]
            ended, drawn = self._play_inside(own, other, seen, worker, look)
            return [(mine[number], ended[number]) for number in sorted(ended)], drawn

        with ThreadPoolExecutor(workers) as pool:  # a program's run releases Python's lock
            shares = list(pool.map(work, range(workers)))
        for _, drawn in shares:
            for name, ids in drawn.items():
                self._drawn[name] = self._drawn.get(name, 0) + ids
        turns = itertools.zip_longest(*(played for played, _ in shares))
        return [pair for turn in turns for pair in turn if pair is not None]

    def _play_inside(
        self, own: str, other: str | None, jobs: Sequence[Job], worker: int, look: Callable[[], None]
    ) -> tuple[dict[int, Episode], dict[str, int]]:
        """Plays games of a model in its engine; returns those that ended by job, and how many ids each side drew."""
        kind = self._kinds[self._kind_of[own]]
        engine = kind.engines[worker]
        together = other is not None and self._kind_of.get(other) == self._kind_of[own]
        opposite = None if other is None else _AT_THE_SECOND if together else self._player(other, worker)
        roles = {role for job in jobs for role in registry.make(job.game, **job.options).staff}
        staff = self._staff(roles, worker)
        arena = Arena(
            self._config.rollout,
            kind.tokenizer,
            engine,
            policy=_AT_THE_FIRST,
            opponent=opposite,
            opponent_name=other or "none",
            staff=staff,
            look=look,
        )
        players = [(other or "none", opposite), (policy_specs.STAFF, next(iter(staff.values()), None))]
        seated = {name: player for name, player in players if isinstance(player, SeatedModel)}
        before = engine.counts.drawn
        ended: dict[int, list[Episode]] = {}
        try:
            with contextlib.suppress(Interrupted):
                arena.play_all(jobs, ended=ended)
        finally:
            for player in seated.values():
                player.close()
        episodes = {number: _truncated(episode) for number, (episode,) in ended.items()}
        drawn = {own: sum(episode.drawn for episode in episodes.values())}
        if other is not None and together:
            drawn[other] = max(0, engine.counts.drawn - before - drawn[own])
        return episodes, drawn | {name: player.drawn for name, player in seated.items()}

    def _player(self, name: str, worker: int) -> Player | Remote:
        """Returns somebody who is not asked through the games' own engine."""
        if name in self._endpoints:
            return self._endpoints[name]
        if name in self._kind_of:
            kind = self._kinds[self._kind_of[name]]
            at = _AT_THE_FIRST if name == policy_specs.STAFF else _AT_THE_SECOND
            return SeatedModel(self._config.rollout, kind.tokenizer, kind.engines[worker], at)
        strength: Any = self._specs[name].who
        return AnyGame(strength)

    def _staff(self, roles: Iterable[str], worker: int) -> dict[str, Player | Remote]:
        """Returns who answers for the world, {} where the games' scripts do."""
        return dict.fromkeys(roles, self._player(policy_specs.STAFF, worker)) if self._has_staff else {}

    def _play_outside(
        self, meeting: Meeting, jobs: Sequence[Job], look: Callable[[], None]
    ) -> list[tuple[Job, Episode]]:
        """Plays games without a model among the players, several side by side where they wait for endpoints."""

        def one(job: Job) -> tuple[Job, Episode] | None:
            try:
                look()
                return job, self._one(meeting, job, look)
            except Interrupted:
                return None

        waits = any(name in self._endpoints for name in _sides(meeting))
        seated_staff = self._has_staff and policy_specs.STAFF not in self._endpoints
        with ThreadPoolExecutor(self.concurrency(meeting) if waits and not seated_staff else 1) as pool:
            return [pair for pair in pool.map(one, jobs) if pair is not None]

    def _one(self, meeting: Meeting, job: Job, look: Callable[[], None]) -> Episode:
        game = registry.make(job.game, **job.options)
        sides = _sides(meeting) if job.seat == 0 else _sides(meeting)[::-1]
        system = system_prompt(self._config.rollout)
        players: list[Player | Remote] = []
        for name in sides:
            player = self._player(name, 0)
            players.append(_Prompted(player, system) if system and isinstance(player, Endpoint) else player)
        staff = self._staff(game.staff, 0)
        players += [staff[role] for role in game.staff] if staff else list(scripted.staff(game).values())
        said: list[rounds.Said] = []  # stays empty where the game fails: it is recorded as one that never began
        failure = None
        try:
            game.reset(job.game_seed)
            chance = Chance(derive_seed("table", job.seed))
            rollout = self._config.rollout
            think = rollout.prompt == "think"
            said = rounds.play_out(
                game, players, chance, max_actions=rollout.max_actions, think=think, ask=rounds.asked(look)
            )
            failure = game.discarded
        except Interrupted:
            raise
        except Exception as error:  # noqa: BLE001 - as in an arena: what goes wrong in a game ends this game only
            failure = f"{type(error).__name__}: {error}"
        speakers: list[Speaker] = ["policy" if seat == job.seat else "opponent" for seat in range(game.seats)]
        outcomes = None if failure is not None else game.outcomes
        nothing = np.zeros(0, np.float32)
        return Episode(
            game=job.game,
            options=job.options,
            game_seed=job.game_seed,
            seat=job.seat,
            opponent=meeting.second or "none",
            group=job.group,
            replies=[
                Reply(s.seat, s.text, speakers[s.seat] if s.seat < game.seats else "staff", s.well_formed) for s in said
            ],
            outcomes=tuple(str(outcome) for outcome in outcomes or ("truncated",) * game.seats),
            forfeited_by=None if failure is not None else game.forfeited_by,
            illegal_tries=game.illegal_tries[job.seat],
            malformed=any(s.seat == job.seat and s.verdict is Verdict.FORFEIT_MALFORMED for s in said),
            malformed_tries=game.malformed_tries[job.seat],
            ids=nothing.astype(np.int32),
            mask=nothing.astype(bool),
            logprobs=nothing,
            plain_logprobs=nothing,
            policy_version=0,
            failure=failure,
            measures=game.measures() if failure is None else {},
        )

    # ---- models -------------------------------------------------------------------------------------------------

    def _sort(self, name: str, source: Location) -> None:
        """Finds the kind of a model by its configuration and tokenizer, without reading weights."""
        try:
            model = families.from_config_json(folders.read_json(source / folders.CONFIG))
        except DfcError as error:
            raise type(error)(f"policy {name!r}: {error}") from error
        model = dataclasses.replace(model, dtype=self._config.model.dtype)
        files = [source / file for file in TOKENIZER_FILES if (source / file).exists()]
        digest = hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()
        # Staff has engines of its own: it may answer in the middle of a game of the same model.
        kind = name if name == policy_specs.STAFF else f"{model}/{digest}"
        self._kind_of[name] = kind
        if kind not in self._kinds:
            self._kinds[kind] = _Kind(model, load_tokenizer(source))
            if name != policy_specs.STAFF:  # which is never restricted
                refuse_cut_actions(self._config, self._kinds[kind].tokenizer)

    def _make_ready(self, meeting: Meeting) -> None:
        """Lets go of the weights a meeting has no use for, then reads those it needs."""
        wanted = [name for name in [*_sides(meeting), policy_specs.STAFF] if name in self._kind_of]
        kinds = {self._kind_of[name] for name in wanted}
        for kind_name, kind in self._kinds.items():
            if kind_name not in kinds:
                kind.engines = []
            _seat(kind.engines, {}, {})  # what they hold would lie beside what is read
        self._weights = {name: weights for name, weights in self._weights.items() if name in wanted}
        models = [name for name in _sides(meeting) if name in self._kind_of]
        for name in wanted:
            if name not in self._weights:
                self._weights[name] = self._load(name, self._kinds[self._kind_of[name]].model)
        for kind_name in kinds:
            kind = self._kinds[kind_name]
            here = [name for name in wanted if self._kind_of[name] == kind_name]
            first = here[0]
            second = models[1] if len(models) > 1 and models[1] in here else first
            if not kind.engines:
                kind.engines = [self._engine(kind, self._weights[first]) for _ in range(self._config.rollout.workers)]
            _seat(kind.engines, self._weights[first], self._weights[second])

    def _engine(self, kind: _Kind, params: Params) -> Engine:
        rollout = self._config.rollout
        return make_engine(rollout, kind.model, kind.tokenizer, params, self.mesh, slots=2 * rollout.slots)

    def _load(self, name: str, model: DecoderConfig) -> Params:
        """Returns a policy's weights.

        Raises:
          CheckpointError: its run went on, so that they are not those it began to play with.
        """
        source = self._sources[name]
        weights = trained_weights.load(source, model, self.mesh)
        if source.run is not None and name in self._known and trained_weights.fingerprint(source) != self._known[name]:
            raise CheckpointError(
                f"policy {name!r}: {source.run} has a newer checkpoint than the one that played so far; let the run"
                " end, or copy its folder and give another --workdir"
            )
        return weights


def _seat(engines: Iterable[Engine], first: Params, second: Params) -> None:
    """Gives engines the weights of the two sides."""
    for engine in engines:
        for at, params in (("policy", first), (_AT_THE_FIRST, first), (_AT_THE_SECOND, second)):
            engine.set_params(params, 0, policy=at)


def _sides(meeting: Meeting) -> list[str]:
    return [meeting.first] if meeting.second is None else [meeting.first, meeting.second]


def _truncated(episode: Episode) -> Episode:
    """Returns a game that a model of another engine could not read to its end as truncated instead of failed."""
    failure = episode.failure or ""
    seated = failure.startswith("opponent ")  # and not staff, whose game has failed
    if not seated or OutOfContextError.__name__ not in failure:
        return episode
    said = any(reply.seat != episode.seat and reply.speaker == "opponent" for reply in episode.replies)
    return dataclasses.replace(episode, failure=None, overrun_by=1 - episode.seat if said else None)
