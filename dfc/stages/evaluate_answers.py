"""How good the answers of policies are: accuracy and pass@k on questions, win rates on instructions; top to bottom.

    questions    of every file, read and checked before any model; instructions and others' answers to them likewise
    answers      policies x questions x samples; each policy gets the same seeds; scored where they are sampled
    comparisons  of answers to instructions with the baseline's, by a judge in both orders
    results      results.json, tables.md, report.html; answers to instructions in AlpacaEval's layout

What is common to evaluations, and resume: `dfc.stages.evaluation_run`; an answer on record is neither sampled nor
scored again, and a pair with a verdict is not asked about again. A run is not finished while the judge has not replied
on some pair, unless it refuses that pair.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import jax

from dfc import multihost
from dfc.config import EvaluateAnswers
from dfc.config.evaluate import INSTRUCTIONS
from dfc.errors import ConfigError, cut
from dfc.evaluation import answers, pairwise
from dfc.games.rng import derive_seed
from dfc.players import player_specs
from dfc.players.endpoint import Endpoint
from dfc.players.player_specs import PlayerSpec
from dfc.records.episode_store import ROUNDS, Part, Played, Players
from dfc.records.trajectory_files import DatasetError
from dfc.report import answers_page
from dfc.report.page import Results
from dfc.rollout import policy_answers, trained_weights
from dfc.rollout.policy_answers import AnsweringPolicy
from dfc.rows.instructions import Instruction, read_instructions, read_outputs, write_outputs
from dfc.rows.questions import Question, read_questions
from dfc.runs import players_on_record
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.scoring.programs import ProgramTests
from dfc.scoring.references import References
from dfc.scoring.scorer import LONGEST_ANSWER
from dfc.stages import comparisons, evaluation_run
from dfc.stages.comparisons import Comparisons, Pair

_KEPT_ANSWER = 20_000  # characters of an answer to a question that a record holds
_PAIRS_AT_ONCE = 64
_SHOWN_REFUSAL = 600  # characters of what a judge's server says of a pair
_Key = answers.Key | pairwise.Key


class _Asked(NamedTuple):
    """One answer of the schedule."""

    policy: str
    questions: str
    question: int
    sample: int
    query: str

    @property
    def key(self) -> answers.Key:
        return self.policy, self.questions, self.question, self.sample

    @property
    def seed(self) -> tuple[str, int, int]:
        return self.questions, self.question, self.sample


@dataclasses.dataclass(frozen=True)
class _Files:
    """What the files of a run hold; questions by their names, others' `outputs` to the instructions by theirs."""

    questions: Mapping[str, Sequence[Question]]
    instructions: Sequence[Instruction]
    outputs: Mapping[str, Sequence[str]]

    @property
    def datasets(self) -> list[str]:
        """Parts of the benchmark, in the order of their first instructions."""
        return list(dict.fromkeys(one.dataset for one in self.instructions))


def run(config: EvaluateAnswers, folder: RunFolder, stop: Stop) -> None:
    """Samples, scores and compares what is not on record yet, and writes the results.

    Raises:
      ConfigError: a file cannot be read, a part that scores is not installed, a question leaves no room for an answer,
        or a policy is no model of the run's shape and tokenizer.
      PlayerError: the judge gives no verdicts.
      RunFolderError: a policy, the instructions or the answers of a file are not those of the records.
    """
    specs = [player_specs.parse(text) for text in config.policies]
    files = _read(config)
    compared = comparisons.compared(config, [spec.name for spec in specs])
    answered = [Part(spec.name, [spec.name], _asked(config, spec, files), spec) for spec in specs]
    pairs = [
        Part(f"{name} beside {config.pairwise.baseline}", [name], _pairs(config, name, files)) for name in compared
    ]

    def players() -> _Players:
        seated = [dataclasses.replace(spec, who=policy_answers.where(config, spec)) for spec in specs]
        players_on_record.refuse_others(folder, trained_weights.identities(seated) | _digests(files))
        return _Players(config, folder, stop, files)

    counts = [sum(len(part.wanted) for part in some) for some in (answered, pairs)]
    unanswered = evaluation_run.evaluate(
        config,
        folder,
        stop,
        [*answered, *pairs],
        _key,
        players,
        lambda: _results(config, folder, [spec.name for spec in specs], files, compared),
        passing=lambda record: bool(record.get("unanswered")),  # because a reply of the judge did not come
        counted="{} answers, {} comparisons".format(*counts),
    )
    if unanswered:
        evaluation_run.say(
            f"{unanswered} comparisons are without a reply of the judge; the same command asks it about these again"
        )


def _key(record: Mapping[str, Any]) -> _Key:
    return pairwise.key(record) if pairwise.is_comparison(record) else answers.key(record)


# ---- files -----------------------------------------------------------------------------------------------------------


def _read(config: EvaluateAnswers) -> _Files:
    problems: list[str] = []

    @contextlib.contextmanager
    def of(key: str) -> Any:  # noqa: ANN401 - a context
        try:
            yield
        except DatasetError as error:
            problems.append(f"{key}: {error}")

    most, largest = config.questions_each, config.max_row_bytes
    questions: dict[str, list[Question]] = {}
    instructions: list[Instruction] = []
    outputs: dict[str, list[str]] = {}
    for name, file in config.questions.items():
        with of(f"questions.{name}"):
            questions[name] = read_questions(Path(file).expanduser(), most=most, max_row_bytes=largest)
    own = config.pairwise
    if own.instructions:
        with of("pairwise.instructions"):
            path = Path(own.instructions).expanduser()
            instructions = read_instructions(path, most=most, max_row_bytes=largest, reserved=(pairwise.OVERALL,))
    for name, file in own.outputs.items() if instructions else ():
        with of(f"pairwise.outputs.{name}"):
            outputs[name] = read_outputs(Path(file).expanduser(), instructions, max_row_bytes=largest)
    if problems:
        raise ConfigError(problems)
    return _Files(questions, instructions, outputs)


def _digests(files: _Files) -> dict[str, str]:
    """Returns what identifies the compared texts, by configuration key."""
    texts: dict[str, object] = {"pairwise.instructions": list(files.instructions)} if files.instructions else {}
    texts |= {f"pairwise.outputs.{name}": list(outputs) for name, outputs in files.outputs.items()}
    return {name: hashlib.sha256(json.dumps(text, default=vars).encode()).hexdigest() for name, text in texts.items()}


# ---- answers ---------------------------------------------------------------------------------------------------------


def _asked(config: EvaluateAnswers, spec: PlayerSpec, files: _Files) -> dict[_Key, _Asked | Pair]:
    """Returns the answers of a policy by their keys; those to one question follow each other."""
    every = [
        _Asked(spec.name, name, number, sample, question.query)
        for name, questions in files.questions.items()
        for number, question in enumerate(questions)
        for sample in range(config.samples)
    ]
    again = spec.name == config.pairwise.baseline and config.pairwise.baseline_again
    every += [
        _Asked(spec.name, INSTRUCTIONS, number, sample, instruction.text)
        for number, instruction in enumerate(files.instructions)
        for sample in range(1 + again)
    ]
    return {asked.key: asked for asked in every}


class _Players(Players[_Asked | Pair]):
    """Samples and scores answers, then asks the judge about pairs of them; one of the two is open at a time."""

    what = "comparisons"

    def __init__(self, config: EvaluateAnswers, folder: RunFolder, stop: Stop, files: _Files) -> None:
        self._config, self._folder, self._stop, self._files = config, folder, stop, files
        self._open = contextlib.ExitStack()
        self._answering: tuple[AnsweringPolicy, _Scorers] | None = None
        self._comparisons: Comparisons | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return [] if self._comparisons is None else self._comparisons.endpoints

    def begin(self, part: Part[Any, _Asked | Pair]) -> int:
        if part.subject is not None:
            policy, _ = self._answering = self._answering or self._open_answers()
            policy.load(part.subject)
            return ROUNDS * self._config.rollout.slots
        if self._comparisons is None:
            self._open.close()
            self._answering = None
            self._comparisons = self._open.enter_context(contextlib.closing(self._open_comparisons()))
        return _PAIRS_AT_ONCE

    def _open_answers(self) -> "tuple[AnsweringPolicy, _Scorers]":
        config, files = self._config, self._files
        scorers = self._open.enter_context(_Scorers(config, files.questions, self._stop.check_stop))
        queries = {f"questions.{name}": [one.query for one in some] for name, some in files.questions.items()}
        queries["pairwise.instructions"] = [one.text for one in files.instructions]
        return AnsweringPolicy(config, queries, self._folder.note_device, self._stop.check_stop), scorers

    def _open_comparisons(self) -> Comparisons:
        before = self._folder.records("episodes") if self._folder.writes else []
        texts = _texts(self._config, before, self._files)
        # Several processes would have to look equally often, and one of them waits for the judge.
        check_stop = self._stop.check_stop if jax.process_count() == 1 else lambda: None
        return Comparisons(self._config, self._files.instructions, texts, before, check_stop)

    def play(self, part: Part[Any, _Asked | Pair], some: list[_Asked | Pair]) -> Played:
        if self._answering is not None:
            asked = [one for one in some if isinstance(one, _Asked)]
            return Played(*_answers(self._config, *self._answering, part.policies[0], asked))
        assert self._comparisons is not None  # noqa: S101 - `begin` comes before
        return Played(self._comparisons.records([one for one in some if isinstance(one, Pair)]), {})

    def wins(self, record: Mapping[str, Any]) -> Iterable[tuple[str, bool]]:
        if pairwise.is_comparison(record):
            return [(record["dataset"], record["outcome"] == "win")]
        return [(record["questions"], record["value"] == 1)] * (record["questions"] != INSTRUCTIONS)

    def tells(self, record: Mapping[str, Any]) -> bool:
        return self._comparisons is None or self._comparisons.tells(record)


def _answers(
    config: EvaluateAnswers, policy: AnsweringPolicy, scorers: "_Scorers", name: str, asked: Sequence[_Asked]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    said = policy.answer(
        [one.query for one in asked], [derive_seed("evaluate answers", config.seed, *one.seed) for one in asked]
    )
    of_questions = [place for place, one in enumerate(asked) if one.questions != INSTRUCTIONS]
    scored = scorers.score([asked[place] for place in of_questions], [said[place]["answer"] for place in of_questions])
    scores: dict[int, tuple[float | None, str]] = dict(zip(of_questions, scored, strict=True))
    records = []
    for place, (one, text) in enumerate(zip(asked, said, strict=True)):
        value, verdict = scores.get(place, (None, "to_compare"))
        # One character more than a judge is shown tells an answer that is too long.
        kept = _KEPT_ANSWER if place in scores else LONGEST_ANSWER + 1
        record = {"policy": one.policy, "questions": one.questions, "question": one.question, "sample": one.sample}
        records.append(record | text | {"answer": text["answer"][:kept], "value": value, "verdict": verdict})
    return records, {f"generated_tokens/{name}": sum(text["tokens"] for text in said)}


# ---- comparisons -----------------------------------------------------------------------------------------------------


def _pairs(config: EvaluateAnswers, compared: str, files: _Files) -> dict[_Key, _Asked | Pair]:
    every = (Pair(compared, config.pairwise.baseline, number) for number in range(len(files.instructions)))
    return {(pair.compared, pair.baseline, pair.number): pair for pair in every}


def _texts(config: EvaluateAnswers, records: Sequence[Mapping[str, Any]], files: _Files) -> dict[str, list[str]]:
    """Returns all answers to the instructions by name, in order; a baseline's second ones by a name of their own.

    Where this process writes no records, they are those of the files only.
    """
    found: dict[str, dict[int, str]] = {}
    for record in records:
        if record.get("questions") == INSTRUCTIONS:
            name = config.pairwise.second_answers if record["sample"] else record["policy"]
            found.setdefault(name, {})[record["question"]] = record["answer"]
    number = range(len(files.instructions))
    sampled = {name: [some[n] for n in number] for name, some in found.items() if len(some) == len(number)}
    return {name: list(outputs) for name, outputs in files.outputs.items()} | sampled


# ---- results ---------------------------------------------------------------------------------------------------------


def _results(
    config: EvaluateAnswers, folder: RunFolder, policies: Sequence[str], files: _Files, compared: Sequence[str]
) -> Results:
    """Returns the results; writes the answers to instructions unless the run is finished."""
    records = folder.records("episodes")
    scored = [record for record in records if not pairwise.is_comparison(record)]
    found = answers.by_setting(scored, policies, list(files.questions), config.samples)
    preferred = pairwise.by_dataset(records, compared, files.datasets)
    for name, texts in {} if folder.finished.exists() else _texts(config, scored, files).items():
        if name not in files.outputs:
            write_outputs(folder.path / "alpaca_eval" / f"{name}.json", files.instructions, texts, name)
    results = answers_page.results(config, found, preferred)
    return dataclasses.replace(results, lines=[*_refused(records), *results.lines])


def _refused(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a warning of pairs that the judge refuses, if there are any."""
    newest = {pairwise.key(record): record for record in records if pairwise.is_comparison(record)}
    refused = [record for record in newest.values() if record.get("refused")]
    return [
        f"warning: the judge refuses {len(refused)} of {len(newest)} pairs, which count as not judged; the first "
        f"one is {first['compared']} beside {first['baseline']}, instruction {first['instruction']} (from 0): "
        f"{cut(first['refused'], _SHOWN_REFUSAL)}"
        for first in refused[:1]
    ]


# ---- scores ----------------------------------------------------------------------------------------------------------


class _Scorers:
    """The scorer of a run's questions; made before any model, to fail early: ConfigError if a part is not installed."""

    def __init__(
        self, config: EvaluateAnswers, sets: Mapping[str, Sequence[Question]], check_stop: Callable[[], None]
    ) -> None:
        known: dict[str, str | ProgramTests] = {}
        problems = [
            f"questions.{name}: another file asks {question.query[:80]!r} with another result"
            for name, questions in sets.items()
            for question in questions
            if known.setdefault(question.query, question.reference) != question.reference
        ]
        if problems:
            raise ConfigError(problems)
        self._references = References(known, config.checking, check_stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._references.__exit__(kind, error, traceback)

    def score(self, asked: Sequence[_Asked], texts: Sequence[str]) -> list[tuple[float | None, str]]:
        """Returns value and verdict of each answer; one process scores, and all know."""
        found = self._scored(asked, texts) if multihost.is_primary() else None
        return [(value, verdict) for value, verdict in multihost.broadcast(found)]

    def _scored(self, asked: Sequence[_Asked], texts: Sequence[str]) -> list[tuple[float | None, str]]:
        found = self._references([one.query for one in asked], texts)
        return [
            (float(value) if known else None, verdict)
            for value, known, verdict in zip(found.values, found.mask, found.verdicts, strict=True)
        ]
