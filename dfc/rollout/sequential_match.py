"""One game without an engine, one reply after another; the result is an episode without tokens."""

from collections.abc import Callable, Sequence

from dfc import own_code
from dfc.config import RolloutConfig
from dfc.episodes import Episode, PlayedReply, Speaker
from dfc.errors import ExitError, Interrupted, error_text
from dfc.games import registry, scripted
from dfc.games.game import Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.scripted import Player
from dfc.players import key_search, sequential
from dfc.players.remote import Remote
from dfc.rollout.match import EpisodeSpec, system_prompt
from dfc.samples import Sample


def play_episode(
    spec: EpisodeSpec,
    players: Sequence[Player | Remote],
    config: RolloutConfig,
    *,
    opponent: str = "none",
    simulator: Player | Remote | None = None,
    check_stop: Callable[[], None] = lambda: None,
) -> Episode:
    """Plays a game to its end. Whatever the game or a player raises ends it as failed, without its replies.

    Only ``sys.exit`` ends more: the call, with an `ExitError`.

    `spec.seat` is whose episode it is; `players` are by seat, simulators left out; `simulator` plays all simulators,
    None: the game's scripts; `opponent` is the name of the other player in records. `check_stop` is called while a
    remote player is waited for; once it raises `Interrupted`, so does this.

    Raises:
      ValueError: the spec has an opening.
    """
    if spec.opening is not None:
        raise ValueError("a game that begins with an opening is played by an engine (dfc.rollout.runner)")
    game = registry.make(spec.game, **spec.options)
    scripts = scripted.simulators(game) if simulator is None else {}
    seated = [*players, *(simulator or scripts[role] for role in game.simulators)]
    replies: list[sequential.SequentialReply] = []
    failure = None
    try:
        with own_code.no_exit(f"games {spec.game!r}"):
            game.reset(spec.game_seed)
            replies = sequential.play_sequentially(
                game,
                seated,
                GameRng(derive_seed("table", spec.seed)),
                max_actions=config.max_actions,
                ask=sequential.ask_until_stop(check_stop),
                system=system_prompt(config),
            )
            failure = game.discarded
    except (Interrupted, ExitError):
        raise
    except Exception as error:  # noqa: BLE001 - as in a rollout runner: what goes wrong in a game ends this game only
        failure = key_search.redacted_by_environment(f"{type(error).__name__}: {error_text(error)}")
    outcomes = None if failure is not None else game.outcomes
    return Episode(
        game=spec.game,
        options=spec.options,
        game_seed=spec.game_seed,
        seat=spec.seat,
        opponent=opponent,
        group=spec.group,
        replies=[_played(reply, spec.seat, game.seats) for reply in replies],
        outcomes=tuple(str(outcome) for outcome in outcomes or ("truncated",) * game.seats),
        forfeited_by=None if failure is not None else game.forfeited_by,
        illegal_tries=game.illegal_tries[spec.seat],
        malformed=any(r.seat == spec.seat and r.verdict is Verdict.FORFEIT_MALFORMED for r in replies),
        malformed_tries=game.malformed_tries[spec.seat],
        sample=Sample.empty(),
        policy_version=0,
        failure=failure,
        measures=game.measures() if failure is None else {},
        team=game.team,
        abort_reason=game.abort_reason if failure is None else None,
        lost_by=game.lost_by if failure is None else None,
        loss_reason=game.loss_reason if failure is None else None,
    )


def _played(reply: sequential.SequentialReply, own: int, seats: int) -> PlayedReply:
    speaker: Speaker = "simulator" if reply.seat >= seats else "policy" if reply.seat == own else "opponent"
    return PlayedReply(reply.seat, reply.text, speaker, reply.well_formed, reply.aside)
