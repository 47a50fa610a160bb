"""Self-play's external inputs: the queries of its files, and R(q, a), a sum over sources of rewards."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from dfc.config.self_play import LanguageSelfPlay
from dfc.errors import ConfigError
from dfc.games import functions
from dfc.games.rng import derive_seed
from dfc.methods.language_self_play import families, query_files
from dfc.models.sharding import make_mesh
from dfc.records.trajectory_files import DatasetError
from dfc.rewards import LARGEST
from dfc.rows.questions import read_questions
from dfc.scoring import formats
from dfc.scoring.formats import Check, Formats
from dfc.scoring.preference_model import PreferenceModel
from dfc.scoring.programs import ProgramTests
from dfc.scoring.references import References
from dfc.scoring.scorer import Scorer, Scores, ScoringError, checked_pairs, scores_of
from dfc.scoring.sums import OwnFunction, Sum


@dataclasses.dataclass(frozen=True)
class KnownQueries:
    """What files and families say before anything is sampled.

    Attributes:
      queries: of the file `data`; empty where the Challenger writes them.
      probes: fixed queries whose mean reward is watched.
      references: query -> its result or its tests.
    """

    queries: list[str]
    probes: list[str]
    references: dict[str, str | ProgramTests]

    @classmethod
    def read(cls, config: LanguageSelfPlay) -> "KnownQueries":
        """Raises a `ConfigError` that names file and line, or row, of what cannot be used."""
        references: dict[str, str | ProgramTests] = {}

        def queries(key: str, file: str) -> list[str]:
            path = Path(file).expanduser()
            if "references" not in config.reward.weights:
                return query_files.read(path, key)
            try:
                questions = read_questions(path)
            except DatasetError as error:
                raise ConfigError([f"{key}: {error}"]) from None
            for question in questions:
                if references.setdefault(question.query, question.reference) != question.reference:
                    what = f"asks {question.query[:80]!r}, which data={config.data!r} asks with another result"
                    raise ConfigError([f"{key}={file!r}: {what}; leave one of them out"])
            return [question.query for question in questions]

        data = queries("data", config.data) if config.data else []
        probes: list[str] = []
        if config.watch.probes and config.watch.probe_data:
            probes = queries("watch.probe_data", config.watch.probe_data)[: config.watch.probes]
        elif "families" in config.reward.weights:
            names = config.reward.families or tuple(families.FAMILIES)
            probes = families.probe(names, config.watch.probes, derive_seed("probes", config.seed))
        return cls(data, probes, references)


@dataclasses.dataclass(frozen=True)
class FamiliesScorer:
    """Rewards 1 for the right answer to a query of a family, else 0; one to a query of no family has the reward 0.

    Attributes:
      names: those that count.
    """

    names: tuple[str, ...] = tuple(families.FAMILIES)

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns values and what happened: ``right``, ``wrong``, ``no_family``; see `dfc.scoring.scorer.Scorer`."""
        problems = {query: families.read(query, self.names) for query in set(queries)}

        def one(query: str, answer: str) -> tuple[float, str]:
            problem = problems[query]
            if problem is None:
                return 0.0, "no_family"
            right = families.is_right(answer, problem.truth)
            return float(right), "right" if right else "wrong"

        return scores_of(one(query, answer) for query, answer in checked_pairs(queries, answers))


def make_reward(
    config: LanguageSelfPlay,
    references: Mapping[str, str | ProgramTests],
    check_stop: Callable[[], None] = lambda: None,
) -> Sum:
    """Returns R; used in a ``with`` statement, whose end ends its processes.

    `references` has by query its result or its tests, for the source of this name.

    Raises:
      ConfigError: a part is not installed, a format check cannot be read, or the model is none of preferences.
      WeightsError: its weights or its chat template cannot be used.
    """
    own = config.reward

    def source(name: str) -> Scorer:
        if name == "families":
            return FamiliesScorer(own.families or tuple(families.FAMILIES))
        if name == "formats":
            return Formats({}, _checks(config))
        if name == "references":
            return References(references, own.checking, check_stop)
        if name == "preference":
            model = own.preference
            mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
            return PreferenceModel(
                model.path, mesh=mesh, dtype=model.dtype, row_length=model.row_length, rows=model.rows
            )
        function = functions.named(own.function)
        assert function is not None  # noqa: S101 - the configuration was checked
        return OwnFunction(function, f"reward.function={own.function!r}")

    return Sum({name: (weight, source(name)) for name, weight in own.weights.items()}, everywhere=["preference"])


def refuse_useless(config: LanguageSelfPlay, scores: Scores, iteration: int) -> None:
    """Raises unless an iteration's rewards are numbers to learn from.

    Iterations count from 1.

    Raises:
      ScoringError: no answer has a reward, or one is larger than `LARGEST`; names the source and its setting. Without
        a custom function, the answers to a single query may all be without one, such as too long for a model.
    """
    count = len(scores.mask)
    few = "function" not in scores.unscored and count <= config.group_size
    if count and not few and not scores.mask.any():
        sources = [f"{_setting(config, name)} for {missing}" for name, missing in scores.unscored.items()]
        raise ScoringError(
            f"iteration {iteration}: none of its {count} answers could be scored, as there was no finite number (but "
            f"NaN, an infinity or nothing) from {' and '.join(sources)} of them, so there is nothing to learn from; "
            "correct the reward, and the same command continues"
        )
    values = np.abs(scores.values[scores.mask])
    if values.size and not values.max() <= LARGEST:
        sources = [_setting(config, name) for name in config.reward.weights]
        raise ScoringError(
            f"iteration {iteration}: the largest reward in size is {values.max():.4g}, from {' and '.join(sources)}; "
            f"one above {LARGEST:g} cannot be learned from, as squares of its gradients come near the largest float32. "
            "Return smaller numbers, or give the source a smaller weight"
        )


def _setting(config: LanguageSelfPlay, source: str) -> str:
    """Returns how the configuration names a source of rewards."""
    own = config.reward
    named = {
        "function": f"reward.function={own.function!r}",
        "preference": f"reward.preference.path={own.preference.path!r}",
    }
    return named.get(source, f"the source {source!r} of reward.sources")


def _checks(config: LanguageSelfPlay) -> list[Check]:
    found, problems = [], []
    for number, check in enumerate(config.reward.formats, start=1):
        try:
            found.append(formats.read(check))
        except ValueError as error:
            problems.append(f"reward.formats, check {number}: {error}")
    if problems:
        raise ConfigError(problems)
    return found
