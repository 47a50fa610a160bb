"""The data that travels between rooms: an episode as it was played, and the arrays a trainer sees.

Tokens are the truth: what was sampled is what is trained on, token for token; text is never tokenized a second time.
"""

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

Speaker = Literal["policy", "opponent", "replaced", "simulator"]


@dataclasses.dataclass(frozen=True)
class PlayedReply:
    """One reply as the game took it.

    Attributes:
      seat: whose.
      text: what was said.
      speaker: ``policy``, ``opponent``, ``simulator`` (who answers for the game's world), or ``replaced``: the policy's
        turn, but a random legal action was played instead of asking it (the epsilon-greedy disturbance).
      well_formed: whether it has the form that the prompt asks for; the game counts every other one as malformed.
    """

    seat: int
    text: str
    speaker: Speaker
    well_formed: bool = True

    def entry(self) -> list[Any]:
        """Returns it as records keep it: [seat, text, speaker], and False after that where it is not well formed."""
        return [self.seat, self.text, self.speaker, *([] if self.well_formed else [False])]


@dataclasses.dataclass
class Episode:
    """One game seen by the policy's seat.

    Attributes:
      game: registered id. options: constructor values that differ from the id's own. game_seed: its deal.
      seat: the policy's. opponent: who sat opposite (``none`` in single-player games).
      group: episodes of one group share game, options, seed and seat.
      replies: every reply in the order played; with game, options and game_seed it replays the game.
      outcomes: per seat, as `dfc.games.game.Outcome` values. forfeited_by: seat that ended it by an invalid reply.
      overrun_by: seat whose own context had no room left, which ended the game; all outcomes are truncated then, which
        is a loss of this seat and is inconclusive for the other one.
      illegal_tries: of the policy's seat.
      malformed: whether the policy's last reply could not be read.
      malformed_tries: malformed replies of the policy's seat, the last one included; 0 in records without this count.
      token_ids: the policy's whole context: observations, markup and replies, int32 [n].
      mask: 1 where a token was sampled by the policy (and may be trained on), bool [n].
      sampled_logprobs: of those tokens under the distribution they were sampled from, float32 [n], 0 elsewhere.
      plain_logprobs: of those tokens under the untruncated distribution, float32 [n], 0 elsewhere.
      policy_version: of the weights that sampled the first of them (the policy's current ones if none was sampled).
      versions: of the weights that sampled each token, int32 [n], -1 elsewhere; None where nobody kept them.
      failure: why this game could not be played to its end, e.g. an opponent that raised; all outcomes are truncated
        then, and the replies are those before. None for every other episode.
      measures: figures of the game beside its outcome, by name; see `dfc.games.game.Game.measures`.
    """

    game: str
    options: Mapping[str, Any]
    game_seed: int
    seat: int
    opponent: str
    group: int
    replies: list[PlayedReply]
    outcomes: tuple[str, ...]
    forfeited_by: int | None
    illegal_tries: int
    malformed: bool
    token_ids: np.ndarray
    mask: np.ndarray
    sampled_logprobs: np.ndarray
    plain_logprobs: np.ndarray
    policy_version: int
    versions: np.ndarray | None = None
    failure: str | None = None
    measures: Mapping[str, float] = dataclasses.field(default_factory=dict)
    overrun_by: int | None = None
    malformed_tries: int = 0

    @property
    def failed(self) -> bool:
        """Whether something outside the rules ended the game; such an episode is inconclusive."""
        return self.failure is not None

    @property
    def outcome(self) -> str:
        """The policy's outcome."""
        return self.outcomes[self.seat]

    @property
    def overran(self) -> bool:
        """Whether the policy's own context had no room left, which ended the game: a loss."""
        return not self.failed and self.overrun_by == self.seat

    @property
    def ran_out(self) -> bool:
        """Whether a one-player game was stopped by a limit of actions: nobody else can have used it up, so a loss."""
        return not self.failed and not self.overran and self.outcomes == ("truncated",)

    @property
    def counted(self) -> bool:
        """Whether the end is conclusive about the policy: a rule decided it, or its own overrun or delay did.

        A game that failed, or one for two that was stopped by the other seat's context or by a limit of actions, is in
        no mean.
        """
        return not self.failed and (self.overran or self.ran_out or self.outcome != "truncated")

    @property
    def steps(self) -> int:
        """Turns of the policy, replaced and illegal ones included."""
        return sum(reply.seat == self.seat for reply in self.replies)

    @property
    def generated_tokens(self) -> int:
        """Tokens the policy sampled."""
        return int(self.mask.sum())

    def record(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
        """Returns the episode as JSON-ready data without its tokens; `more` is added (stage, iteration, reward...).

        A failed one also has its `failure`, one that a full context ended its `overrun_by`.
        """
        return {
            "game": self.game,
            "options": dict(self.options),
            "seed": self.game_seed,
            "seat": self.seat,
            "opponent": self.opponent,
            "replies": [reply.entry() for reply in self.replies],
            "outcomes": list(self.outcomes),
            "forfeited_by": self.forfeited_by,
            **({} if self.overrun_by is None else {"overrun_by": self.overrun_by}),
            **({} if self.failure is None else {"failure": self.failure}),
            **({"measures": dict(self.measures)} if self.measures else {}),
            **more,
        }


_ARRAYS = ("token_ids", "mask", "sampled_logprobs", "plain_logprobs", "versions")  # of an episode, [n] each


def to_bytes(episodes: Sequence[Episode]) -> bytes:
    """Returns whole episodes as bytes: one host's for the others."""
    facts, arrays = [], {}
    for number, episode in enumerate(episodes):
        fields = dict(vars(episode))
        for name in _ARRAYS:
            if (array := fields.pop(name)) is not None:
                arrays[f"{number}/{name}"] = array
        facts.append({**fields, "replies": [reply.entry() for reply in episode.replies]})
    buffer = io.BytesIO()
    np.savez(buffer, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    return buffer.getvalue()


def from_bytes(data: bytes) -> list[Episode]:
    """Returns what `to_bytes` was given; lists inside options come back as tuples."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        facts = json.loads(file["facts"].tobytes())
        found = []
        for number, fields in enumerate(facts):
            arrays: dict[str, Any] = {name: file.get(f"{number}/{name}") for name in _ARRAYS}
            fields["replies"] = [PlayedReply(*reply) for reply in fields["replies"]]
            fields["outcomes"] = tuple(fields["outcomes"])
            fields["options"] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields["options"].items()}
            found.append(Episode(**fields, **arrays))
    return found


class TokenBatch(NamedTuple):
    """Packed rows, all [B, T]; a tuple so that it is a pytree.

    Attributes:
      tokens: int32.
      positions: int32, from 0 within each episode.
      segments: int32, 1, 2, ... per episode within a row; 0 is padding.
      mask: float32, 1 at action tokens: the log-probability of token t is read at t - 1.
      advantages: float32, the episode's, at its action tokens.
      sampled_logprobs: float32, under the distribution the tokens were sampled from; 0 for rows that lie there.
      reference_logprobs: float32, of the reference policy, where it was computed before; None elsewhere.
    """

    tokens: np.ndarray
    positions: np.ndarray
    segments: np.ndarray
    mask: np.ndarray
    advantages: np.ndarray
    sampled_logprobs: np.ndarray
    reference_logprobs: np.ndarray | None = None
