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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from dfc import multihost
from dfc.config import EvaluateAnswers
from dfc.config.evaluate import INSTRUCTIONS
from dfc.errors import ConfigError, cut
from dfc.evaluation import answers, pairwise
from dfc.games.rng import derive_seed
from dfc.players import player_specs
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

    def prepare() -> None:
        seated = [dataclasses.replace(spec, who=policy_answers.where(config, spec)) for spec in specs]
        players_on_record.refuse_others(folder, trained_weights.identities(seated) | _digests(files))

    counts = [sum(len(part.wanted) for part in some) for some in (answered, pairs)]
    unanswered = evaluation_run.evaluate(
        config,
        folder,
        stop,
        [
            (answered, lambda: _answering(config, folder, stop, files)),
            (pairs, lambda: _comparisons(config, folder, stop, files)),
        ],
        _key,
        lambda: _results(config, folder, [spec.name for spec in specs], files, compared),
        prepare=prepare,
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


def _asked(config: EvaluateAnswers, spec: PlayerSpec, files: _Files) -> dict[_Key, _Asked]:
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


@contextlib.contextmanager
def _answering(config: EvaluateAnswers, folder: RunFolder, stop: Stop, files: _Files) -> Iterator["_Answering"]:
    with _references(config, files.questions, stop.check_stop) as references:
        queries = {f"questions.{name}": [one.query for one in some] for name, some in files.questions.items()}
        queries["pairwise.instructions"] = [one.text for one in files.instructions]
        yield _Answering(config, AnsweringPolicy(config, queries, folder.note_device, stop.check_stop), references)


class _Answering(Players[_Asked]):
    """Samples and scores answers."""

    def __init__(self, config: EvaluateAnswers, policy: AnsweringPolicy, references: References) -> None:
        self._config, self._policy, self._references = config, policy, references

    def begin(self, part: Part[Any, _Asked]) -> int:
        self._policy.load(part.subject)
        return ROUNDS * self._config.rollout.slots

    def wins(self, record: Mapping[str, Any]) -> Iterable[tuple[str, bool]]:
        return [(record["questions"], record["value"] == 1)] * (record["questions"] != INSTRUCTIONS)

    def play(self, part: Part[Any, _Asked], some: list[_Asked]) -> Played:
        said = self._policy.answer(
            [one.query for one in some], [derive_seed("evaluate answers", self._config.seed, *one.seed) for one in some]
        )
        of_questions = [place for place, one in enumerate(some) if one.questions != INSTRUCTIONS]
        queries, texts = (
            [some[place].query for place in of_questions],
            [said[place]["answer"] for place in of_questions],
        )
        scored = _scored(self._references, queries, texts)
        scores: dict[int, tuple[float | None, str]] = dict(zip(of_questions, scored, strict=True))
        records = []
        for place, (one, text) in enumerate(zip(some, said, strict=True)):
            value, verdict = scores.get(place, (None, "to_compare"))
            # One character more than a judge is shown tells an answer that is too long.
            kept = _KEPT_ANSWER if place in scores else LONGEST_ANSWER + 1
            record = {"policy": one.policy, "questions": one.questions, "question": one.question, "sample": one.sample}
            records.append(record | text | {"answer": text["answer"][:kept], "value": value, "verdict": verdict})
        return Played(records, {f"generated_tokens/{part.policies[0]}": sum(text["tokens"] for text in said)})


# ---- comparisons -----------------------------------------------------------------------------------------------------


def _pairs(config: EvaluateAnswers, compared: str, files: _Files) -> dict[_Key, Pair]:
    every = (Pair(compared, config.pairwise.baseline, number) for number in range(len(files.instructions)))
    return {(pair.compared, pair.baseline, pair.number): pair for pair in every}


def _comparisons(config: EvaluateAnswers, folder: RunFolder, stop: Stop, files: _Files) -> Comparisons:
    before = folder.records("episodes") if folder.writes else []
    # Several processes would have to look equally often, and one of them waits for the judge.
    check_stop = stop.check_stop if jax.process_count() == 1 else lambda: None
    return Comparisons(config, files.instructions, _texts(config, before, files), before, check_stop)


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


def _references(
    config: EvaluateAnswers, sets: Mapping[str, Sequence[Question]], check_stop: Callable[[], None]
) -> References:
    """Returns what scores a run's questions; made before any model, to fail early: ConfigError if a part is missing."""
    known: dict[str, str | ProgramTests] = {}
    problems = [
        f"questions.{name}: another file asks {question.query[:80]!r} with another result"
        for name, questions in sets.items()
        for question in questions
        if known.setdefault(question.query, question.reference) != question.reference
    ]
    if problems:
        raise ConfigError(problems)
    return References(known, config.checking, check_stop)


def _scored(references: References, queries: Sequence[str], texts: Sequence[str]) -> list[tuple[float | None, str]]:
    """Returns value and verdict of each answer; one process scores, and all know."""

    def scored() -> list[tuple[float | None, str]]:
        found = references(queries, texts)
        values = (float(value) if known else None for value, known in zip(found.values, found.mask, strict=True))
        return list(zip(values, found.verdicts, strict=True))

    return [(value, verdict) for value, verdict in multihost.broadcast(scored() if multihost.is_primary() else None)]
