"""Evaluations of dialogue games: clemscores with intervals, and why games were broken off.

An instance that was not played to its end has no quality: broken off by its rules, out of a player's context, or failed
(something outside the rules broke down). The three are counted apart. Source: "Playpen", sections 3.4 and 5, Figure 5.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from dfc.evaluation.clemscore import Clemscore, GameScore, clemscore, game_score
from dfc.evaluation.statistics import Interval
from dfc.evaluation.tasks import EvalSetting, key
from dfc.games import registry
from dfc.games.dialogue.dialogue_game import NOT_THERE
from dfc.games.game import NOT_OF_FORM, UNREADABLE

Ending = Literal["turn limit", "answer format", "game mechanics", "hallucination", "context", "failed"]
"""Why an instance was not played to its end; the first five are the paper's, `failed` is not caused by a player."""
ENDINGS: tuple[Ending, ...] = get_args(Ending)

IN_DOMAIN, OUT_OF_DOMAIN = "in domain", "out of domain"
_RESAMPLES = 2000
_SHARES = (2.5, 97.5)  # percentiles of a 95 % interval


def ending(record: Mapping[str, Any]) -> Ending | None:
    """Returns why a game on record (`dfc.episodes.Episode.record`) was not played to its end, None if it was."""
    if "failure" in record:
        return "failed"
    outcomes = set(record["outcomes"])
    if "truncated" in outcomes:
        return "context" if record.get("overrun_by") is not None else "turn limit"
    if "invalid" not in outcomes:
        return None
    if record["forfeited_by"] is None:
        return "turn limit"
    why = record.get("abort_reason", "")
    if why.startswith((UNREADABLE, NOT_OF_FORM)):
        return "answer format"
    return "hallucination" if NOT_THERE in why else "game mechanics"


@dataclasses.dataclass(frozen=True)
class Score:
    """Of one setting and game, or of one setting and all games, a number with its interval.

    Attributes:
      clemscore, played, quality: as `dfc.evaluation.clemscore`; the intervals hold 95 % of 2,000 evaluations whose
        instances are drawn again, with replacement, within each game. Of one game `clemscore` is its product.
    """

    clemscore: Interval
    played: Interval
    quality: Interval


@dataclasses.dataclass(frozen=True)
class DialogueResults:
    """Every figure of an evaluation of dialogue games.

    Attributes:
      settings: in the order of the policies. games: in their order.
      scores: by setting and game.
      overall: by setting.
      domains: games that a policy may be trained on (`IN_DOMAIN`) and those for evaluation only (`OUT_OF_DOMAIN`); {}
        where all are of one kind.
      by_domain: by setting and domain, as `overall`.
      by_game: `scores` without intervals: what is rounded first.
      endings: by setting and game, how many instances were not played to their end, and why.
      reasons: by setting, how often each reason was given, as text, the most frequent first.
    """

    settings: tuple[EvalSetting, ...]
    games: tuple[str, ...]
    scores: Mapping[tuple[EvalSetting, str], Score]
    overall: Mapping[EvalSetting, Score]
    domains: Mapping[str, tuple[str, ...]]
    by_domain: Mapping[tuple[EvalSetting, str], Score]
    by_game: Mapping[tuple[EvalSetting, str], GameScore]
    endings: Mapping[tuple[EvalSetting, str], collections.Counter[Ending]]
    reasons: Mapping[EvalSetting, list[tuple[str, int]]]


def of_records(
    settings: Sequence[EvalSetting], games: Iterable[str], records: Iterable[Mapping[str, Any]]
) -> DialogueResults | None:
    """Returns the results of the games that have a quality; of several of one instance the last one counts.

    Records are lines of episodes.jsonl, as `dfc.stages.evaluate_tasks` writes them. The result is None where no game
    has an instance in every setting.
    """
    named = list(games)
    qualities: dict[tuple[EvalSetting, str], list[float | None]] = collections.defaultdict(list)
    endings: dict[tuple[EvalSetting, str], collections.Counter[Ending]] = collections.defaultdict(collections.Counter)
    reasons: dict[EvalSetting, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for record in {key(record): record for record in records}.values():
        setting = EvalSetting(record["policy"], record["temperature"])
        place, why = (setting, record["game"]), ending(record)
        qualities[place].append(record["measures"]["quality"] if why is None else None)
        if why is not None:
            endings[place][why] += 1
            reasons[setting][f"{record['game']}: {record.get('abort_reason') or why}"] += 1
    whole = [game for game in named if all(qualities[setting, game] for setting in settings)]
    if not whole or not settings:
        return None
    by_game = {(setting, game): game_score(qualities[setting, game]) for setting in settings for game in whole}
    domains = _domains(whole)
    scores: dict[tuple[EvalSetting, str], Score] = {}
    overall: dict[EvalSetting, Score] = {}
    by_domain: dict[tuple[EvalSetting, str], Score] = {}
    for setting in settings:
        found = {game: by_game[setting, game] for game in whole}
        drawn = {game: _resampled(qualities[setting, game], number) for number, game in enumerate(whole)}
        scores |= {(setting, game): _score(clemscore([found[game]]), *drawn[game]) for game in whole}
        overall[setting] = _score(clemscore(found), *_combined(list(drawn.values())))
        for domain, names in domains.items():
            some = clemscore({game: found[game] for game in names})
            by_domain[setting, domain] = _score(some, *_combined([drawn[game] for game in names]))
    return DialogueResults(
        tuple(settings),
        tuple(whole),
        scores,
        overall,
        domains,
        by_domain,
        by_game,
        {place: endings[place] for place in by_game},
        {setting: reasons[setting].most_common() for setting in settings},
    )


def _domains(games: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns the games by domain; {} where they are all of one. A name that is no game's is one to train on."""
    only = {game for game in games if not registry.is_code(game) and not registry.problems(game, {})}
    only = {game for game in only if getattr(registry.kind(game), "evaluation_only", False)}
    inside = tuple(game for game in games if game not in only)
    return {IN_DOMAIN: inside, OUT_OF_DOMAIN: tuple(g for g in games if g in only)} if inside and only else {}


def _resampled(qualities: Sequence[float | None], number: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns % played and quality, float64 [resamples] each, of instances drawn again; a quality may be nan."""
    values = np.asarray([np.nan if quality is None else quality for quality in qualities])
    rng = np.random.default_rng(number)  # the same draws for every setting: differences are of the same instances
    drawn = values[rng.integers(0, len(values), (_RESAMPLES, len(values)))]
    played = ~np.isnan(drawn)
    count = played.sum(axis=1)
    quality = np.full(_RESAMPLES, np.nan)
    np.divide(np.where(played, drawn, 0).sum(axis=1), count, out=quality, where=count > 0)
    return 100 * count / len(values), quality


def _combined(drawn: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the means over games; those of which nothing was played drop out of the quality."""
    played, quality = (np.stack(columns) for columns in zip(*drawn, strict=True))
    there = ~np.isnan(quality)
    mean = np.full(_RESAMPLES, np.nan)
    np.divide(np.where(there, quality, 0).sum(axis=0), there.sum(axis=0), out=mean, where=there.any(axis=0))
    return played.mean(axis=0), mean


def _score(of: Clemscore, played: np.ndarray, quality: np.ndarray) -> Score:
    clem = np.where(np.isnan(quality), 0.0, played / 100 * np.nan_to_num(quality))
    return Score(_interval(of.clemscore, clem), _interval(of.played, played), _interval(of.quality, quality))


def _interval(value: float | None, drawn: np.ndarray) -> Interval:
    reached = drawn[~np.isnan(drawn)]
    low, high = np.percentile(reached, _SHARES) if len(reached) else (np.nan, np.nan)
    return Interval(np.nan if value is None else value, float(low), float(high))
