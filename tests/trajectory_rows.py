"""Episodes of games played here and rows made of them, for the tests of data sets."""

import itertools

import numpy as np

from dfc.episodes import Episode, PlayedReply
from dfc.games import registry
from dfc.games.game import Verdict
from dfc.games.rng import GameRng
from dfc.records.trajectories import Message, Provenance, Trajectory, from_episode
from dfc.samples import Sample

PROVENANCE = Provenance(
    model="tiny_player", model_hash="abc123", sampling={"temperature": 1.5, "min_p": 0.3}, seed=3, commit="0f0f"
)


def played(game_id, game_seed, replies=None, *, options=None, rng_seed=0, cut_after=None):
    """An episode of one seat: the replies given, or random legal ones; what the engine adds is drawn at random."""
    game = registry.make(game_id, **(options or {}))
    game.reset(game_seed)
    draws = GameRng(rng_seed)
    said, malformed, given = [], False, iter(replies) if replies is not None else None
    while not game.over and (cut_after is None or len(said) < cut_after):
        seat = game.to_move
        if given is not None:
            reply = next(given)
        elif legal := game.legal_actions():
            reply = legal[draws.randrange(len(legal))]
        else:
            reply = "nothing"
        speaker = "simulator" if seat >= game.seats else "policy" if seat == 0 else "opponent"
        said.append(PlayedReply(seat, reply, speaker))
        malformed = game.step(reply) is Verdict.FORFEIT_MALFORMED
    if not game.over:
        game.truncate()
    length = 5 + 3 * len(said)
    numbers = np.random.default_rng(rng_seed)
    mask = numbers.random(length) < 0.4
    return Episode(
        game=game_id,
        options=options or {},
        game_seed=game_seed,
        seat=0,
        opponent="none" if game.seats == 1 else "random_legal",
        group=0,
        replies=said,
        outcomes=tuple(map(str, game.outcomes)),
        forfeited_by=game.forfeited_by,
        illegal_tries=game.illegal_tries[0],
        malformed=malformed,
        sample=Sample(
            numbers.integers(0, 1000, length).astype(np.int32),
            mask,
            np.where(mask, numbers.normal(size=length), 0).astype(np.float32),
        ),
        policy_version=4,
        failure=game.discarded,
        measures=game.measures(),
    )


def trajectory(episode, sample=0, **options):
    return from_episode(episode, sample=sample, provenance=PROVENANCE, **options)


def row(
    game="wordle",
    task=0,
    sample=0,
    *,
    turns=3,
    success=True,
    failure=None,
    world=None,
    tokens=10,
    seat=0,
    options="{}",
    said="crane",
    opponent="none",
):
    """A row whose figures are given instead of played."""
    outcome = (
        "win" if success else {None: "loss", "malformed": "invalid", "illegal": "invalid"}.get(failure, "truncated")
    )
    messages = [Message("user", f"{game} {task}: the task"), Message("assistant", f"{said} {sample}")]
    messages += itertools.chain.from_iterable(
        (Message("user", f"told {turn}"), Message("assistant", f"reply {turn}")) for turn in range(1, turns)
    )
    return Trajectory(
        game=game,
        options=options,
        split="train",
        task=task,
        seat=seat,
        opponent=opponent,
        sample=sample,
        game_seed=task,
        world=world,
        outcome=outcome,
        success=success,
        turns=turns,
        failure=failure,
        failure_reason=None,
        illegal_tries=0,
        measures={},
        provenance=PROVENANCE,
        policy_version=0,
        messages=tuple(messages),
        token_ids=np.arange(tokens, dtype=np.int32),
        mask=np.arange(tokens) % 2 == 1,
        sampled_logprobs=None,
        replies=(),
        outcomes=(outcome,),
        forfeited_by=0 if failure in {"malformed", "illegal"} else None,
    )


def same(one, other):
    """Whether two rows are equal, arrays by value and type."""
    for name, value in vars(one).items():
        twin = getattr(other, name)
        if isinstance(value, np.ndarray):
            if value.dtype != twin.dtype or not np.array_equal(value, twin):
                return False
        elif value != twin:
            return False
    return True
