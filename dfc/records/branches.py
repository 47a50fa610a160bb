"""Turns of recorded games that are played on from, and what the games that do so begin with.

Every choice depends on the recorded rows and the settings only, so that a run that is resumed plays the same siblings.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dfc.config import Branch
from dfc.episodes import PlayedReply
from dfc.games.replay import ReplayError, replay
from dfc.games.rng import derive_seed
from dfc.records.attempts import TaskSample
from dfc.records.collection import Branched, parts_folder
from dfc.records.task_groups import split_games
from dfc.records.trajectories import INCONCLUSIVE, BranchPoint, Trajectory, canonical_json
from dfc.records.trajectory_files import DatasetError, read_trajectories
from dfc.rollout.openings import Opening
from dfc.rollout.transcript import NO_VERSION
from dfc.samples import Sample


class Turn(NamedTuple):
    """A turn of a recorded seat that it can be played on from.

    Attributes:
      number: of the turn among the seat's, asides left out, from 0.
      reply: of its reply among those of all seats, asides included.
      sampled: how many of the seat's turns before it were sampled, and not played by chance.
    """

    number: int
    reply: int
    sampled: int


def turns_of(row: Trajectory) -> list[Turn]:
    """Returns the turns of a row's seat whose reply the policy gave, in their order.

    Raises:
      ReplayError: the rules contradict the row.
    """
    found, number, sampled = [], 0, 0
    for place, turn in enumerate(replay(row.record())):
        if turn.seat != row.seat or turn.aside:
            continue
        if turn.status == "policy":
            found.append(Turn(number, place, sampled))
            sampled += 1
        number += 1
    return found


def opening_of(row: Trajectory, turn: Turn, *, recorded_tokens: bool) -> Opening:
    """Returns what a game begins with that plays on from a turn of a row.

    With `recorded_tokens` they are those of the model that plays on, and the row's mask and log-probabilities are then
    used, too. A row without log-probabilities was not sampled by a model: none of it is marked.

    Raises:
      DatasetError: the tokens hold fewer replies than the record.
    """
    asides = [each.aside for each in replay(row.record())]
    replies = tuple(
        PlayedReply(*reply, aside=aside)
        for reply, aside in zip(row.replies[: turn.reply], asides[: turn.reply], strict=True)
    )
    if not recorded_tokens:
        return Opening(replies)
    sample = Sample(row.token_ids, row.mask, np.zeros(len(row.token_ids), np.float32))
    begins = np.flatnonzero(sample.begins)
    if turn.sampled >= len(begins):
        raise DatasetError(
            f"trajectory {tuple(row.key)}: its tokens hold {len(begins)} replies, but turn {turn.number} is recorded; "
            "collect it again"
        )
    end, known = int(begins[turn.sampled]), row.sampled_logprobs
    mask = row.mask[:end] if known is not None else np.zeros(end, bool)
    logprobs = known[:end] if known is not None else np.zeros(end, np.float32)
    versions = np.where(mask, row.policy_version, NO_VERSION).astype(np.int32)
    return Opening(replies, Sample(row.token_ids[:end], mask, logprobs, versions))


def chosen_turns(row: Trajectory, config: Branch) -> list[Turn]:
    """Returns the turns of a row that are played on from, in their order.

    Raises:
      ReplayError: the rules contradict the row.
    """
    found = turns_of(row)
    if config.turns == "first":
        return found[:1]
    most = config.turns_per_dialogue
    if not most or len(found) <= most:
        return found
    seed = derive_seed("branch turns", config.seed, row.game, row.task, row.seat, row.sample)
    chosen = np.random.Generator(np.random.Philox(seed)).choice(len(found), most, replace=False)
    return [found[number] for number in sorted(chosen.tolist())]


def planned(config: Branch, model_hash: str) -> dict[TaskSample, Branched]:
    """Returns every game to play with what it begins with; those of a task are numbered in the order of the rows.

    Rows that are inconclusive about the policy are left out, and so are those of other games, options, splits and
    tasks than the run's. `model_hash` is that of the weights that play on: the tokens of rows that they have sampled
    are taken as recorded, those of others are written by the tokenizer's template.

    Raises:
      DatasetError: no row is left, one is recorded from another seat than the others of its task or contradicts the
        rules, or a part cannot be read.
    """
    folder = parts_folder(Path(config.trajectories).expanduser())
    options = {g: canonical_json(o) for g, o in split_games(config.games, config.split).items()}
    found: dict[TaskSample, Branched] = {}
    numbers: dict[tuple[str, int], int] = {}
    seats: dict[tuple[str, int], int] = {}
    for row in _sorted(folder, options, config.tasks):
        task = row.game, row.task
        if seats.setdefault(task, row.seat) != row.seat:
            raise DatasetError(
                f"{folder}: {row.game}, task {row.task}, is recorded from seats {seats[task]} and {row.seat}; one run "
                "plays on from one seat of a task: name a folder for each"
            )
        try:
            chosen = chosen_turns(row, config)
        except ReplayError as error:
            raise DatasetError(f"{folder}: trajectory {tuple(row.key)} cannot be played again: {error}") from error
        for turn in chosen:
            opening = opening_of(row, turn, recorded_tokens=row.provenance.model_hash == model_hash)
            point = BranchPoint(row.sample, turn.number)
            for _ in range(config.siblings):
                number = numbers.get(task, 0)
                numbers[task] = number + 1
                found[TaskSample(row.game, row.task, number)] = Branched(row.seat, row.game_seed, opening, point)
    if not found:
        raise DatasetError(
            f"{folder}: no turn to play on from: no conclusive trajectory there is of {', '.join(options)} with these "
            f"options and split={config.split!r}; name the games as they were collected"
        )
    return found


def digest(plan: Mapping[TaskSample, Branched]) -> str:
    """Returns what identifies a plan: where every game begins, to the token."""
    found = hashlib.sha256()
    for task_sample, begin in plan.items():
        sample = begin.opening.sample
        said = [reply.entry() for reply in begin.opening.replies]
        found.update(repr((task_sample, begin.seat, begin.game_seed, tuple(begin.branch), said)).encode())
        found.update(b"" if sample is None else np.ascontiguousarray(sample.token_ids, "<i4").tobytes())
    return found.hexdigest()[:16]


def _sorted(folder: Path, options: Mapping[str, str], tasks: int) -> Iterable[Trajectory]:
    """Returns the rows to choose from by game, task and sample, whichever part they lie in."""
    rows = [
        row
        for row in read_trajectories(folder)
        if options.get(row.game) == row.options and row.failure not in INCONCLUSIVE and (not tasks or row.task < tasks)
    ]
    place = {game: number for number, game in enumerate(options)}
    return sorted(rows, key=lambda row: (place[row.game], row.task, row.sample))
