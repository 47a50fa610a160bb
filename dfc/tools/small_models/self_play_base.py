"""Makes a small model that Language Self-Play can start from; read from top to bottom.

    transcripts  of the Challenger, of a Solver of mixed skill, of a judge (`dfc.tools.small_models.self_play_roles`)
    tokenizer    wordings are one piece, letters and digits stay apart
    training     on the Solver alone, always right, for a share of the updates (`rules_first`); then on the distribution
                 of its two rules, and on what the others wrote
    evaluation   greedy accuracy and share of live queries of every family, queries that keep their template, agreement
                 of the judge with the programs that it imitates

**When it is made again.** A model meets its aim if in every family the greedy accuracy is within `accuracy_aim` and the
share of live queries at least `live_aim`. If not, the next attempt starts over, with the next seed, and with what
`next_attempt` says: a family whose accuracy is too high has its skill at the lowest difficulty lowered by 0.1; if one
is too low or has too few live queries, there are half as many updates more. After `attempts` models the last one is
kept, and what it misses is reported.

Resume order: 1. attempts that are evaluated are on record, in evaluation.json; 2. checkpoints of all attempts but the
one at work are deleted, and nothing else in the folder; 3. that one resumes at its newest checkpoint, or starts
over; metrics.jsonl holds its updates alone; 4. at the end evaluations.jsonl is written from the record.
"""

import dataclasses
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dfc.config import ModelConfig, RolloutConfig, SamplingConfig, SelfPlayBase
from dfc.errors import DivergenceError, RunFolderError
from dfc.files import write_json
from dfc.games.rng import derive_seed
from dfc.methods.language_self_play import families, prompts, self_reward
from dfc.methods.language_self_play.sampling import Roles
from dfc.models import huggingface
from dfc.models.chat import ChatTokenizer
from dfc.models.transformer import initialize
from dfc.rollout.host import ModelHost, PolicyWeights
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.tools.small_models import build_tokenizer, family_answers
from dfc.tools.small_models.imitation import Packer, make_update, shape
from dfc.tools.small_models.imitation_run import imitate
from dfc.tools.small_models.self_play_roles import CHALLENGER, JUDGE, SOLVER, RoleTranscripts, wordings
from dfc.training import export
from dfc.training.optimizer import make_optimizer

_LESS_SKILL, _MORE_STEPS = 0.1, 1.5
_SLOTS = 256  # conversations of the evaluation at once
_ROLES = (CHALLENGER, SOLVER, JUDGE)
_ATTEMPT = re.compile(r"attempt_[1-9][0-9]*")


def run(config: SelfPlayBase, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; the result is in the run folder's ``policy``, figures of all attempts in evaluation.json.

    Raises:
      RunFolderError: the folder has checkpoints of an older version of this recipe.
      Interrupted: a stop was asked for. TrainingError: training has diverged; says how to continue.
    """
    evaluation = folder.path / "evaluation.json"
    rows: list[dict[str, Any]] = json.loads(evaluation.read_text()) if evaluation.exists() else []
    if folder.finished.exists():
        print("\n".join(lines(config, rows[-1])), flush=True)  # noqa: T201 - the result a person waits for
        return
    _refuse_older(folder.checkpoints)
    skills, steps = dict.fromkeys(config.families, config.skill[0]), config.steps
    for row in rows:
        skills, steps = next_attempt(config, row)
    while not rows or (len(rows) < config.attempts and missed(config, rows[-1])):
        number = len(rows)
        checkpoints = folder.checkpoints / f"attempt_{number + 1}"
        _delete_attempts(folder.checkpoints, but=checkpoints)
        print(f"attempt {number + 1}: {steps} updates, skill at the lowest difficulty {skills}", flush=True)  # noqa: T201 - progress
        try:
            attempt = dataclasses.replace(config, steps=steps, seed=config.seed + number)
            _train(attempt, skills, folder, stop, checkpoints)
        except DivergenceError as error:
            raise export.diverged(str(error), config.optimizer.learning_rate) from None
        row = {"attempt": number + 1, "steps": steps, "skills": skills, **evaluate(config, folder.policy, stop)}
        rows.append(row)
        write_json(evaluation, rows)  # before its checkpoints go: without either it would be made again
        for line in lines(config, row):
            print(line, flush=True)  # noqa: T201 - the result a person waits for
        skills, steps = next_attempt(config, row)
    if said := missed(config, rows[-1]):
        print(f"warning: the aim is missed: {'; '.join(said)}", flush=True)  # noqa: T201 - same
    _delete_attempts(folder.checkpoints)
    folder.rewind(folder.sizes() | {"evaluations": 0})  # a start that was killed here may have written them
    folder.append("evaluations", rows)
    folder.finish()


def _refuse_older(checkpoints: Path) -> None:
    if found := sorted(checkpoints.glob("step_*")):
        raise RunFolderError(
            f"{found[0]}: a checkpoint of an older version of this recipe, which kept those of all attempts together; "
            "continue with the version that versions.json names, or begin again with another --workdir"
        )


def _delete_attempts(checkpoints: Path, but: Path | None = None) -> None:
    """Deletes the checkpoints of all attempts but one, and their folder if it is empty then."""
    if not checkpoints.is_dir():
        return
    for attempt in checkpoints.iterdir():
        if _ATTEMPT.fullmatch(attempt.name) and attempt.is_dir() and not attempt.is_symlink() and attempt != but:
            shutil.rmtree(attempt)
    if not any(checkpoints.iterdir()):
        checkpoints.rmdir()


# ---- one model -------------------------------------------------------------------------------------------------------


def _train(config: SelfPlayBase, skills: Mapping[str, float], folder: RunFolder, stop: Stop, checkpoints: Path) -> None:
    """Makes the tokenizer and a model."""
    built = folder.path / "tokenizer"
    build_tokenizer.build(wordings(config.challenger_prompt, config.judge_prompt), built, size=config.vocabulary)
    tokenizer = ChatTokenizer.load(built, enable_thinking=None)
    early, made, packer = transcripts(config, skills, always_right=True), transcripts(config, skills), Packer(tokenizer)
    model = shape(config, tokenizer.vocabulary)
    optimizer = make_optimizer(config.optimizer, config.steps)
    params = initialize(model, config.seed)
    count, (length, rows) = config.transcripts_per_step, (config.batch.row_length, config.batch.micro_batch_rows)

    def batches(step: int) -> list[Any]:
        rng = np.random.Generator(np.random.Philox(derive_seed("roles of a step", config.seed, step)))
        if step < config.rules_first * config.steps:
            source, roles = early, [SOLVER] * count
        else:
            source, roles = made, [_ROLES[role] for role in rng.choice(len(_ROLES), size=count, p=config.shares)]
        return packer.pack([source.make(step * count + i, role) for i, role in enumerate(roles)], length, rows)

    update = make_update(model, optimizer, config.training.max_update)
    state = optimizer.init(params)
    params = imitate(config, folder, stop, batches, update, params, state, checkpoints=checkpoints)
    huggingface.save(folder.policy, model, params, copy_from=built)
    shutil.rmtree(built)


def transcripts(config: SelfPlayBase, skills: Mapping[str, float], *, always_right: bool = False) -> RoleTranscripts:
    """Returns what makes transcripts.

    `skills` are by family, the probability of the right rule at the lowest difficulty; with `always_right` it is 1 at
    every difficulty instead.
    """
    return RoleTranscripts(
        {name: (1.0, 1.0) if always_right else (skills[name], config.skill[1]) for name in config.families},
        challenger_prompt=config.challenger_prompt,
        judge_prompt=config.judge_prompt,
        broken=config.broken,
        seed=config.seed,
    )


# ---- what it can do --------------------------------------------------------------------------------------------------


def evaluate(config: SelfPlayBase, policy: Path, stop: Stop) -> dict[str, Any]:
    """Returns the figures of a model, ready for JSON.

    They are ``families``, by name ``accuracy`` (greedy) and ``live``; of the Challenger's queries ``template``, the
    share that keeps it, and ``difficulty``, how many of each; of the judge's replies ``readable``, ``same_sum`` with
    the programs' sum among these, and ``correlation`` with it. A stop is asked for between two calls of the engine.
    """
    longest = max(config.max_query_length, config.max_answer_length, config.max_judgement_length)
    rollout = RolloutConfig(slots=_SLOTS, max_length=config.batch.row_length, max_reply_length=longest, decode_steps=8)
    host = ModelHost(ModelConfig(str(policy)), rollout, slots=_SLOTS)
    params = host.initial_params()
    roles = Roles(host.engine(params, sampling=SamplingConfig()), host.tokenizer, stop.check_stop)
    roles.seat(PolicyWeights(params), PolicyWeights(params))
    count = config.evaluation_queries
    answered = family_answers.answer(
        roles,
        families.probe(config.families, count, derive_seed("evaluation of a base", 0)),
        longest=config.max_answer_length,
        sampled=config.evaluation_answers,
    )
    found: dict[str, Any] = {
        "families": {
            name: {"accuracy": accuracy, "live": live}
            for name, (accuracy, live) in family_answers.by_family(answered).items()
        }
    }
    return found | _of_challenger(config, roles, count) | _of_judge(config, roles, count)


def _of_challenger(config: SelfPlayBase, roles: Roles, count: int) -> dict[str, Any]:
    asked = [families.FAMILIES[config.families[i * len(config.families) // count]] for i in range(count)]
    written = roles.write(
        [roles.prompt(prompts.challenger_prompt(f.task, f.template, config.challenger_prompt)) for f in asked],
        1,
        seed=lambda query, _: derive_seed("queries of a base", query),
        longest=config.max_query_length,
    )
    kept = sum(
        reply.ended and prompts.Template(family.template).filled(reply.text) is not None
        for family, (reply,) in zip(asked, written, strict=True)
    )
    problems = [families.read(reply.text) for (reply,) in written]
    levels = {str(level): number for level, number in families.by_difficulty(problems).items()}
    return {"template": kept / count, "difficulty": levels}


def _of_judge(config: SelfPlayBase, roles: Roles, count: int) -> dict[str, Any]:
    made = transcripts(dataclasses.replace(config, seed=0), dict.fromkeys(config.families, config.skill[0]))
    rated = [made.make(-1 - number, JUDGE).exchanges[0] for number in range(count)]  # none of these was trained on
    said = roles.write(
        [roles.prompt(exchange.observation) for exchange in rated],
        1,
        seed=lambda reply, _: derive_seed("marks of a base", reply),
        longest=config.max_judgement_length,
        judge=SamplingConfig(),
    )
    pairs = [
        (mark, self_reward.read_marks(exchange.reply))
        for (reply,), exchange in zip(said, rated, strict=True)
        if (mark := self_reward.read_marks(reply.text)) is not None
    ]
    varied = len({mark for mark, _ in pairs}) > 1
    return {
        "readable": len(pairs) / count,
        "same_sum": sum(mark == truth for mark, truth in pairs) / max(1, len(pairs)),
        "correlation": float(np.corrcoef(np.asarray(pairs, float).T)[0, 1]) if varied else 0.0,
    }


# ---- whether that is what is wanted ----------------------------------------------------------------------------------


def missed(config: SelfPlayBase, row: Mapping[str, Any]) -> list[str]:
    """Returns what a model misses of the aim, one sentence for each family and figure; none where it is met."""
    low, high = config.accuracy_aim
    found = []
    for name, figures in row["families"].items():
        if not low <= figures["accuracy"] <= high:
            found.append(f"{name}: greedy accuracy {figures['accuracy']:.0%} is not within {low:.0%} to {high:.0%}")
        if figures["live"] < config.live_aim:
            found.append(f"{name}: {figures['live']:.0%} of queries are live, below {config.live_aim:.0%}")
    return found


def next_attempt(config: SelfPlayBase, row: Mapping[str, Any]) -> tuple[dict[str, float], int]:
    """Returns skills at the lowest difficulty and number of updates of the attempt after one, from its results."""
    low, high = config.accuracy_aim
    skills, steps = dict(row["skills"]), row["steps"]
    for name, figures in row["families"].items():
        if figures["accuracy"] > high:
            skills[name] = max(config.skill[1], skills[name] - _LESS_SKILL)
    if any(f["accuracy"] < low or f["live"] < config.live_aim for f in row["families"].values()):
        steps = int(steps * _MORE_STEPS)
    return skills, steps


def lines(config: SelfPlayBase, row: Mapping[str, Any]) -> list[str]:
    """Returns the figures of a model as text."""
    found = [
        f"{name:16} greedy accuracy {figures['accuracy']:.1%}, live queries {figures['live']:.1%}"
        for name, figures in row["families"].items()
    ]
    levels = ", ".join(f"{level}: {count}" for level, count in row["difficulty"].items())
    found.append(f"challenger: {row['template']:.1%} keep the template; by difficulty {levels}")
    found.append(
        f"judge: {row['readable']:.1%} of replies can be read, {row['same_sum']:.1%} of these have the programs' sum, "
        f"correlation {row['correlation']:.2f}"
    )
    found.append(f"the aim is {'missed' if missed(config, row) else 'met'}")
    return found
