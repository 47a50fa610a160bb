"""A game as it was played: what a report, a reward and a tournament read, beside the sample that a trainer reads."""

import collections
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from dfc.samples import Sample

Speaker = Literal["policy", "opponent", "replaced", "simulator"]


@dataclasses.dataclass(frozen=True)
class PlayedReply:
    """One reply as the game handled it.

    Attributes:
      seat: whose.
      text: what was said.
      speaker: ``policy``, ``opponent``, ``simulator`` (a player of the game's world), or ``replaced``: the policy's
        turn, but a random legal action was played instead of asking it (`random_action_rate`).
      well_formed: whether it has the form that the prompt asks for; the game counts every other one as malformed.
      aside: whether it answers what was asked aside (`dfc.games.game.Game.aside`): no token of it is in the sample.
    """

    seat: int
    text: str
    speaker: Speaker
    well_formed: bool = True
    aside: bool = False

    def entry(self) -> list[Any]:
        """Returns it in the form of records: [seat, text, speaker], then whether it is well formed, and whether aside.

        Default values at the end are left out: most have three entries.
        """
        usual = [self.well_formed, self.aside] if self.aside else [] if self.well_formed else [False]
        return [self.seat, self.text, self.speaker, *usual]


@dataclasses.dataclass
class Episode:
    """One game seen by the policy's seat.

    Attributes:
      game: registered id. options: constructor values that differ from the id's own. game_seed: its deal.
      seat: the policy's. opponent: the opposite player (``none`` in single-player games).
      group: episodes of one group share game, options, seed and seat.
      replies: every reply in the order played; with game, options and game_seed it replays the game.
      outcomes: per seat, as `dfc.games.game.Outcome` values. forfeited_by: seat that ended it by an invalid reply.
      overrun_by: seat whose own context had no room left, which ended the game; all outcomes are truncated then, which
        is a loss of this seat and is inconclusive for the other one.
      illegal_tries: of the policy's seat.
      malformed: whether the policy's last reply could not be read.
      malformed_tries: malformed replies of the policy's seat, the last one included; 0 in records without this count.
      team: whether the seats share one outcome. abort_reason: why the rules broke the game off, as text; see
        `dfc.games.game.Game.abort_reason`. lost_by, loss_reason: the seat of a team whose reply against the rules lost
        it, and what was wrong with it, where the game says so.
      left_out: whether it is kept out of training and of every mean for another seat's error
        (`dfc.training.teacher_errors`).
      sample: the policy's whole conversation in tokens, for a trainer; empty where no engine played.
      policy_version: of the weights that sampled its first token (the policy's current ones if none was sampled).
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
    sample: Sample
    policy_version: int
    failure: str | None = None
    measures: Mapping[str, float] = dataclasses.field(default_factory=dict)
    overrun_by: int | None = None
    malformed_tries: int = 0
    team: bool = False
    abort_reason: str | None = None
    lost_by: int | None = None
    loss_reason: str | None = None
    left_out: bool = False

    @property
    def failed(self) -> bool:
        """Whether something outside the rules ended the game; such an episode is inconclusive."""
        return self.failure is not None

    @property
    def outcome(self) -> str:
        """The policy's outcome."""
        return self.outcomes[self.seat]

    @property
    def broken_off(self) -> bool:
        """Whether the rules broke the game off, and not for the policy's reply: for a partner's, or for no reply."""
        return not self.failed and self.abort_reason is not None and self.forfeited_by != self.seat

    @property
    def quality(self) -> float | None:
        """How good the game was, from 0 to 100; None where it was not played to its end, or has no quality."""
        return None if self.failed else self.measures.get("quality")

    @property
    def overran(self) -> bool:
        """Whether the policy's own context had no room left, which ended the game: a loss."""
        return not self.failed and self.overrun_by == self.seat

    @property
    def ran_out(self) -> bool:
        """Whether a one-player game was stopped by a limit of actions: only the policy can have used it, so a loss."""
        return not self.failed and not self.overran and self.outcomes == ("truncated",)

    @property
    def counted(self) -> bool:
        """Whether the end is conclusive about the policy: a rule decided it, or its own overrun or delay did.

        A game that failed, or one for two that was stopped by the other seat's context or by a limit of actions, is in
        no mean; nor is one that is left out.
        """
        return not (self.failed or self.left_out) and (self.overran or self.ran_out or self.outcome != "truncated")

    @property
    def steps(self) -> int:
        """Turns of the policy, replaced and illegal ones included, asides left out."""
        return sum(reply.seat == self.seat and not reply.aside for reply in self.replies)

    @property
    def generated_tokens(self) -> int:
        """Tokens the policy sampled."""
        return self.sample.generated_tokens

    def record(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
        """Returns the episode as JSON-ready data without its tokens; `more` is added (stage, iteration, reward...).

        A failed one also has its `failure`, one that a full context ended its `overrun_by`, one that was broken off its
        `abort_reason`, one that a reply of a team's seat lost `lost_by` and `loss_reason`, and one of a team is marked
        as such.
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
            **({"team": True} if self.team else {}),
            **({} if self.abort_reason is None else {"abort_reason": self.abort_reason}),
            **({} if self.lost_by is None else {"lost_by": self.lost_by, "loss_reason": self.loss_reason}),
            **({} if self.overrun_by is None else {"overrun_by": self.overrun_by}),
            **({} if self.failure is None else {"failure": self.failure}),
            **({"measures": dict(self.measures)} if self.measures else {}),
            **more,
        }


def to_bytes(episodes: Sequence[Episode]) -> bytes:
    """Returns whole episodes as bytes: one host's for the others."""
    facts: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for number, episode in enumerate(episodes):
        fields = dict(vars(episode))
        sample: Sample = fields.pop("sample")
        arrays |= {f"{number}/{name}": array for name, array in sample.arrays().items()}
        facts.append({**fields, "replies": [reply.entry() for reply in episode.replies]})
    buffer = io.BytesIO()
    np.savez(buffer, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    return buffer.getvalue()


def from_bytes(data: bytes) -> list[Episode]:
    """Returns what `to_bytes` was given; lists inside options come back as tuples."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        facts = json.loads(file["facts"].tobytes())
        arrays: dict[str, dict[str, np.ndarray]] = collections.defaultdict(dict)
        for key in file.files:
            number, _, name = key.partition("/")
            arrays[number][name] = file[key]
        found = []
        for place, fields in enumerate(facts):
            fields["replies"] = [PlayedReply(*reply) for reply in fields["replies"]]
            fields["outcomes"] = tuple(fields["outcomes"])
            fields["options"] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields["options"].items()}
            found.append(Episode(**fields, sample=Sample.from_arrays(arrays[str(place)])))
    return found
