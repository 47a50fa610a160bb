"""Warnings from a run's metrics, raised while it can still be stopped.

Four things raise a warning; each rule is documented at its function, each number with its reason in `Thresholds`. A
method with a page of its own (`dfc.report.method_page`) has alarms of its own instead.

    win_rate_drop  a group that was learned wins clearly less than when its stage ended
    format_rate    too many replies of a game are illegal or malformed
    kl, entropy    the divergence to the initial policy or the entropy jumps from one iteration to the next
    dead_groups    the rewards of rollout groups are all equal, so that there is nothing to learn from them
"""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from dfc.evaluation.statistics import difference_interval
from dfc.report import method_page
from dfc.report.reader import RunRecords, game_metrics

Kind = Literal["win_rate_drop", "format_rate", "kl", "entropy", "dead_groups", "method"]
Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """When a warning is raised.

    Attributes:
      format_rate: a game's share of legal replies below this. One in ten: from there on forfeits, not skill, decide.
      jump_ratio: a value this many times the largest (entropy: or the smallest, downwards) of the iterations before.
        In a healthy run the KL divergence grows up to 1.7 times per iteration after its first five; where a few tokens
        blow it up, it was 15 to 250 times as large.
      entropy_ratio: the same for the entropy per token, which moves with the share of each game: up to 1.45 times.
      jump_window: iterations of the stage that a value is compared with; the largest of them, not their mean, so that
        a spread of values raises nothing.
      jump_history: iterations a stage needs before its values are judged; the first ones start from nearly 0.
      kl_step: nats per token; a smaller rise is no jump, whatever its ratio, since a KL divergence near 0 is all ratio.
      entropy_step: nats per token, the same for the entropy.
      drop_window: kept iterations that make up a win rate, now and at a stage's end; one alone has a few games.
      drop_patience: iterations after a fuse that raise no drop: averaging itself lowers the win rate, and these
        iterations are there to regain it.
      drop_z: normal quantile of the drop's interval. 3.5, not 1.96: the rule is asked in every iteration for every
        group, and is to be wrong in about one run of a hundred.
      dead_share: of the rollout groups of a game. With four in five dead, five times as many games are played as are
        learned from.
      dead_window: iterations whose rollout groups count together.
      dead_least: rollout groups of fewer are inconclusive: priority sampling leaves a solved game with a few.
      solved: a game won this often is left alone: its groups are dead, and its entropy falls, because nothing is left
        to learn.
      gap: iterations without a warning after which the same one counts as a new one.
    """

    format_rate: float = 0.9
    jump_ratio: float = 2.0
    entropy_ratio: float = 1.5
    jump_window: int = 8
    jump_history: int = 5
    kl_step: float = 0.05
    entropy_step: float = 0.1
    drop_window: int = 5
    drop_patience: int = 10
    drop_z: float = 3.5
    dead_share: float = 0.8
    dead_window: int = 3
    dead_least: int = 8
    solved: float = 0.95
    gap: int = 3


@dataclasses.dataclass(frozen=True)
class RunWarning:
    """One warning, over all neighbouring iterations that raised it.

    Attributes:
      kind: which rule raised it.
      stage: of the recipe.
      subject: the game or group it is about; empty if it is about the whole run.
      first: iteration of the stage that raised it first.
      iteration: iteration of the stage that raised it last.
      first_step: step of the run that raised it first.
      step: step of the run that raised it last.
      title: what happened, a short text without numbers.
      sentence: the numbers of the last iteration, and what to do.
      metrics: names of the metrics it shows in.
    """

    kind: Kind
    stage: str
    subject: str
    first: int
    iteration: int
    first_step: int
    step: int
    title: str
    sentence: str
    metrics: tuple[str, ...]

    @property
    def iterations(self) -> str:
        """When it was raised, as text."""
        span = (
            f"iteration {self.first}" if self.first == self.iteration else f"iterations {self.first}-{self.iteration}"
        )
        return f"{self.stage}, {span}"

    @property
    def line(self) -> str:
        """Title and beginning: one line that stays the same while the warning lasts."""
        return f"{self.title} ({self.stage}, from iteration {self.first})"


def of_run(run: RunRecords) -> list[RunWarning]:
    """Returns the warnings of a run; its configuration says how many games are counted in a win rate."""
    method = run.config or {}
    if (page := method_page.of(run)) is not None:
        found = (
            _raised(row, "method", a.metric, a.title, f"{a.sentence}.", a.metric) for row, a in page.alarms(run.metrics)
        )
        return _in_order(found, Thresholds())
    acceptance = method.get("acceptance", {})
    games = acceptance.get("games") if acceptance.get("rule") != "always" else None
    return find(run.metrics, run.groups, games=games, imitates=method.get("method") == "imitate_wins")


def find(
    rows: Iterable[Row],
    groups: Mapping[str, Any] | None = None,
    *,
    games: int | None = None,
    imitates: bool = False,
    thresholds: Thresholds = Thresholds(),
) -> list[RunWarning]:
    """Returns the warnings of a run so far, the one raised last at the end.

    Lines of metrics.jsonl are in the order of their steps; a metric that is absent or not finite raises nothing.
    Without groups (groups.json) no win rate can be compared. `games` are counted in one win rate of one game
    (acceptance.games of a recipe that plays such); None takes each row's ``games/<id>/seeds``: of several games on one
    seed only one is independent. `imitates` says that the initial policy played the training games, and those it won
    are imitated: then neither its illegal replies nor groups of equal rewards are conclusive about what is trained.
    """
    stages: dict[str, list[Row]] = {}
    for row in rows:
        stages.setdefault(str(row["stage"]), []).append(row)
    found: list[RunWarning] = []
    for stage, lines in stages.items():
        earlier = {name: stages[name] for name in list(stages)[: list(stages).index(stage)]}
        found += _jumps(lines, thresholds)
        if not imitates:
            found += _format_rates(lines, thresholds)
            found += _dead_groups(lines, thresholds)
        found += _no_updates(lines)
        found += _drops(lines, earlier, groups or {}, games, thresholds)
    return _in_order(found, thresholds)


def _in_order(found: Iterable[RunWarning], limits: Thresholds) -> list[RunWarning]:
    return sorted(_collapsed(found, limits.gap), key=lambda warning: (warning.step, warning.first_step))


def _raised(row: Row, kind: Kind, subject: str, title: str, sentence: str, *metrics: str) -> RunWarning:
    at, step = int(row["iteration"]), int(row["step"])
    return RunWarning(kind, str(row["stage"]), subject, at, at, step, step, title, sentence, metrics)


def _collapsed(found: Iterable[RunWarning], gap: int) -> Iterator[RunWarning]:
    """Makes one warning of those that differ in their numbers only and are at most `gap` iterations apart."""
    last: dict[tuple[str, ...], RunWarning] = {}
    for warning in found:
        key = (warning.kind, warning.stage, warning.subject, warning.title)
        before = last.get(key)
        if before is not None and warning.iteration - before.iteration > gap:
            yield before
            before = None
        begun = before or warning
        last[key] = dataclasses.replace(warning, first=begun.first, first_step=begun.first_step)
    yield from last.values()


def _value(row: Row, metric: str) -> float:
    """A metric, or nan where it is absent or not finite."""
    value = float(row["metrics"].get(metric, math.nan))
    return value if math.isfinite(value) else math.nan


def _games(lines: Sequence[Row], metric: str) -> dict[str, list[tuple[Row, float]]]:
    """The finite values of ``games/<id>/<metric>`` with their rows, per game."""
    names = dict.fromkeys(itertools.chain.from_iterable(row["metrics"] for row in lines))
    game_ids = [game for game, found in game_metrics(names) if found == metric]
    return {game: _finite(lines, f"games/{game}/{metric}") for game in game_ids}


def _finite(lines: Sequence[Row], metric: str) -> list[tuple[Row, float]]:
    return [(row, value) for row in lines if not math.isnan(value := _value(row, metric))]


# ---- the rules -----------------------------------------------------------------------------------------------------


def _format_rates(lines: Sequence[Row], limits: Thresholds) -> Iterator[RunWarning]:
    """Rule: the format rate of one iteration is below the threshold."""
    for game, values in _games(lines, "format_rate").items():
        for row, rate in values:
            if rate < limits.format_rate:
                yield _raised(
                    row,
                    "format_rate",
                    game,
                    f"too many illegal replies in {game}",
                    f"{rate:.1%} of the replies in {game} were legal; at least {limits.format_rate:.0%} should be. Read"
                    " some of its games below. In a new run, raise rollout.max_reply_length if replies are cut off,"
                    " lower optimizer.learning_rate if they were legal once, or set rollout.legal_only.",
                    f"games/{game}/format_rate",
                )


def _jumps(lines: Sequence[Row], limits: Thresholds) -> Iterator[RunWarning]:
    """Rule: against all of the window before, a value is `ratio` times as large and larger by a step (or smaller).

    A policy that wins nearly always has no use for entropy: its fall is no warning then.
    """
    quantities: tuple[tuple[Kind, str, float, float], ...] = (
        ("kl", "kl", limits.jump_ratio, limits.kl_step),
        ("entropy", "negative_logprob", limits.entropy_ratio, limits.entropy_step),
    )
    for kind, metric, ratio, step in quantities:
        values = _finite(lines, metric)
        for index in range(limits.jump_history, len(values)):
            row, value = values[index]
            before = [v for _, v in values[max(0, index - limits.jump_window) : index]]
            low, high = min(before), max(before)
            if value > ratio * high and value - high >= step:
                yield _jump(row, kind, metric, value, "up", f"at most {high:.3g}", len(before))
            solved = _value(row, "win_rate") >= limits.solved
            if kind == "entropy" and value * ratio < low and low - value >= step and not solved:
                yield _jump(row, kind, metric, value, "down", f"at least {low:.3g}", len(before))


def _jump(row: Row, kind: Kind, metric: str, value: float, way: str, bound: str, count: int) -> RunWarning:
    name = {"kl": "KL divergence to the initial policy", "entropy": "entropy"}[kind]
    where = f"The {name} went {way} to {value:.3g} nats per token; in the {count} iterations before it was {bound}."
    hint = {
        ("kl", "up"): "One iteration alone can be a few tokens that the initial policy finds far likelier. If it stays"
        " or win rates fall, lower optimizer.learning_rate or raise grpo.kl_coefficient in a"
        " new run.",
        ("entropy", "up"): "The policy is becoming random; if win rates fall with it, lower optimizer.learning_rate in"
        " a new run.",
        ("entropy", "down"): "The policy tries fewer things and may stop learning; lower optimizer.learning_rate or"
        " raise grpo.kl_coefficient in a new run.",
    }[kind, way]
    return _raised(row, kind, "", f"{'KL' if kind == 'kl' else 'entropy'} jumped {way}", f"{where} {hint}", metric)


def _dead_groups(lines: Sequence[Row], limits: Thresholds) -> Iterator[RunWarning]:
    """Rule: of a game's rollout groups in the last iterations, enough of them and not solved, most were dead."""
    for game, values in _games(lines, "dead_groups").items():
        for index, (row, _) in enumerate(values):
            window = values[max(0, index + 1 - limits.dead_window) : index + 1]
            counts = [_number(_value(r, f"games/{game}/seeds"), 1.0) for r, _ in window]
            total = sum(counts)
            dead = sum(n * share for n, (_, share) in zip(counts, window, strict=True))
            rates = [v for r, _ in window if not math.isnan(v := _value(r, f"games/{game}/win_rate"))]
            rate = statistics.fmean(rates) if rates else math.nan
            if total < limits.dead_least or dead < limits.dead_share * total or rate >= limits.solved:
                continue
            won = "" if math.isnan(rate) else f" It wins {rate:.0%}."
            yield _raised(
                row,
                "dead_groups",
                game,
                f"nothing to learn from {game}",
                f"In {dead:.0f} of the last {total:.0f} rollout groups of {game} all rewards were equal, so they teach"
                f" nothing.{won} In a new run, raise group_size or sampling.temperature,"
                " take an easier variant of the game, or set refill (or more of it), which plays further groups in the"
                " place of these.",
                f"games/{game}/dead_groups",
            )


def _no_updates(lines: Sequence[Row]) -> Iterator[RunWarning]:
    """Rule: an iteration made no update: all rewards of every group were equal, or there was no win to imitate."""
    for row in lines:
        if _value(row, "updates") == 0:
            yield _raised(
                row,
                "dead_groups",
                "",
                "nothing to learn from any game",
                "All rewards of every rollout group were equal (or nothing was won, where won games are imitated), so"
                " the policy was not updated. If it does not win"
                " everything already: in a new run, raise group_size or sampling.temperature, or"
                " add easier games.",
                "updates",
            )


def _drops(
    lines: Sequence[Row],
    earlier: Mapping[str, Sequence[Row]],
    groups: Mapping[str, Any],
    games: int | None,
    limits: Thresholds,
) -> Iterator[RunWarning]:
    """Rule: the interval of (win rate now - at the end of an earlier stage) is below 0.

    A group's win rate is the mean over its games in the last `drop_window` iterations whose update was kept; those of
    a dropped update measure a policy that no longer exists. "Now" and "the end" are such windows; of several earlier
    stages that trained the group, the one that ended highest counts. Newcombe's interval takes all games as
    independent.
    """
    for group in groups.get("groups", []):
        metrics = tuple(f"games/{game}/win_rate" for game in group["games"])
        ends = {name: _rate(_kept(rows)[-limits.drop_window :], metrics, games) for name, rows in earlier.items()}
        ends = {name: end for name, end in ends.items() if end[1] > 0}
        if not ends:
            continue
        stage = max(ends, key=lambda name: ends[name][0])
        was, was_games = ends[stage]
        kept = _kept(lines)
        for index, row in enumerate(kept):
            now, now_games = _rate(kept[max(0, index + 1 - limits.drop_window) : index + 1], metrics, games)
            if int(row["iteration"]) <= limits.drop_patience or now_games == 0 or now >= was:
                continue
            change = difference_interval(now * now_games, now_games, was * was_games, was_games, limits.drop_z)
            if change.high >= 0:
                continue
            yield _raised(
                row,
                "win_rate_drop",
                str(group["name"]),
                f"group {group['name']} wins less than before",
                f"{group['name']} ({', '.join(group['games'])}) wins {now:.0%}; at the end of {stage} it was"
                f" {was:.0%}. The difference is between {100 * change.low:+.0f} and {100 * change.high:+.0f} points"
                f" ({math.erf(limits.drop_z / math.sqrt(2)):.2%} interval). In a new run, lower"
                " optimizer.learning_rate, set acceptance.rule to best, or raise"
                " conquer_iterations.",
                *metrics,
            )


def _kept(lines: Sequence[Row]) -> list[Row]:
    return [row for row in lines if _value(row, "accepted") != 0]


def _rate(lines: Sequence[Row], metrics: Sequence[str], games: int | None) -> tuple[float, float]:
    """Mean win rate over games of their means over iterations, and the games counted; 0 if one of them is absent."""
    means, count = [], 0.0
    for metric in metrics:
        found = _finite(lines, metric)
        if not found:
            return math.nan, 0.0
        means.append(statistics.fmean(v for _, v in found))
        seeds = metric.replace("/win_rate", "/seeds")
        count += sum(games if games is not None else _number(_value(row, seeds), 1.0) for row, _ in found)
    return statistics.fmean(means), count


def _number(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value
