"""How often questions are answered rightly: accuracy and pass@k of every policy; read from top to bottom.

    questions  of every file, read and checked before any model
    answers    policies x questions x samples; each policy gets the same seeds; scored where they are sampled
    results    results.json, tables.md, report.html

Resume: `dfc.data.episode_store`; an answer on record is neither sampled nor scored again. A run that is finished only
shows its results.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from dfc import multihost
from dfc.config import EvaluateAnswers
from dfc.data.episode_store import ROUNDS, EpisodeStore, Played
from dfc.data.questions import Question, read_questions
from dfc.data.trajectory_files import DatasetError
from dfc.errors import ConfigError
from dfc.evaluation import answers
from dfc.evaluation.answers import Key
from dfc.games.rng import derive_seed
from dfc.inference.engine import Engine
from dfc.models import huggingface, sharding
from dfc.models.chat import ChatTokenizer
from dfc.models.config import DecoderConfig
from dfc.players import player_specs
from dfc.players.player_specs import PlayerSpec
from dfc.report import answers_page
from dfc.rollout import trained_weights, workers
from dfc.rollout.samples import samples
from dfc.runs import players_on_record
from dfc.runs.progress import Progress
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.scoring.programs import ProgramTests
from dfc.scoring.references import References

_KEPT_ANSWER = 20_000  # characters of an answer that a record holds


class _Asked(NamedTuple):
    """One answer of the schedule."""

    policy: str
    questions: str
    question: int
    sample: int
    query: str

    @property
    def key(self) -> Key:
        return self.policy, self.questions, self.question, self.sample

    @property
    def seed(self) -> tuple[str, int, int]:
        return self.questions, self.question, self.sample


def run(config: EvaluateAnswers, folder: RunFolder, stop: Stop) -> None:
    """Samples and scores what is not on record yet, and writes the results.

    Raises:
      ConfigError: a file of questions cannot be read, a part that scores is not installed, a question leaves no room
        for an answer, or a policy is no model of the run's shape and tokenizer.
    """
    specs = [player_specs.parse(text) for text in config.policies]
    sets = _read(config)
    finished = multihost.broadcast(folder.finished.exists())
    if not finished:
        store = EpisodeStore(folder, answers.key)
        schedule = {spec.name: _asked(config, spec, sets) for spec in specs}
        total = sum(map(len, schedule.values()))
        done = total - sum(len(store.missing(wanted)) for wanted in schedule.values())
        _say(f"{total} answers, {done} of them on record")
        if done < total:
            seated = [dataclasses.replace(spec, who=_who(config, spec)) for spec in specs]
            players_on_record.refuse_others(folder, trained_weights.identities(seated))
            with (
                _Scorers(config, sets) as scorers,
                Progress(total, start_step=done, shorter=config.shorter) as progress,
            ):
                model = _Model(config, folder, stop, sets)
                for spec in specs:
                    wanted = schedule[spec.name]
                    if store.missing(wanted):
                        model.load(spec)
                        done = store.play(
                            spec.name,
                            [spec.name],
                            wanted,
                            lambda asked: _play(model, scorers, asked),
                            size=ROUNDS * config.rollout.slots,
                            step=done,
                            wins=lambda record: [(record["questions"], record["value"] == 1)],
                            endpoints=list,
                            stop=stop,
                            progress=progress,
                        )
    if folder.writes:
        names = [spec.name for spec in specs]
        found = answers.by_setting(folder.records("episodes"), names, list(sets), config.samples)
        if not folder.finished.exists():
            answers_page.write(folder.path, config, found)
        for line in answers_page.tables(found, config.samples)[0].lines():
            _say(line)
        _say(f"tables: {folder.path / 'tables.md'}\nreport: {folder.path / 'report.html'}")
    if not finished:
        folder.finish()


def _who(config: EvaluateAnswers, spec: PlayerSpec) -> str:
    """Returns where a policy's weights are."""
    return str(huggingface.resolve(config.model.path)) if spec.who == "initial" else spec.who


def _say(text: str) -> None:
    if multihost.is_primary():
        print(text, flush=True)  # noqa: T201 - what a person waits for


# ---- questions -------------------------------------------------------------------------------------------------------


def _read(config: EvaluateAnswers) -> dict[str, list[Question]]:
    found, problems = {}, []
    for name, file in config.questions.items():
        try:
            found[name] = read_questions(
                Path(file).expanduser(), most=config.questions_each, max_row_bytes=config.max_row_bytes
            )
        except DatasetError as error:
            problems.append(f"questions.{name}: {error}")
    if problems:
        raise ConfigError(problems)
    return found


def _asked(config: EvaluateAnswers, spec: PlayerSpec, sets: Mapping[str, Sequence[Question]]) -> dict[Key, _Asked]:
    """Returns the answers of a policy by their keys; those to one question follow each other."""
    every = (
        _Asked(spec.name, name, number, sample, question.query)
        for name, questions in sets.items()
        for number, question in enumerate(questions)
        for sample in range(config.samples)
    )
    return {asked.key: asked for asked in every}


# ---- answers ---------------------------------------------------------------------------------------------------------


class _Model:
    """The engine, and whose weights answer in it: one policy's at a time."""

    def __init__(
        self, config: EvaluateAnswers, folder: RunFolder, stop: Stop, sets: Mapping[str, Sequence[Question]]
    ) -> None:
        self._config, self._stop, self._folder = config, stop, folder
        shape, _ = trained_weights.kind_of(config.model.path)
        self._shape: DecoderConfig = dataclasses.replace(shape, dtype=config.model.dtype)
        self.tokenizer: ChatTokenizer = workers.load_tokenizer(huggingface.resolve(config.model.path))
        mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
        rollout = config.engine_rollout
        if mesh.size > 1:
            mesh = workers.make_decoding_mesh(rollout, self._shape, mesh, conversations=rollout.slots)
        self._mesh = mesh
        self._engine: Engine | None = None
        self._refuse_long(sets)

    def _refuse_long(self, sets: Mapping[str, Sequence[Question]]) -> None:
        most, found = self._config.rollout.max_length, []
        for name, questions in sets.items():
            lengths = [len(self.tokenizer.first_turn(question.query)) for question in questions]
            if long := sum(length >= most for length in lengths):
                found.append(
                    f"questions.{name}: {long} questions take up to {max(lengths)} tokens and leave no room for an "
                    f"answer; rollout.max_length={most} must be larger"
                )
        if found:
            raise ConfigError(found)

    def load(self, spec: PlayerSpec) -> None:
        """Lets a policy answer.

        Raises:
          ConfigError: it is no model of the run's shape and tokenizer.
        """
        config, weights = self._config, player_specs.weights_in(_who(self._config, spec))
        if (what := trained_weights.difference(weights.folder, config.model.path)) is not None:
            where = f"policies: {spec.name!r} ({weights.folder})"
            hint = f"than model.path={config.model.path!r}; give it a run of its own"
            raise ConfigError([f"{where} has another {what} {hint}"])
        params = trained_weights.load(weights, self._shape, self._mesh)
        if self._engine is not None:
            self._engine.set_params(params, self._engine.version() + 1)
            return
        self._engine = workers.make_engine(
            config.engine_rollout,
            self._shape,
            self.tokenizer,
            params,
            self._mesh,
            sampling=config.sampling,
            slots=config.rollout.slots,
        )
        self._folder.note_device(f"{jax.device_count()} x {jax.devices()[0].device_kind}, jax {jax.__version__}")

    def answer(self, asked: Sequence[_Asked]) -> list[dict[str, Any]]:
        """Returns for each what was answered, how many tokens that took, and whether a limit cut it."""
        config = self._config
        assert self._engine is not None  # noqa: S101 - `load` comes before
        seeds = [derive_seed("evaluate answers", config.seed, *one.seed) for one in asked]
        found = samples(
            self._engine,
            [self.tokenizer.first_turn(one.query) for one in asked],
            1,
            seed=lambda place, _: seeds[place],
            max_reply_length=config.rollout.max_reply_length,
            sampling=config.sampling,
            look=self._stop.look,
        )
        ends = self.tokenizer.stop_token_ids(())
        return [self._said(one.token_ids[one.mask], ends) for (one,) in found]

    def _said(self, token_ids: np.ndarray, ends: frozenset[int]) -> dict[str, Any]:
        tokens = token_ids.tolist()
        cut = not tokens or tokens[-1] not in ends
        return {"answer": self.tokenizer.decode(tokens), "tokens": len(tokens), "cut": cut}


def _play(model: _Model, scorers: "_Scorers", asked: Sequence[_Asked]) -> Played:
    said = model.answer(asked)
    scored = scorers.score(asked, [one["answer"] for one in said])
    records = [
        {
            "policy": one.policy,
            "questions": one.questions,
            "question": one.question,
            "sample": one.sample,
            **text,
            "answer": text["answer"][:_KEPT_ANSWER],
            "value": value,
            "verdict": verdict,
        }
        for one, text, (value, verdict) in zip(asked, said, scored, strict=True)
    ]
    return Played(records, {f"generated_tokens/{asked[0].policy}": sum(text["tokens"] for text in said)})


# ---- scores ----------------------------------------------------------------------------------------------------------


class _Scorers:
    """What scores the answers to the questions of a run; made before any model, so that what is missing shows at once.

    Raises:
      ConfigError: a part is not installed.
    """

    def __init__(self, config: EvaluateAnswers, sets: Mapping[str, Sequence[Question]]) -> None:
        known: dict[str, str | ProgramTests] = {}
        problems = [
            f"questions.{name}: another file asks {question.query[:80]!r} with another result"
            for name, questions in sets.items()
            for question in questions
            if known.setdefault(question.query, question.reference) != question.reference
        ]
        if problems:
            raise ConfigError(problems)
        self._references = References(known, config.checking)

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
