"""Samples of an iteration of self-play, and its records and metrics."""

import dataclasses
import time
from typing import Any

import numpy as np

from dfc.episodes import Episode, PlayedReply
from dfc.methods.language_self_play import families, hygiene, self_reward, watch
from dfc.methods.language_self_play.roles import RoleAdvantages
from dfc.methods.language_self_play.self_play_run import SelfPlayRun, State
from dfc.methods.language_self_play.update import entropy
from dfc.rollout.samples import Reply
from dfc.runs.metrics import IterationRecord
from dfc.samples import Sample, choices_metrics

STAGE = "self-play"
GAME = "language_self_play"  # of records
PHASES = ("queries", "answers", "reward", "self_reward", "reference", "update")


@dataclasses.dataclass(frozen=True)
class Queries:
    """An iteration's queries.

    Attributes:
      texts: of each. replies: as the Challenger wrote them; empty where they are data.
      tasks: name of each one's task, empty for none. kinds: what is wrong with each, or None.
    """

    texts: list[str]
    replies: list[Reply]
    tasks: list[str]
    kinds: list[str | None]

    @property
    def bad(self) -> np.ndarray:
        """Which queries are bad, bool [N]."""
        return np.asarray([kind is not None for kind in self.kinds], bool)


@dataclasses.dataclass(frozen=True)
class Played:
    """What an iteration sampled.

    Attributes:
      queries: of the iteration. answers: to each, none where it was not asked.
      probed: the mean reward of fixed queries.
    """

    queries: Queries
    answers: list[list[Reply]]
    probed: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Sampled:
    """What an iteration sampled, and what of it was scored.

    Attributes:
      queries: of the iteration. answers: to each, none where it was not asked.
      also_seen: what fixed queries and parts of R gave.
      rewards: float64 [N, G], R. scored: bool, which answers it has values of. marks: float64 [N, G], R_Q.
      mask: bool [N, G], which answers count. judged: the judge's replies; None without a judge.
    """

    queries: Queries
    answers: list[list[Reply]]
    also_seen: dict[str, float]
    rewards: np.ndarray
    scored: np.ndarray
    marks: np.ndarray
    mask: np.ndarray
    judged: self_reward.Judged | None

    @property
    def told(self) -> list[Sample]:
        """The Challenger's samples."""
        return [reply.sample for reply in self.queries.replies]

    @property
    def said(self) -> list[list[Sample]]:
        """The Solver's samples, of each query."""
        return [[reply.sample for reply in group] for group in self.answers]


class PhaseClock:
    """Seconds of the phases of an iteration."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def done(self, phase: str) -> None:
        """Notes that a phase has ended now."""
        now = time.perf_counter()
        self.seconds[phase], self._last = now - self._last, now


def seconds_line(found: IterationRecord) -> str:
    """Returns a text of the seconds that each phase of an iteration took."""
    names = {"self_reward": "self-reward", "reference": "reference log-probabilities"}
    parts = ", ".join(f"{names.get(phase, phase)} {found.clock[f'{phase}_seconds']:.2f}" for phase in PHASES)
    return f"seconds of iteration {found.iteration}: {parts}"


def episode_records(
    play: SelfPlayRun, iteration: int, found: Sampled, advantages: RoleAdvantages
) -> list[dict[str, Any]]:
    """Returns a record of every query with its answers, as an episode whose replies they are."""
    queries, judged = found.queries, found.judged
    judgements = iter([] if judged is None else judged.replies)
    records = []
    for i, text in enumerate(queries.texts):
        count = len(found.answers[i])
        lines = (text, *(reply.text for reply in found.answers[i]))
        episode = Episode(
            GAME,
            options={},
            game_seed=i,
            seat=0,
            opponent="none",
            group=i,
            replies=[PlayedReply(0, line, "policy") for line in lines],
            outcomes=("truncated",),
            forfeited_by=None,
            illegal_tries=0,
            malformed=False,
            sample=queries.replies[i].sample if queries.replies else Sample.empty(),
            policy_version=iteration,
        )
        more: dict[str, Any] = {}
        if judged is not None:
            said = [next(judgements) if scored else [] for scored in found.scored[i, :count]]
            more = {"marks": found.marks[i, :count].tolist(), "judge": said}
        records.append(
            episode.record(
                stage=STAGE,
                iteration=iteration + 1,
                kind="data" if play.config.method == "data" else "query",
                query=text,
                task=queries.tasks[i],
                wrong=queries.kinds[i],
                reward=float(advantages.values[i]),
                rewards=found.rewards[i, :count].tolist(),
                scored=found.mask[i, :count].tolist(),
                advantage=float(advantages.challenger[i]),
                **more,
            )
        )
    return records


def figures(play: SelfPlayRun, state: State, found: Sampled, advantages: RoleAdvantages) -> dict[str, float]:
    """Returns an iteration's metrics and updates the state's counters and alarms."""
    queries, judged = found.queries, found.judged
    levels = [None if problem is None else problem.difficulty for problem in map(families.read, queries.texts)]
    texts = [[reply.text for reply in group] for group in found.answers]
    seen = watch.figures(queries.texts, queries.kinds, texts, found.rewards, found.mask, levels)
    if judged is not None:
        seen["self_reward_failures"] = judged.failures
    seen |= {f"bad_queries/{kind}": float(count) for kind, count in hygiene.counts(queries.kinds).items()}
    seen |= {"usable": float(advantages.usable.mean()), "unsolved_queries": float(advantages.unsolved.sum())}
    weight = play.config.self_reward.weight if judged is not None else 0.0
    different = watch.live(found.rewards + weight * found.marks, advantages.trained_answers)
    seen["solver/taught"] = float(different.any())
    play.alarms = state.watch.take(seen)
    metrics = seen | found.also_seen
    if play.config.trains_challenger:
        counted = advantages.challenger[advantages.trained_queries]
        metrics["challenger/taught"] = float(counted.size > 0 and counted.max() > counted.min())
    again = hygiene.duplicates_by_difficulty(queries.kinds, levels)
    metrics |= {f"duplicates/difficulty_{level}": float(count) for level, count in again.items()}
    metrics["unscored_answers"] = float(sum(map(len, found.answers)) - int(found.scored.sum()))
    metrics["reward"] = float(found.rewards[found.scored].mean()) if found.scored.any() else 0.0
    said = [sample for group in found.said for sample in group]
    if play.config.sampling.filtered:
        metrics |= choices_metrics([*found.told, *said])
    lengths = [sample.generated_tokens for sample in said]
    metrics["answer_length"] = float(np.mean(lengths)) if lengths else 0.0
    metrics["solver/entropy"] = entropy(said)
    if found.told:
        metrics["challenger/entropy"] = entropy(found.told)
    if judged is not None:
        state.judged, state.marked = state.judged + len(judged.mask), state.marked + judged.read
        metrics["self_reward"] = float(found.marks[found.mask].mean()) if found.mask.any() else 0.0
        metrics["self_reward_asked_again"] = float(judged.asked_again)
        metrics["self_reward_without_room"] = float(judged.without_room)
    return metrics


def iteration_record(
    play: SelfPlayRun, state: State, metrics: dict[str, float], found: Sampled, clock: PhaseClock
) -> IterationRecord:
    """Returns the results of an iteration, as recorded and shown."""
    tokens = sum(sample.generated_tokens for sample in found.told)
    tokens += sum(sample.generated_tokens for group in found.said for sample in group)
    seconds = sum(clock.seconds.values())
    return IterationRecord(
        stage=STAGE,
        iteration=state.done,
        iterations=play.config.iterations,
        step=state.done,
        metrics=metrics | {"generated_tokens": float(tokens)},
        clock={
            "time": time.time(),
            "seconds": seconds,
            **{f"{phase}_seconds": clock.seconds[phase] for phase in PHASES},
            "episodes_per_second": sum(map(len, found.answers)) / seconds,
            "tokens_per_second": tokens / seconds,
        },
        win_rates={},
    )
