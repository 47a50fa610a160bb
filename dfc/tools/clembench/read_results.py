"""Reads a folder of clembench's results: the dialogues of its games, and its table of scores.

Source: clemcore 3.7.2, `clemeval` and `clemgame.recorder`.

Departures: a game without a score is an error here. ``clem eval`` leaves it out of every mean, and what is left out is
mostly failures. A game that was aborted has no quality here, whatever score it was given.
"""

import collections
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dfc.evaluation.clemscore import GameScore, game_score
from dfc.records.trajectories import Message, well_formed
from dfc.records.trajectory_files import DatasetError
from dfc.rows.conversations import Conversation, Scalar
from dfc.rows.dialogues import Aside, Dialogue, Dialogues, from_conversation
from dfc.tools.clembench.write_results import FILES, OURS

MAX_BYTES = 16 * 2**20
"""The largest file of a game that is read."""
MAX_GAMES = 200_000
"""The most games of a folder that are read."""

_Json = Mapping[str, Any]
_INSTANCE, _INTERACTIONS, _SCORES = FILES
_MASTER, _PROGRAM = "GM", "programmatic"
_SHOWN = 3  # places in a message
_LEVELS = 4  # of folders below that of results: model, game, experiment, instance


class _Score(NamedTuple):
    """How a game ended."""

    aborted: bool
    success: bool
    quality: float | None


def read_results(folder: Path) -> Dialogues:
    """Returns the dialogues of all games of a folder, one for every player that was a model.

    The results are those of ``clem run`` or of `dfc.tools.clembench.write_results`.

    Raises:
      DatasetError: there is no game, a game has no score, or a file is too large or none of the layout; file and fix
        are named.
    """
    found: list[Dialogue] = []
    unfinished: collections.Counter[str] = collections.Counter()
    for place in _games(folder):
        interactions, score = _read(place / _INTERACTIONS), _score(place / _SCORES)
        try:
            if _mapping(interactions, OURS).get("truncated"):
                unfinished[_text(_mapping(interactions, "meta"), "game_name")] += 1
                continue
            found += _dialogues(interactions, score)
        except ValueError as error:
            raise DatasetError(
                f"{place / _INTERACTIONS}: {error}; play the game again, or delete its folder"
            ) from error
    return Dialogues(tuple(found), unfinished)


def read_scores(folder: Path) -> dict[str, dict[str, GameScore]]:
    """Returns the score of every game by model, as ``clem eval`` computes it; see `dfc.evaluation.clemscore`.

    Models and games are the names of their folders. Where the folder is one inside or above one of results, they are
    the names that the games' score files have.

    Raises:
      DatasetError: as `read_results`, or the model and game of a score are unknown.
    """
    qualities: dict[str, dict[str, list[float | None]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for place in _games(folder):
        model, game = _model_and_game(folder, place)
        qualities[model][game].append(_score(place / _SCORES).quality)
    return {model: {game: game_score(of) for game, of in games.items()} for model, games in qualities.items()}


# ---- the folder -----------------------------------------------------------------------------------------------------


def _games(folder: Path) -> list[Path]:
    """Returns the folders of the games; every one of them has all it needs."""
    found: list[Path] = []
    incomplete: list[tuple[Path, str]] = []
    for directory, inner, files in os.walk(folder.resolve()):
        inner.sort()
        if not {_INSTANCE, _INTERACTIONS, _SCORES} & set(files):
            continue
        found.append(Path(directory))
        incomplete += [(Path(directory), name) for name in (_INTERACTIONS, _SCORES) if name not in files]
        if len(found) > MAX_GAMES:
            raise DatasetError(f"{folder}: more than {MAX_GAMES} games; name a folder inside it")
    if not found:
        raise DatasetError(f"{folder}: no game of clembench's results; name the folder that clem run -r was given")
    if incomplete:
        names = ", ".join(f"{place} has no {name}" for place, name in incomplete[:_SHOWN])
        games = len({place for place, _ in incomplete})
        raise DatasetError(
            f"{folder}: {games} of {len(found)} games are not complete ({names}{', ...' if games > _SHOWN else ''}); "
            "score them (clem score), play them again, or delete their folders if they shall not count"
        )
    return found


def _model_and_game(folder: Path, place: Path) -> tuple[str, str]:
    levels = place.relative_to(folder.resolve()).parts
    if len(levels) == _LEVELS:
        return levels[0], levels[1]
    match _read(place / _SCORES).get("meta"):
        case {"results_folder": str(model), "game_name": str(game)} if model and game:
            return well_formed(model), well_formed(game)
    raise DatasetError(
        f"{place}: expected MODEL/GAME/EXPERIMENT/INSTANCE below {folder}, got {'/'.join(levels) or 'that folder'}, and"
        f" {_SCORES} does not name model and game; name the folder that clem run -r was given"
    )


def _read(path: Path) -> _Json:
    if path.stat().st_size > MAX_BYTES:
        raise DatasetError(f"{path}: more than {MAX_BYTES} bytes; play the game again, or delete its folder")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: no JSON: {error}; it is cut or damaged: play the game again") from error
    if not isinstance(found, dict):
        raise DatasetError(f"{path}: expected a JSON object, got {type(found).__name__}; play the game again")
    return found


def _score(path: Path) -> _Score:
    scores = _read(path).get("episode scores")
    if not isinstance(scores, dict):
        raise DatasetError(f"{path}: it has no 'episode scores'; score it again (clem score)")
    flags = [scores.get(name, 0) for name in ("Aborted", "Success")]
    if "Aborted" not in scores or not all(isinstance(flag, int | float) and flag in (0, 1) for flag in flags):
        raise DatasetError(
            f"{path}: Aborted and Success must be 0 or 1, got {str(flags)[:80]}; score it again (clem score)"
        )
    aborted, success = map(bool, flags)
    if aborted:
        return _Score(aborted=True, success=False, quality=None)
    main = scores.get("Main Score")
    if isinstance(main, bool) or not isinstance(main, int | float) or not 0 <= main <= 100:
        raise DatasetError(
            f"{path}: the Main Score of a game that was played must be from 0 to 100, got {str(main)[:80]!r}; score it "
            "again (clem score)"
        )
    return _Score(aborted=False, success=success, quality=float(main))


# ---- a game ---------------------------------------------------------------------------------------------------------


def _dialogues(interactions: _Json, score: _Score) -> Iterator[Dialogue]:
    meta, players, ours = (_mapping(interactions, name) for name in ("meta", "players", OURS))
    outcome = "aborted" if score.aborted else "success" if score.success else "failure"
    events = [event for turn in _list(interactions, "turns") for event in _events(turn)]
    for number, name in enumerate(name for name in players if name != _MASTER):
        player = _checked(players[name], dict, f"player {name!r}")
        if player.get("model_name") == _PROGRAM:
            continue
        messages, asides = _messages(name, events, ours.get("system"))
        if not messages:
            continue
        blamed = ours.get("forfeited_by")
        described: dict[str, Scalar] = {
            "game": _text(meta, "game_name"),
            "experiment": _text(meta, "experiment_name"),
            "task_id": _clean(meta.get("game_id")),
            "game_role": _clean(player.get("game_role")),
            "player_name": _clean(name),
            "model": _clean(player.get("model_name")),
            "outcome": outcome,
            "quality": score.quality,
            "instance": _clean(ours.get("instance")),
            "world": _clean(ours.get("world")),
            "to_blame": None if OURS not in interactions else not score.aborted or blamed in (None, number),
            "asides": "",  # none of these messages
        }
        yield dataclasses.replace(from_conversation(Conversation(messages, described)), asides=asides)


def _events(turn: object) -> Iterator[tuple[str, str, str, str]]:
    """Yields (from, to, content, label) of the messages of a round between the master and a player."""
    for event in _checked(turn, list, "a turn"):
        match event:
            case {"from": str(sender), "to": str(receiver), "action": {"content": str(content), **action}}:
                if sender != receiver:
                    yield sender, receiver, content, str(action.get("label"))
            case {"from": str(sender), "to": str(receiver), "action": {}} if sender == receiver:
                pass  # a game's own notes may be of any kind
            case _:
                raise ValueError(f"an event must have from, to, and an action with a text, got {str(event)[:120]!r}")


def _messages(
    player: str, events: Sequence[tuple[str, str, str, str]], system: object
) -> tuple[tuple[Message, ...], tuple[Aside, ...]]:
    """Returns a player's messages and replies, and its asides.

    Messages of one side that follow each other are one, as clemcore's models read them; what is never answered is left
    out. What is asked aside is part of neither: a message that was waiting then is read with it, and is still waiting.
    """
    found = [("system", [well_formed(system)])] if isinstance(system, str) else []
    asides: list[Aside] = []
    asked: list[str] = []  # aside, and not answered yet
    size = 0
    for sender, receiver, content, label in events:
        if player not in (sender, receiver):
            continue
        role, text = "assistant" if sender == player else "user", well_formed(content)
        waiting = found[-1][1] if found and found[-1][0] == "user" else []
        if label == "forget" and role == "user":
            asked.append(text)
        elif label == "forget":
            if not waiting and not asked:
                raise ValueError(f"a reply that is forgotten must follow a message, got {text[:80]!r} after none")
            asides.append(Aside(len(found) - bool(waiting), _joined(waiting + asked), text))
            asked = []
            size += len(asides[-1].question)  # a message that waits is in each of them
            if size > MAX_BYTES:
                raise ValueError(f"what {player} is asked aside has more than {MAX_BYTES} characters")
        elif found and found[-1][0] == role:
            found[-1][1].append(text)
        else:
            found.append((role, [text]))
    while found and found[-1][0] != "assistant":
        found.pop()
    messages = tuple(Message(role, _joined(texts)) for role, texts in found)
    return messages, tuple(aside for aside in asides if aside.after <= len(found))


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(texts)


def _clean(value: Any) -> Any:  # noqa: ANN401 - of JSON; what it may be is checked where it is read
    return well_formed(value) if isinstance(value, str) else value


def _mapping(data: _Json, name: str) -> _Json:
    found: _Json = _checked(data.get(name, {} if name == OURS else None), dict, name)
    return found


def _list(data: _Json, name: str) -> list[Any]:
    found: list[Any] = _checked(data.get(name), list, name)
    return found


def _checked(found: object, kind: type, what: str) -> Any:  # noqa: ANN401 - of JSON
    if isinstance(found, kind):
        return found
    raise ValueError(f"{what} must be {'an object' if kind is dict else 'a list'}, got {str(found)[:80]!r}")


def _text(data: _Json, name: str) -> str:
    found = data.get(name)
    if not isinstance(found, str) or not found:
        raise ValueError(f"{name} of meta must be a text, got {str(found)[:80]!r}")
    return well_formed(found)
