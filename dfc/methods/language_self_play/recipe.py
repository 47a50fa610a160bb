"""Language Self-Play: one model writes queries, answers them and learns from both; read from top to bottom.

    queries       N from the Challenger's prompt, or of a file; what is wrong with them
    answers       G to each
    reward        R(q, a); with self-reward also R_Q(q, a), from the model before training as a judge
    advantages    of answers and of queries
    update        the Solver's mean loss + alpha_Ch x the Challenger's, one step of the optimizer

How it departs from the paper (arXiv 2509.07414, Algorithm 1):

1. The KL term has a gradient that holds the policy near its start; as published its expected gradient is zero
   (`kl_gradient`).
2. A query that is empty, cut, not of its template, an echo of the prompt, a duplicate or has the prompt's tags in it
   earns the Challenger less than every usable query of the iteration, is not answered and teaches the Solver nothing
   (`challenger.bad_queries`).
3. A judge's reply that cannot be read is asked for once more; then its answer is excluded from all means and losses.
The paper does not say.
4. The wording of both prompts is our own; Boxes 1 and 3 can be given in their place.
5. Values that the paper does not state are chosen here; each field of `dfc.config.LanguageSelfPlay` says so.

Resume order: 1. the run folder's streams are cut to the checkpoint's sizes; 2. weights and optimizer state are read,
and the memory of the last 1,000 queries, what alarms compare with, the deviation of rewards and the count of marks; 3.
iterations resume at the checkpoint's number. Every random number follows from (seed, iteration), so what follows is the
same, bit for bit, as without the stop. A stop does not wait for the end of an iteration: what was sampled is thrown
away.
"""

from collections.abc import Sequence

import numpy as np

from dfc import multihost
from dfc.config.self_play import LanguageSelfPlay, QueryTask
from dfc.errors import ConfigError, DivergenceError
from dfc.games.rng import derive_seed
from dfc.methods.language_self_play import hygiene, page, penalty, prompts, query_files, self_reward
from dfc.methods.language_self_play import update as learning
from dfc.methods.language_self_play.records import (
    PhaseClock,
    Played,
    Queries,
    Sampled,
    episode_records,
    figures,
    iteration_record,
    seconds_line,
)
from dfc.methods.language_self_play.rewards import KnownQueries, make_reward, refuse_useless
from dfc.methods.language_self_play.roles import RoleAdvantages, role_advantages
from dfc.methods.language_self_play.self_play_run import SelfPlayRun, State
from dfc.report import watched
from dfc.rollout.host import PolicyWeights
from dfc.rollout.samples import Reply
from dfc.runs.metrics import IterationRecord
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Stop
from dfc.scoring.scorer import Scorer, ScoringError
from dfc.training.run import Updated, loop


def run(config: LanguageSelfPlay, folder: RunFolder, stop: Stop) -> None:
    """Runs the recipe; resumes if the folder holds a checkpoint. The result is in the run folder's ``policy``."""
    if multihost.broadcast(folder.finished.exists()):
        watched.show_finished(folder, page.lines)
        return
    known = KnownQueries.read(config)
    with make_reward(config, known.references, stop.check_stop) as reward:  # fail early if a dependency is missing
        _train(config, folder, stop, known, reward)


def _train(config: LanguageSelfPlay, folder: RunFolder, stop: Stop, known: KnownQueries, reward: Scorer) -> None:
    play = SelfPlayRun.open(config, folder, stop, learning.make_losses(config), reward)
    play.data, play.probes = known.queries, known.probes
    _refuse_long(play)
    state = play.restore()
    if state is None:
        state = play.begin()
        play.save_or_stop(state)
    with watched.Watched(folder, config.iterations, state.done, config.shorter) as shown:
        _loop(play, state, shown)
    play.save_policy(state.params, folder.policy, folder.adapter)
    watched.finish(folder, page.lines)


def _loop(play: SelfPlayRun, state: State, shown: watched.Watched) -> None:
    """Runs the iterations that are left."""
    config = play.config

    def once(state: State) -> IterationRecord:
        try:
            return _iterate(play, state)
        except DivergenceError as error:
            raise DivergenceError(f"iteration {state.done + 1}: {error}") from None

    def show(found: IterationRecord) -> None:
        shown.show(found)
        if state.done in (1, config.iterations):
            print(seconds_line(found), flush=True)  # noqa: T201 - where the time goes
        if missing := found.metrics["unscored_answers"]:
            what = f"{missing:.0f} answers could not be scored and are excluded from all means and losses"
            print(f"iteration {state.done}: {what}", flush=True)  # noqa: T201 - what is lost
        for alarm in play.alarms:
            print(f"warning: iteration {state.done}: {alarm.sentence}", flush=True)  # noqa: T201 - what goes wrong
        state.ended = config.watch.stop and any(alarm.ends for alarm in play.alarms)

    def left() -> bool:
        return state.done < config.iterations and not state.ended

    loop(play, state, once, show, left=left, due=lambda: not left() or state.done % config.checkpoint.every == 0)


# ---- what it begins with ---------------------------------------------------------------------------------------------


def _refuse_long(play: SelfPlayRun) -> None:
    """Raises a `ConfigError` if a prompt of the Challenger's or the judge's, or a given query, leaves no room."""
    config, roles, own = play.config, play.roles, play.config.rollout
    if config.method != "data":
        for name, task in (config.tasks or {"": QueryTask()}).items():
            prompt = roles.prompt(prompts.challenger_prompt(task.task, task.template, config.challenger.prompt))
            if not roles.fits(prompt, own.max_query_length):
                what = f"the prompt of task {name!r} has {len(prompt)} tokens, which leaves no room for a query of"
                hint = f"{own.max_query_length}; raise it, or set a shorter challenger.prompt"
                raise ConfigError([f"rollout.max_length={own.max_length}: {what} {hint}"])
    if config.judges:
        prompt = roles.prompt(prompts.judge_prompt("", "", config.self_reward.prompt))
        if not roles.fits(prompt, own.max_judgement_length):
            what = f"the judge's prompt alone has {len(prompt)} tokens, which leaves no room for a judgement of"
            hint = f"{own.max_judgement_length}; raise it, or set a shorter self_reward.prompt"
            raise ConfigError([f"rollout.max_length={own.max_length}: {what} {hint}"])
    for key, file, queries in (
        ("data", config.data, play.data),
        ("watch.probe_data", config.watch.probe_data, play.probes),
    ):
        for number, query in enumerate(queries, start=1):
            if not roles.fits(roles.prompt(query), own.max_answer_length):
                what = f"leaves no room for an answer of {own.max_answer_length} tokens in rollout.max_length"
                hint = "raise it, or shorten the query"
                raise ConfigError([f"{key}={file!r}, query {number}: {what}={own.max_length}; {hint}"])


# ---- queries ---------------------------------------------------------------------------------------------------------


def _queries(play: SelfPlayRun, iteration: int, memory: hygiene.Memory) -> Queries:
    """Returns N queries of the Challenger, or of the file; the memory is changed."""
    config, roles = play.config, play.roles
    if config.method == "data":
        texts = query_files.of_iteration(play.data, config.groups_per_iteration, iteration)
        return Queries(texts, [], [""] * len(texts), [None] * len(texts))
    tasks = list(config.tasks.items()) or [("", QueryTask())]
    chosen = prompts.shares(
        [task.weight for _, task in tasks], config.groups_per_iteration, derive_seed("tasks", config.seed, iteration)
    )
    asked = [prompts.challenger_prompt(task.task, task.template, config.challenger.prompt) for _, task in tasks]
    written = roles.write(
        [roles.prompt(asked[task]) for task in chosen],
        1,
        seed=lambda query, _: derive_seed("query", config.seed, iteration, query),
        longest=config.rollout.max_query_length,
        queries=True,
    )
    replies, tags = [reply for (reply,) in written], prompts.forbidden_tags(config.challenger.prompt)
    texts = [reply.text for reply in replies]
    found = [
        hygiene.Written(
            reply.text,
            hygiene.without_template(asked[task], tasks[task][1].template),
            tasks[task][1].template,
            # Tokenized again it may be longer than what was sampled: one that leaves no room is cut too.
            reply.ended and roles.fits(roles.prompt(reply.text), config.rollout.max_answer_length),
            tags,
        )
        for reply, task in zip(replies, chosen, strict=True)
    ]
    return Queries(texts, replies, [tasks[task][0] for task in chosen], hygiene.inspect(found, memory))


# ---- answers, rewards ------------------------------------------------------------------------------------------------


def _answers(play: SelfPlayRun, queries: Sequence[str], iteration: int, asked: np.ndarray) -> list[list[Reply]]:
    """Returns G answers to each query that is asked, in the queries' order; none to the others."""
    config, roles = play.config, play.roles
    places = np.flatnonzero(asked).tolist()
    found = roles.write(
        [roles.prompt(queries[place]) for place in places],
        config.group_size,
        seed=lambda query, answer: derive_seed("answer", config.seed, iteration, places[query], answer),
        longest=config.rollout.max_answer_length,
    )
    of = dict(zip(places, found, strict=True))
    return [of.get(place, []) for place in range(len(queries))]


def _rewards(
    play: SelfPlayRun, queries: Sequence[str], answers: Sequence[Sequence[Reply]], iteration: int
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Returns R and which answers were scored, both [N, G], and further metrics of R."""
    config = play.config
    pairs = [(i, j) for i, group in enumerate(answers) for j in range(len(group))]
    scores = play.score([queries[i] for i, _ in pairs], [answers[i][j].text for i, j in pairs])
    refuse_useless(config, scores, iteration + 1)
    values, mask = np.zeros((2, len(queries), config.group_size))
    for (i, j), value, counted in zip(pairs, scores.values.tolist(), scores.mask.tolist(), strict=True):
        values[i, j], mask[i, j] = value, counted
    _refuse_graded(config, values[mask.astype(bool)])
    return values, mask.astype(bool), {f"reward/{name}": mean for name, mean in scores.means.items()}


def _refuse_graded(config: LanguageSelfPlay, rewards: np.ndarray) -> None:
    """Raises a `ScoringError` if unsolved queries are penalised and a custom function returns other than 0 or 1."""
    own = config.challenger.unsolved_queries == "worst" and config.trains_challenger
    if not (own and "function" in config.reward.weights):
        return
    one = float(np.float32(config.reward.weights["function"]))
    if (others := rewards[(rewards != 0) & (rewards != one)]).size:
        what = f"expected 0 or 1 for each answer with challenger.unsolved_queries='worst', got {others[0] / one:g}"
        hint = "return 1 for what is solved and 0 for what is not, or leave that setting at 'as_is'"
        raise ScoringError(f"reward.function={config.reward.function!r}: {what}; {hint}")


def _marks(
    play: SelfPlayRun, queries: Sequence[str], answers: Sequence[Sequence[Reply]], scored: np.ndarray, iteration: int
) -> tuple[np.ndarray, np.ndarray, self_reward.Judged]:
    """Returns R_Q and which answers have a mark, both [N, G], and what the judge said of those that were scored."""
    config, roles, own = play.config, play.roles, play.config.rollout
    places = np.argwhere(scored).tolist()
    asked = [
        roles.prompt(prompts.judge_prompt(queries[i], answers[i][j].text, config.self_reward.prompt)) for i, j in places
    ]

    def ask(numbers: Sequence[int], attempt: int) -> list[str]:
        said = roles.write(
            [asked[n] for n in numbers],
            1,
            seed=lambda n, _: derive_seed("judge", config.seed, iteration, *places[numbers[n]], attempt),
            longest=own.max_judgement_length,
            judge=config.self_reward.sampling,
        )
        return [reply.text for (reply,) in said]

    judged = self_reward.judge([roles.fits(prompt, own.max_judgement_length) for prompt in asked], ask)
    marks, mask = np.zeros((2, *scored.shape))
    for (i, j), mark, counted in zip(places, judged.marks.tolist(), judged.mask.tolist(), strict=True):
        marks[i, j], mask[i, j] = mark, counted
    return marks, mask.astype(bool), judged


# ---- one iteration ---------------------------------------------------------------------------------------------------


def _iterate(play: SelfPlayRun, state: State) -> IterationRecord:
    """Runs one iteration of Algorithm 1; the state is changed at its end only."""
    config, clock = play.config, PhaseClock()
    memory = hygiene.Memory(state.memory.state())
    reference = PolicyWeights(play.judge) if config.judges else None
    play.roles.seat(play.policy(state.params), reference, play.challenger(state.params))
    try:
        played = _play(play, state.done, memory, clock)
        found = _reward(play, state, played, clock)
    finally:
        play.roles.leave(play.weights)
    scored = state.scored.with_(found.rewards[found.scored])
    advantages = _advantages(config, found, scored)
    play.folder.append("episodes", episode_records(play, state.done, found, advantages))
    made = _update(play, state, found, advantages, clock)
    metrics = {"updates": float(made is not None)}
    if made is not None:
        state.params, state.optimizer, state.updated = made.params, made.optimizer, True
        metrics |= made.metrics
    state.memory, state.scored, state.done = memory, scored, state.done + 1
    return iteration_record(play, state, metrics | figures(play, state, found, advantages), found, clock)


def _play(play: SelfPlayRun, iteration: int, memory: hygiene.Memory, clock: PhaseClock) -> Played:
    """Returns queries and answers (lines 3 and 4) of an iteration; the memory is changed."""
    config, roles = play.config, play.roles
    queries = _queries(play, iteration, memory)
    clock.done("queries")
    asked = ~queries.bad
    if config.challenger.bad_queries == "as_is":
        room = config.rollout.max_answer_length
        asked = np.asarray([roles.fits(roles.prompt(text), room) for text in queries.texts], bool)
    answers = _answers(play, queries.texts, iteration, asked)
    probed = _probe(play, iteration)
    clock.done("answers")
    return Played(queries, answers, probed)


def _reward(play: SelfPlayRun, state: State, played: Played, clock: PhaseClock) -> Sampled:
    """Returns what was played with R and the judge's marks (line 5)."""
    config, queries, answers = play.config, played.queries, played.answers
    rewards, scored, sources = _rewards(play, queries.texts, answers, state.done)
    clock.done("reward")
    marks, mask, judged = np.zeros_like(rewards), scored, None
    if config.judges:
        marks, mask, judged = _marks(play, queries.texts, answers, scored, state.done)
        self_reward.refuse_silent(state.judged + len(judged.mask), state.marked + judged.read, judged)
    clock.done("self_reward")
    also = played.probed | sources | play.roles.prompt_tokens()
    found = Sampled(queries, answers, also, rewards, scored, marks, mask, judged)
    everything = [*found.told, *(sample for group in found.said for sample in group)]
    multihost.require_equal("samples", [(sample.token_ids, sample.mask) for sample in everything])
    return found


def _advantages(config: LanguageSelfPlay, found: Sampled, scored: penalty.Scored) -> RoleAdvantages:
    """Returns the advantages of queries and answers."""
    weight = config.self_reward.weight if config.judges else 0.0
    return role_advantages(
        found.rewards,
        found.marks,
        found.mask,
        found.queries.bad,
        weight=weight,
        bad_queries=config.challenger.bad_queries,
        unsolved_queries=config.challenger.unsolved_queries,
        margin=penalty.margin(config.reward.weights, scored, weight),
    )


def _update(
    play: SelfPlayRun, state: State, found: Sampled, advantages: RoleAdvantages, clock: PhaseClock
) -> Updated | None:
    """Makes one step for both losses (lines 6 and 7); None where nothing is left to train on."""
    parts = learning.parts(play.config, found.said, found.told, advantages, play.trainer.halves)
    parts = learning.with_reference(play.trainer, play.reference_params, parts, play.stop.check_stop)
    clock.done("reference")
    made = None
    if parts:
        made = learning.step(
            play.trainer,
            state.params,
            state.optimizer,
            parts,
            base_params=play.base_params,
            donate=state.params is not play.weights,  # trained as they are, these are the reference, too
            check_stop=play.stop.check_stop,
        )
    clock.done("update")
    return made


def _probe(play: SelfPlayRun, iteration: int) -> dict[str, float]:
    """Returns the mean reward of the fixed queries, where it is time to measure it."""
    if not play.probes or iteration % play.config.watch.every:
        return {}
    found = play.roles.write(
        [play.roles.prompt(query) for query in play.probes],
        1,
        seed=lambda query, _: derive_seed("probe", play.config.seed, query),
        longest=play.config.rollout.max_answer_length,
    )
    scores = play.score(play.probes, [reply.text for (reply,) in found])
    return {"probe_reward": float(scores.values[scores.mask].mean())} if scores.mask.any() else {}
