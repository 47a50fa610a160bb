"""One game as a row of a data set: what was played, how it ended, every token, and where it comes from.

A row is made from an episode (`from_episode`), whose record is replayed on the way: the messages are what the rules
show the seat, and a record that the rules contradict is no row. The columns are those of `SCHEMA`.
"""

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import dfc
from dfc.episodes import Episode, PlayedReply, Speaker
from dfc.games import registry
from dfc.games.game import Game, Outcome, Verdict
from dfc.games.paprika.bandit import Bandit
from dfc.games.paprika.minesweeper import HIDDEN, Minesweeper
from dfc.games.replay import ReplayedTurn, replay

FAILURES = ("malformed", "illegal", "aborted", "truncated", "discarded", "failed")
"""Why no rule decided a game for the policy: its reply could not be read, or was against the rules with no try left;
the game was broken off, and not by its reply; its context was full, or a limit stopped a task that it plays alone; the
simulators could not be used, or a game for two was stopped by something else than its own context; something outside
the rules raised. The last two are inconclusive about the policy."""
INCONCLUSIVE = frozenset({"discarded", "failed"})
_OF_TEAMS = frozenset({"aborted"})
SCHEMA_NAME, SCHEMA_VERSION = b"dfc.trajectories", 2

_ROLES = ("system", "user", "assistant")
_OUTCOMES = tuple(str(outcome) for outcome in Outcome)
_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_SAID = [("seat", pa.int32()), ("text", pa.string()), ("speaker", pa.string())]
_REPLY = pa.struct([*_SAID, ("well_formed", pa.bool_())])
OLDER = {"replies": pa.list_(pa.struct(_SAID))}
"""Types that columns of files written before had: there every reply had the form asked for."""
SCHEMA = pa.schema(
    [
        ("game", pa.string()),
        ("options", pa.string()),
        ("split", pa.string()),
        ("task", pa.int64()),
        ("seat", pa.int32()),
        ("opponent", pa.string()),
        ("sample", pa.int32()),
        ("game_seed", pa.int64()),
        ("world", pa.string()),
        ("outcome", pa.string()),
        ("success", pa.bool_()),
        ("turns", pa.int32()),
        ("failure", pa.string()),
        ("failure_reason", pa.string()),
        ("illegal_tries", pa.int32()),
        ("measures", pa.map_(pa.string(), pa.float64())),
        ("tokens", pa.int32()),
        ("action_tokens", pa.int32()),
        ("model", pa.string()),
        ("model_hash", pa.string()),
        ("policy_version", pa.int64()),
        ("sampling", pa.string()),
        ("seed", pa.int64()),
        ("dfc_version", pa.string()),
        ("commit", pa.string()),
        ("messages", pa.list_(_MESSAGE)),
        ("token_ids", pa.list_(pa.int32())),
        ("mask", pa.list_(pa.bool_())),
        ("sampled_logprobs", pa.list_(pa.float32())),
        ("replies", pa.list_(_REPLY)),
        ("outcomes", pa.list_(pa.string())),
        ("forfeited_by", pa.int32()),
    ],
    metadata={SCHEMA_NAME: str(SCHEMA_VERSION)},
)
"""The columns of a trajectory; `docs/data.md` says what each holds."""
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
BRANCH_COLUMNS: tuple[str, ...] = ("branch_sample", "branch_turn")
"""Further columns, int32, of rows that play on from turns of others (`BranchPoint`); other files do not have them."""
_BRANCH_SCHEMA = pa.schema([*SCHEMA, *((name, pa.int32()) for name in BRANCH_COLUMNS)], SCHEMA.metadata)


class Message(NamedTuple):
    """One message as the policy's seat saw it; the role is ``system``, ``user`` or ``assistant`` (the policy)."""

    role: str
    content: str


class TrajectoryKey(NamedTuple):
    """What no two rows of a data set share: a task as one seat plays it, and the number of the try at it."""

    game: str
    options: str
    task: int
    seat: int
    opponent: str
    sample: int


class BranchPoint(NamedTuple):
    """From which row a row plays on, and where.

    Attributes:
      sample: of the row with the same game, options, task and seat, in the folder that was branched from.
      turn: how many replies of the seat, asides left out, the two have in common.
    """

    sample: int
    turn: int


def failure_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns how many trajectories each label of `FAILURES` has; what only teams have is left out where it is 0."""
    return {label: counts[label] for label in FAILURES if counts[label] or label not in _OF_TEAMS}


def canonical_json(values: Mapping[str, Any]) -> str:
    """Returns settings as the text that is stored: keys sorted, no blanks, tuples as lists.

    Raises:
      ValueError: a value is not finite, or no JSON value.
    """
    try:
        return json.dumps(dict(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected settings that JSON can hold, got {dict(values)!r}: {error}") from error


def well_formed(text: str) -> str:
    """Returns a text without lone surrogates, which neither a file nor a tokenizer takes; they become U+FFFD."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where trajectories come from; a copy stands in every row.

    Attributes:
      model: name of the model. model_hash: of its weights.
      sampling: settings its tokens were sampled with, e.g. ``{"temperature": 1.5, "min_p": 0.3}``.
      seed: of the collection.
      commit: of the checkout, None if unknown. dfc_version: of dfc.
    """

    model: str
    model_hash: str
    sampling: Mapping[str, Any]
    seed: int
    commit: str | None = None
    dfc_version: str = dfc.__version__


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One row; see `docs/data.md` for the columns.

    Attributes:
      game: registered id, the task group. options: constructor values that differ from the id's own, as
        `canonical_json`. split: whose tasks these are, None where every seed is a deal. task: number in its split, or
        the deal. seat: the policy's. opponent: who sat opposite. sample: number of the try at this task, from 0.
      game_seed: the deal. world: what of the game's world depends on more than the task, None where nothing does: two
        trajectories are comparable only where it agrees.
      outcome: the policy's. success: whether it is a win. turns: replies of the policy. failure: one of `FAILURES`, or
        None. failure_reason: what was raised, for a game that failed. illegal_tries: of the policy. measures: figures
        of the game beside its outcome.
      provenance: model, sampling, seed, versions. policy_version: of the weights.
      messages: what the seat was shown and what it replied, as far as the game took it.
      token_ids: the policy's whole context, int32 [n]. mask: 1 where it sampled a token, bool [n]. sampled_logprobs: of
        sampled tokens under the distribution they were sampled from, 0 elsewhere, float32 [n], or None.
      replies: of every seat as (seat, text, speaker, whether it had the form asked for). outcomes: by seat.
        forfeited_by: the seat that ended the game by an invalid reply, or None.
      branch: where it plays on from; None: it was played from its beginning.

    Raises:
      ValueError: values that contradict each other.
    """

    game: str
    options: str
    split: str | None
    task: int
    seat: int
    opponent: str
    sample: int
    game_seed: int
    world: str | None
    outcome: str
    success: bool
    turns: int
    failure: str | None
    failure_reason: str | None
    illegal_tries: int
    measures: Mapping[str, float]
    provenance: Provenance
    policy_version: int
    messages: tuple[Message, ...]
    token_ids: np.ndarray
    mask: np.ndarray
    sampled_logprobs: np.ndarray | None
    replies: tuple[tuple[int, str, Speaker, bool], ...]
    outcomes: tuple[str, ...]
    forfeited_by: int | None
    branch: BranchPoint | None = None

    def __post_init__(self) -> None:
        if problem := _problem(self):
            raise ValueError(f"trajectory {tuple(self.key)}: {problem}")

    @property
    def key(self) -> TrajectoryKey:
        """What names the row."""
        return TrajectoryKey(self.game, self.options, self.task, self.seat, self.opponent, self.sample)

    @property
    def tokens(self) -> int:
        """All tokens."""
        return len(self.token_ids)

    @property
    def action_tokens(self) -> int:
        """Tokens the policy sampled."""
        return int(np.count_nonzero(self.mask))

    def record(self) -> dict[str, Any]:
        """Returns what `dfc.games.replay.replay` takes."""
        return {
            "game": self.game,
            "options": json.loads(self.options),
            "seed": self.game_seed,
            "replies": [PlayedReply(*reply).entry() for reply in self.replies],
            "outcomes": list(self.outcomes),
            "forfeited_by": self.forfeited_by,
        }


def _problem(row: Trajectory) -> str | None:
    named = (
        ("failure", row.failure, (None, *FAILURES)),
        ("outcome", row.outcome, _OUTCOMES),
        *(("a role", message.role, _ROLES) for message in row.messages),
    )
    for name, value, allowed in named:
        if value not in allowed:
            return f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}"
    if row.success and (row.failure is not None or row.outcome != Outcome.WIN):
        return f"a success has outcome win and no failure, got {row.outcome!r} and {row.failure!r}"
    if row.sample < 0 or row.turns < 0:
        return f"sample and turns must be 0 or more, got {row.sample} and {row.turns}"
    arrays = [row.token_ids, row.mask, *([] if row.sampled_logprobs is None else [row.sampled_logprobs])]
    if any(array.ndim != 1 or len(array) != len(row.token_ids) for array in arrays):
        return f"token_ids, mask and sampled_logprobs must be [n] each, got shapes {[array.shape for array in arrays]}"
    return None


# ---- from an episode ------------------------------------------------------------------------------------------------


def from_episode(
    episode: Episode,
    *,
    sample: int,
    provenance: Provenance,
    system: str | None = None,
    keep_logprobs: bool = True,
    branch: BranchPoint | None = None,
) -> Trajectory:
    """Returns an episode as a row; its record is replayed.

    Whatever ended the game, the row is made: a game that failed has the messages up to where it did. `sample` is the
    number of the try at this task; `system` what the seat was shown before the first observation
    (`dfc.rollout.runner.system_prompt`), None for nothing; `branch` where it plays on from, if it does.

    Raises:
      ReplayError: the rules contradict the record of an episode that did not fail.
    """
    record = episode.record()
    turns = _replayed(record, complete=not episode.failed)
    game = registry.make(episode.game, **episode.options)
    split = getattr(game, "split", None) if game.info.splits else None
    return Trajectory(
        game=episode.game,
        options=canonical_json(episode.options),
        split=split,
        task=episode.game_seed if split is None else episode.game_seed % game.info.splits[split],
        seat=episode.seat,
        opponent=episode.opponent,
        sample=sample,
        game_seed=episode.game_seed,
        world=world(game, episode.game_seed, [turn.reply for turn in turns if turn.well_formed]),
        outcome=episode.outcome,
        success=not episode.failed and episode.outcome == Outcome.WIN,
        turns=episode.steps,
        failure=_failure(episode, turns),
        failure_reason=episode.failure,
        illegal_tries=episode.illegal_tries,
        measures=dict(episode.measures),
        provenance=provenance,
        policy_version=episode.policy_version,
        messages=seen_by(turns, episode.seat, system),
        token_ids=episode.sample.token_ids,
        mask=episode.sample.mask,
        sampled_logprobs=episode.sample.sampled_logprobs if keep_logprobs else None,
        replies=tuple((reply.seat, reply.text, reply.speaker, reply.well_formed) for reply in episode.replies),
        outcomes=episode.outcomes,
        forfeited_by=episode.forfeited_by,
        branch=branch,
    )


def seen_by(turns: Iterable[ReplayedTurn], seat: int, system: str | None) -> tuple[Message, ...]:
    """Returns a game as one seat saw it: what it was shown before, its observations and its replies."""
    messages = [] if system is None else [Message("system", system)]
    for turn in turns:
        if turn.seat == seat and not turn.aside:
            messages += [Message("user", turn.observation), Message("assistant", turn.reply)]
    return tuple(messages)


def _replayed(record: Mapping[str, Any], *, complete: bool) -> list[ReplayedTurn]:
    if complete:
        return list(replay(record))
    turns: list[ReplayedTurn] = []
    # What a game raised while it was played it raises again, and a failed one may have an unrecorded outcome.
    with contextlib.suppress(Exception):
        turns.extend(replay(record))
    return turns


def _failure(episode: Episode, turns: Sequence[ReplayedTurn]) -> str | None:
    if episode.failed:
        return "discarded" if turns and turns[-1].verdict is Verdict.DISCARDED else "failed"
    if episode.broken_off:
        return "aborted"
    if episode.forfeited_by == episode.seat:
        return "malformed" if episode.malformed else "illegal"
    if episode.outcome != Outcome.TRUNCATED:
        return None
    return "truncated" if episode.counted else "discarded"


def world(game: Game, game_seed: int, replies: Sequence[str]) -> str | None:
    """Returns what a game's world depends on beside its task, as a text that is equal where the worlds are.

    Minesweeper lays its mines when the first cell is opened: that cell. The bandit draws its means from the whole seed:
    the seed. None for every other game, and for a board of which no cell was opened. The game is as made for this
    trajectory; it is played on. Replies are those of all seats, in the order played, without those that had not the
    form asked for: they play nothing.
    """
    if isinstance(game, Bandit):
        return f"seed {game_seed}"
    if not isinstance(game, Minesweeper):
        return None
    game.reset(game_seed)
    for reply in replies:
        game.step(reply)
        if any(symbol != HIDDEN for symbol in game.board):
            # The one reply that opened a cell could be read, and spells it with blanks and zeros as it likes.
            row, column = re.findall(r"[0-9]+", game.extract(reply) or "")
            return f"reveal {int(row)} {int(column)}"
        if game.over:
            break
    return None


# ---- rows and tables ------------------------------------------------------------------------------------------------

_OF_PROVENANCE = ("model", "model_hash", "seed", "commit", "dfc_version")
_PLAIN = tuple(name for name in COLUMNS if name in {field.name for field in dataclasses.fields(Trajectory)})
_ARRAY_TYPES: Mapping[str, Any] = MappingProxyType(
    {"token_ids": np.int32, "mask": bool, "sampled_logprobs": np.float32}
)


def to_table(rows: Iterable[Trajectory]) -> pa.Table:
    """Returns trajectories as a pyarrow table of `SCHEMA`, with `BRANCH_COLUMNS` where one of them has a branch."""
    rows = list(rows)
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    branched = any(row.branch is not None for row in rows)
    if branched:
        places = [(None, None) if row.branch is None else row.branch for row in rows]
        columns |= {name: [place[number] for place in places] for number, name in enumerate(BRANCH_COLUMNS)}
    for row in rows:
        for name in _PLAIN:
            columns[name].append(_STORED.get(name, _same)(getattr(row, name)))
        columns["tokens"].append(row.tokens)
        columns["action_tokens"].append(row.action_tokens)
        columns["sampling"].append(canonical_json(row.provenance.sampling))
        for name in _OF_PROVENANCE:
            columns[name].append(getattr(row.provenance, name))
    return pa.Table.from_pydict(columns, schema=_BRANCH_SCHEMA if branched else SCHEMA)


def to_trajectories(table: pa.Table) -> list[Trajectory]:
    """Returns the rows of a table that has every column of `SCHEMA`, and may have others; `to_table` inverted.

    Raises:
      ValueError: values of a row contradict each other.
    """
    found = []
    kept = [*COLUMNS, *(name for name in BRANCH_COLUMNS if name in table.column_names)]
    for values in table.select(kept).to_pylist():
        provenance = Provenance(sampling=json.loads(values["sampling"]), **{n: values[n] for n in _OF_PROVENANCE})
        plain = {name: values[name] for name in _PLAIN}
        for name, dtype in _ARRAY_TYPES.items():
            plain[name] = None if plain[name] is None else np.asarray(plain[name], dtype)
        plain["measures"] = dict(plain["measures"])
        plain["messages"] = tuple(Message(**message) for message in plain["messages"])
        plain["replies"] = tuple(
            (r["seat"], r["text"], r["speaker"], r.get("well_formed") is not False) for r in plain["replies"]
        )
        plain["outcomes"] = tuple(plain["outcomes"])
        place = [values.get(name) for name in BRANCH_COLUMNS]
        branch = None if None in place else BranchPoint(*place)
        found.append(Trajectory(provenance=provenance, branch=branch, **plain))
    return found


def _same(value: object) -> object:
    return value


def _messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": well_formed(message.content)} for message in messages]


def _replies(replies: Sequence[tuple[int, str, str, bool]]) -> list[dict[str, Any]]:
    return [
        {"seat": seat, "text": well_formed(text), "speaker": speaker, "well_formed": formed}
        for seat, text, speaker, formed in replies
    ]


_STORED: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "measures": lambda measures: list(measures.items()),
        "messages": _messages,
        "replies": _replies,
        "outcomes": list,
        "failure_reason": lambda reason: None if reason is None else well_formed(reason),
    }
)
