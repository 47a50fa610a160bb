"""Games of dfc as a folder of clembench's results, which ``clem eval`` and ``clem transcribe`` read.

    RESULTS/MODEL/GAME/EXPERIMENT/instance_00003/{instance,interactions,scores}.json

Source: clemcore 3.7.2, `clemgame.recorder`, `clemgame.metrics`, `clemgame.callbacks.files`.

Departures: games keep their ids and texts (``clem_taboo``), so a table of them is none of clemcore's own numbers, and
``clem score``, which asks the original's game masters, has nothing to do here. There are no timestamps: the same games
give the same files. A round ends with a reply after which the first seat is asked again. A game that was stopped from
outside, such as by a full context, counts as aborted. A key `dfc` holds what the layout has no field for.
"""

import collections
import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dfc
from dfc.episodes import Episode, PlayedReply
from dfc.evaluation import tasks
from dfc.files import write_json
from dfc.games import registry
from dfc.games.game import Game, Outcome, Verdict
from dfc.games.replay import ReplayedTurn, replay
from dfc.records.trajectories import Provenance, Trajectory, from_episode
from dfc.records.trajectory_files import DatasetError, read_trajectories
from dfc.rows.dialogues import instance_of, player_of
from dfc.rows.row_files import file_rows, row_place
from dfc.samples import Sample

LAYOUT = "3.7.2"
"""The version of clemcore whose layout this is."""
FILES = ("instance.json", "interactions.json", "scores.json")
OURS = "dfc"
"""The key of `interactions.json` with what the layout has no field for."""

Json = dict[str, Any]
_COUNTS = ("Request Count", "Parsed Request Count", "Violated Request Count")
_MASTER = "GM"
_OF_ENDS = ("failure", "overrun_by", "team", "abort_reason", "lost_by", "loss_reason")  # of a line of episodes.jsonl
_UNSAFE = re.compile(r"[^\w.+ -]")
_RESULT: Mapping[Outcome, str] = {Outcome.WIN: "Success", Outcome.LOSS: "Lose", Outcome.DRAW: "Lose"}


class _Played(NamedTuple):
    """One game: as it was played, and what it is called."""

    game: Game
    turns: Sequence[ReplayedTurn]
    row: Trajectory
    players: Sequence[str]
    place: tuple[str, str, str, str]  # model, game, experiment, instance


def write_results(rows: Iterable[Trajectory], folder: Path) -> int:
    """Writes games; returns how many. Those that are there already stay as they are.

    Games are of one player or a team; each is replayed, which proves it.

    Raises:
      DatasetError: there is no game, or another one is in the place of one.
      ValueError: a game has players against each other, for whom clembench's layout has no field, or the rules
        contradict a row.
    """
    written = 0
    for row in rows:
        played = _play_again(row)
        place = folder.joinpath(*played.place)
        experiment = {"name": played.place[2], "game_name": row.game}
        contents = {place.parent / "experiment.json": experiment}
        contents |= {place / name: content for name, content in zip(FILES, _files(played), strict=True)}
        missing = [path for path, content in contents.items() if not _is_there(path, content)]
        place.mkdir(parents=True, exist_ok=True)
        for path in missing:  # scores come last: a game without them is not complete
            write_json(path, contents[path])
        written += 1
    if not written:
        raise DatasetError(f"{folder}: no game to write; collect some first")
    return written


def trajectories_in(folder: Path) -> Iterator[Trajectory]:
    """Yields the games of a run of `evaluate_tasks`, or of a folder of trajectories or a run that has one.

    A policy that sampled at a temperature is called ``NAME-t0.7``, since one run may hold several.

    Raises:
      DatasetError: there is nothing, or a line or a part is damaged.
    """
    played = folder / "episodes.jsonl"
    if not played.is_file():
        inner = folder / "trajectories"
        yield from read_trajectories(inner if inner.is_dir() else folder)
        return
    newest: dict[tasks.Key, int] = {}  # of each game: one that failed is played again, and both lines stay
    for number, record in file_rows(played):
        with _named(played, number):
            newest[tasks.key(record)] = number
    for number, record in file_rows(played):
        with _named(played, number):
            if newest.get(tasks.key(record)) == number:
                yield _from_record(record)


@contextlib.contextmanager
def _named(path: Path, number: int) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(
            f"{row_place(path, number)}: no game of evaluate_tasks ({type(error).__name__}: {error}); name such a run, "
            "or a folder of trajectories"
        ) from error


def _from_record(record: Json) -> Trajectory:
    policy, temperature = str(record["policy"]), record["temperature"]
    episode = Episode(
        game=record["game"],
        options=record["options"],
        game_seed=record["seed"],
        seat=record["seat"],
        opponent="itself" if record["opponent"] == policy else record["opponent"],
        group=0,
        replies=[PlayedReply(*reply) for reply in record["replies"]],
        outcomes=tuple(record["outcomes"]),
        forfeited_by=record["forfeited_by"],
        illegal_tries=0,
        malformed=False,
        sample=Sample.empty(),
        policy_version=0,
        measures=record.get("measures", {}),
        **{name: record[name] for name in _OF_ENDS if name in record},
    )
    name = policy if temperature is None else f"{policy}-t{temperature:g}"
    sampling = {} if temperature is None else {"temperature": temperature}
    return from_episode(episode, sample=record["trajectory"], provenance=Provenance(name, "", sampling, 0))


def _play_again(row: Trajectory) -> _Played:
    if row.failure == "failed":
        raise ValueError(
            f"{row.game}, task {row.task}: something outside the rules ended it ({row.failure_reason}); play it again "
            "(the command that played it does)"
        )
    game = registry.make(row.game, **json.loads(row.options))
    if game.seats > 1 and not game.team:
        raise ValueError(
            f"{row.game}: its players play against each other, and clembench's results know one outcome for all; "
            "leave it out"
        )
    turns = list(replay(row.record()))
    game.reset(row.game_seed)
    experiment = str(getattr(game, "experiment", "")) or row.split or "deals"
    players = [player_of(row, seat) for seat in range(game.seats)]
    model = "--".join(dict.fromkeys(players)) if len(set(players)) == 1 else "--".join(players)
    instance = f"instance_{row.task:05d}" + (f"_sample_{row.sample}" if row.sample else "")
    place = (_name(model), _name(row.game), _name(experiment), instance)
    return _Played(game, turns, row, players, place)


def _name(text: str) -> str:
    """Returns a text as the name of a folder: letters, digits and a few signs."""
    found = _UNSAFE.sub("_", text)[:200].strip(". ")
    if not found:
        raise ValueError(f"{text!r} cannot name a folder of results; rename it")
    return found


def _is_there(path: Path, content: Json) -> bool:
    """Returns whether a file is there already; DatasetError if it has other content."""
    if not path.exists():
        return False
    if path.read_bytes() != (json.dumps(content, indent=1) + "\n").encode():
        raise DatasetError(f"{path}: another game is there already; write to a folder of its own, or delete this one")
    return True


# ---- the files ------------------------------------------------------------------------------------------------------


def _files(played: _Played) -> tuple[Json, Json, Json]:
    """Returns the contents of `FILES`."""
    row, (model, game, experiment, _) = played.row, played.place
    rounds, counts = _rounds(played)
    sampling = dict(row.provenance.sampling)
    names = dict.fromkeys(played.players)
    head = {
        "meta": {
            "game_name": game,
            "experiment_name": experiment,
            "game_id": row.task,
            "results_folder": model,
            "clem_version": f"{LAYOUT}, written by dfc {dfc.__version__}",
            "round_count": len(rounds),
            "completed": True,
        },
        "player_models": {
            str(number): {"model_spec": {"model_name": name}, "gen_args": sampling} for number, name in enumerate(names)
        },
        "players": {
            _MASTER: {"game_role": "Game Master", "model_name": "programmatic"},
            **{
                f"Player {seat + 1}": {"game_role": _role(played.game, seat), "model_name": name}
                for seat, name in enumerate(played.players)
            },
        },
    }
    outcome = Outcome(row.outcomes[0])
    ended = {name: int(_RESULT.get(outcome, "Aborted") == name) for name in ("Aborted", "Lose", "Success")}
    interactions = {
        **head,
        "turns": rounds,
        **{name: [count[name] for count in counts] for name in _COUNTS},
        **ended,
        OURS: {
            "instance": instance_of(row),
            "truncated": outcome is Outcome.TRUNCATED,
            "world": row.world,
            "forfeited_by": row.forfeited_by,
            "system": row.messages[0].content if row.messages and row.messages[0].role == "system" else None,
        },
    }
    main = _main_score(row, outcome)
    total = {name: sum(count[name] for count in counts) for name in _COUNTS}
    more = {name: value for name, value in row.measures.items() if name not in ("quality", "Played")}
    scores = {
        **head,
        "round scores": {str(number): _with_ratio(count) for number, count in enumerate(counts)},
        "episode scores": {**more, **_with_ratio(total), **ended, "Main Score": main},
    }
    return (
        {"game_id": row.task, OURS: {"options": json.loads(row.options), "seed": row.game_seed}},
        interactions,
        scores,
    )


def _role(game: Game, seat: int) -> str:
    return game.player_roles[seat] if game.player_roles else str(seat)


def _main_score(row: Trajectory, outcome: Outcome) -> float:
    """Returns the quality; not a number where the game did not come to its end, as the original writes it."""
    if outcome in (Outcome.INVALID, Outcome.TRUNCATED):
        return float("nan")
    usual = {Outcome.WIN: 100.0, Outcome.DRAW: 50.0}.get(outcome, 0.0)
    found = float(row.measures.get("quality", usual))
    if not 0 <= found <= 100:
        raise ValueError(f"{row.game}, task {row.task}: its quality is {found}, but must be between 0 and 100")
    return found


def _with_ratio(count: Mapping[str, int]) -> dict[str, float]:
    ratio = count["Parsed Request Count"] / count["Request Count"] if count["Request Count"] else 0.0
    return {**count, "Request Success Ratio": ratio}


def _rounds(played: _Played) -> tuple[list[list[Json]], list[collections.Counter[str]]]:
    """Returns the events by round, and how many replies of players each has, could be used and could not."""
    rounds: list[list[Json]] = [[]]
    counts = [collections.Counter[str]()]
    ended = False  # whether an ordinary reply has been played since the first seat was asked
    for turn in played.turns:
        if turn.seat >= played.game.seats:
            rounds[-1].append(_event(_MASTER, _MASTER, played.game.role(turn.seat), turn.reply))
            continue
        if turn.seat == 0 and not turn.aside:
            if ended:
                rounds.append([])
                counts.append(collections.Counter())
            ended = False
        player = f"Player {turn.seat + 1}"
        label = "forget" if turn.aside else None
        rounds[-1].append(_event(_MASTER, player, "send message", turn.observation, label or "context"))
        rounds[-1].append(_event(player, _MASTER, "get message", turn.reply, label or "response"))
        usable = turn.verdict is Verdict.PLAYED
        if not usable:
            rounds[-1].append(_event(_MASTER, _MASTER, "invalid reply", str(turn.verdict)))
        counts[-1].update({"Request Count": 1, _COUNTS[1] if usable else _COUNTS[2]: 1})
        ended = ended or (usable and not turn.aside)
    rounds[-1].append(_event(_MASTER, _MASTER, "end", str(played.row.outcomes[0])))
    return rounds, counts


def _event(sender: str, receiver: str, kind: str, content: str, label: str | None = None) -> Json:
    action = {"type": kind, "content": content, **({} if label is None else {"label": label})}
    return {"from": sender, "to": receiver, "action": action}
