"""Tables of an evaluation of dialogue games, in the shapes of Playpen's Tables 1, 7, 8, 10 and Figures 5 to 7."""

import collections
import math
from collections.abc import Sequence
from typing import Any

from dfc.evaluation.dialogue_results import ENDINGS, DialogueResults
from dfc.evaluation.statistics import Interval
from dfc.evaluation.task_statistics import as_json
from dfc.evaluation.tasks import EvalSetting
from dfc.report.tables import NOTHING, Table, estimate

_REASONS = 12  # of a policy, and of a game, that are shown as text
_SHOWN_REASON = 120  # characters

_SCORES = (
    "clemscore = (% played / 100) x quality. % played: instances played to their end; quality: of those, from 0 to "
    "100. Both are rounded by game first; a game of which nothing was played drops out of the mean quality. Intervals "
    "of 95 %: instances drawn again with replacement, within each game, 2,000 times."
)
_DOMAINS = "In domain: games that a policy may be trained on; out of domain: games that are for evaluation only."
_CELLS = "% played / quality; a dash: nothing was played."
_LESS = "Points of % played / quality; where the first policy played nothing, the quality stands alone, as in print."
_ENDINGS = (
    "Instances that were not played to their end. turn limit: of the game, or of the run; answer format: a reply in "
    "which nothing could be read; hallucination: it names what the game does not have; game mechanics: any other rule "
    "broken; context: a player's own was full; failed: something outside the rules broke down."
)


def tables(found: DialogueResults) -> list[Table]:
    """Returns the tables of an evaluation, the shortest summary first."""
    domains = found.domains or {"": found.games}
    by_game = [_by_game(found, domain, games) for domain, games in domains.items()]
    less = [_differences(found, domain, games) for domain, games in domains.items()]
    every = [_overall(found), *by_game, *less, _endings(found), _shares(found)]
    every += [_reasons(found), _reasons_by_game(found)]
    return [table for table in every if table.rows]


def to_json(found: DialogueResults) -> dict[str, Any]:
    """Returns it ready for JSON: scores as [value, low, high], nan as None."""
    data = {
        "games": found.games,
        "arms": [
            {
                **setting._asdict(),
                "overall": found.overall[setting],
                "domains": {domain: found.by_domain[setting, domain] for domain in found.domains},
                "games": {
                    game: {
                        **vars(found.scores[setting, game]),
                        "instances": found.by_game[setting, game].instances,
                        "not_played": found.endings[setting, game],
                    }
                    for game in found.games
                },
                "reasons": found.reasons[setting],
            }
            for setting in found.settings
        ],
    }
    return dict(as_json(data))


def _overall(found: DialogueResults) -> Table:
    notes, rows = (_SCORES, *([_DOMAINS] if found.domains else [])), []
    for setting, overall in found.overall.items():
        by_domain = {"all": overall, **{name: found.by_domain[setting, name] for name in found.domains}}
        for name, score in by_domain.items():
            figures = (score.clemscore, score.played, score.quality)
            rows.append((str(setting), *([name] if found.domains else []), *map(_with_interval, figures)))
    header = ("policy", *(["games"] if found.domains else []), "clemscore", "% played", "quality")
    return Table("clemscore", header, tuple(rows), notes)


def _titled(title: str, domain: str) -> str:
    return f"{title}, {domain}" if domain else title


def _by_game(found: DialogueResults, domain: str, games: Sequence[str]) -> Table:
    rows = [(game, *(_cell(found, setting, game) for setting in found.settings)) for game in games]
    if domain:
        means = [found.by_domain[setting, domain] for setting in found.settings]
        rows.append(("mean", *(_pair(score.played.estimate, score.quality.estimate) for score in means)))
    return Table(_titled("By game", domain), ("game", *map(str, found.settings)), tuple(rows), (_CELLS,))


def _pair(played: float, quality: float | None, form: str = ".2f") -> str:
    return f"{played:{form}} / {NOTHING if quality is None or math.isnan(quality) else format(quality, form)}"


def _cell(found: DialogueResults, setting: EvalSetting, game: str) -> str:
    score = found.by_game[setting, game]
    return _pair(score.played, score.quality)


def _differences(found: DialogueResults, domain: str, games: Sequence[str]) -> Table:
    first, *others = found.settings
    rows = []
    for game in games if others else ():
        base = found.by_game[first, game]
        cells = []
        for setting in others:
            score = found.by_game[setting, game]
            quality = None if score.quality is None else score.quality - (base.quality or 0.0)
            cells.append(_pair(score.played - base.played, quality, "+.2f"))
        rows.append((game, _cell(found, first, game), *cells))
    header = ("game", str(first), *(f"{setting}, less it" for setting in others))
    return Table(_titled("By game, less the first policy", domain), header, tuple(rows), (_LESS,))


def _endings(found: DialogueResults) -> Table:
    rows = []
    for setting in found.settings:
        counts = [sum(found.endings[setting, game][ending] for game in found.games) for ending in ENDINGS]
        instances = sum(found.by_game[setting, game].instances for game in found.games)
        if any(counts):
            rows.append((str(setting), str(instances), *map(str, counts)))
    return Table("Not played to the end", ("policy", "instances", *ENDINGS), tuple(rows), (_ENDINGS,))


def _shares(found: DialogueResults) -> Table:
    """Returns the classes of what was not played as shares of it, of each domain (Figure 5)."""
    rows = []
    for setting in found.settings:
        for domain, games in (found.domains or {"": found.games}).items():
            counts = [sum(found.endings[setting, game][ending] for game in games) for ending in ENDINGS]
            if any(counts):
                cells = (f"{100 * count / sum(counts):.1f} %" for count in counts)
                rows.append((str(setting), *([domain] if domain else []), *cells))
    header = ("policy", *(["games"] if found.domains else []), *ENDINGS)
    return Table("Not played to the end, shares", header, tuple(rows), ("Of the instances that were not.",))


def _reasons_by_game(found: DialogueResults) -> Table:
    """Returns how often each policy was broken off for each reason of a game (Figures 6 and 7)."""
    counts: dict[str, dict[str, collections.Counter[EvalSetting]]] = {game: {} for game in found.games}
    for setting in found.settings:
        for text, number in found.reasons[setting]:
            game, _, why = text.partition(": ")
            if game in counts:
                counts[game].setdefault(why, collections.Counter())[setting] += number
    rows = [
        (game, " ".join(why.split())[:_SHOWN_REASON], *(str(numbers[setting]) for setting in found.settings))
        for game, reasons in counts.items()
        for why, numbers in sorted(reasons.items(), key=lambda item: (-item[1].total(), item[0]))[:_REASONS]
    ]
    notes = (f"Instances; the {_REASONS} most frequent reasons of each game, of all policies together.",)
    header = ("game", "reason", *map(str, found.settings))
    return Table("Reasons by game", header, tuple(rows), notes, css="wrapped")


def _reasons(found: DialogueResults) -> Table:
    rows = tuple(
        (str(setting), str(count), " ".join(why.split())[:_SHOWN_REASON])
        for setting in found.settings
        for why, count in found.reasons[setting][:_REASONS]
    )
    notes = (f"The {_REASONS} most frequent of each policy; results.json has them all.",)
    return Table("Reasons, as the games say them", ("policy", "instances", "reason"), rows, notes, css="wrapped")


def _with_interval(value: Interval) -> str:
    return NOTHING if math.isnan(value.estimate) else estimate(value)
