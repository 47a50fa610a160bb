"""Reinforcement learning from games: GRPO as plain functions, and one iteration; read from top to bottom.

    grpo       the method: play, reward, advantages, update, accept
    iterate    all of it, once
    train      the iterations of a stage

It is an iteration of Divide-Fuse-Conquer (arXiv 2505.16401, Algorithm 2); with what that method adds turned off, as
`RlRunConfig` has it by default, it is one of GRPO (arXiv 2402.03300). A method of your own replaces some of the
functions (`dfc.training.method.Method`), and may have stages around it.

How it departs from the paper:

1. With a KL coefficient of 0, episodes of advantage 0 (groups whose rewards are all equal, members at their group's
   mean) teach nothing and are left out of the update, and so of the loss's mean; with one above 0 they keep their KL
   term.
2. An illegal or malformed reply that is answered with another try costs `reward.illegal_try`; in the paper it is
   free, and a policy learns to use it.
3. The paper drops half of the "negative" samples without saying negative in what; here it is the advantage.
4. The disturbance of an action is decided before the policy is asked, which gives the same games and saves a reply.
5. A game won before the policy's first turn, by the other seat's invalid reply, counts as one step.
6. A game that the policy ends by filling its own context has the reward `reward.overrun`, a loss: otherwise
   rambling would pay where a game goes badly. One that was stopped from outside (the other seat's context,
   `rollout.max_actions` where nobody is measurably ahead) is like one that failed: no advantage, and in no mean. The
   paper names neither.
7. The policy's earlier thoughts stay in the conversation and count against `rollout.max_prompt_length`; the paper does
   not say whether its 8,192 tokens of input hold them.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dfc import multihost, rewards
from dfc.config import GrpoConfig, RlRunConfig
from dfc.episodes import Episode
from dfc.errors import ConfigError, DivergenceError, TrainingError
from dfc.evaluation import matches
from dfc.evaluation.statistics import Record
from dfc.games.rng import derive_seed
from dfc.losses import Loss, grpo_loss
from dfc.losses.importance import LARGEST
from dfc.models.transformer import Params
from dfc.packing import packed, segment
from dfc.rollout.host import PolicyWeights
from dfc.rollout.runner import EpisodeSpec, all_failed
from dfc.runs.metrics import IterationRecord
from dfc.samples import Sample, TokenBatch, choices_metrics
from dfc.scoring import episode_rewards
from dfc.scoring.episode_rewards import Reward, total
from dfc.training import episode_advantages, game_plan, refill, teacher_errors
from dfc.training.episode_advantages import group_members
from dfc.training.games_run import GamesRun, State
from dfc.training.method import Iteration, Method, Played, Shares, Verdict
from dfc.training.run import Updated, loop
from dfc.training.trainer import LossFunction


def grpo(config: RlRunConfig) -> Method:
    """Returns group relative policy optimization as a configuration says; other methods replace functions of it."""
    return Method(
        make_loss(config.grpo, config.batch.row_length),
        play=play_games,
        reward=game_rewards,
        advantages=group_advantages,
        update=update_policy,
        accept=keep_or_drop,
        refill=further_games,
        reads_reference=config.grpo.kl_coefficient > 0,
        reads_turns=True,
    )


# ---- what it is made of ----------------------------------------------------------------------------------------------


def play_games(now: Iteration, *, initial: bool = False) -> Played:
    """Plays an iteration's games (Algorithm 2, lines 4 to 16), by the trained policy or the initial one."""
    plan = game_plan.planned(now.games, now.state.win_rates, now.config, now.stage, now.state.iteration)
    return _play(now, *plan, initial=initial)


def further_games(now: Iteration, counts: Mapping[str, int], number: int) -> Played:
    """Plays further groups of an iteration's games in a round, from 1 (`dfc.training.refill`)."""
    specs = game_plan.rollout_specs(counts, now.config, now.stage, now.state.iteration, refill=number)
    return _play(now, dict(counts), specs, refill_round=number)


def _play(
    now: Iteration,
    groups: dict[str, int],
    specs: Sequence[EpisodeSpec],
    *,
    initial: bool = False,
    refill_round: int = 0,
) -> Played:
    """Plays games of an iteration, and settles what the other seat's errors ended."""
    run, config = now.run, now.config
    player = PolicyWeights(run.workers.initial_params) if initial else run.policy(now.state.best)
    opponent, who = game_plan.choose_opponent(run, now.state, now.seed("opponent"))
    both = config.train_both_seats and config.opponent == "itself"

    def play(some: Sequence[EpisodeSpec]) -> list[Episode]:
        reply = config.opponent_reply
        return run.workers.play(some, player, opponent, name=who, both_seats=both, opponent_reply=reply)

    found = play(specs)
    if not refill_round:  # of few games all may fail; no group of those takes a place
        refuse_all_failed(found)
    settled = teacher_errors.settle(
        specs,
        found,
        config.teacher_errors,
        replays=config.teacher_replays,
        seed=now.seed(f"refill {refill_round} teacher errors" if refill_round else "teacher errors"),
        play=play,
        further=refill_round > 0,
    )
    return Played(settled.played, settled.trained, settled.sources, settled.notes, groups, who, settled.metrics)


def game_rewards(now: Iteration, episodes: Sequence[Episode]) -> list[Reward]:
    """Returns the rewards of episodes, as `RlRunConfig.reward` says."""
    return episode_rewards.agreed_rewards(episodes, now.config.reward)


def group_advantages(now: Iteration, episodes: Sequence[Episode], values: Sequence[Reward]) -> Shares:
    """Returns what every update trains on, with advantages within groups (`sequences`)."""
    return sequences(episodes, values, now.config, now.seed("half negative"))


def update_policy(now: Iteration, shares: Shares) -> Updated:
    """Makes an iteration's updates, from the best policy (Algorithm 2, lines 17 and 18)."""
    return update(
        now.run, shares, now.state.best, now.state.optimizer, donate=now.surely_kept and donates(now.run, now.state)
    )


def keep_or_drop(now: Iteration, played: Played, made: Updated) -> Verdict:
    """Judges what updates made, by fresh games or by those that were played (Algorithm 2, lines 19 to 22)."""
    run, config, state = now.run, now.config, now.state
    judged: Sequence[Episode] = ()
    if config.acceptance.rule != "always":
        chosen = {game: config.games[game] for game in now.games}
        purpose = f"accept {now.stage} {state.iteration}"
        fresh = matches.match_specs(chosen, config.acceptance.games, config.seed, purpose, config.learner_roles)
        judged = run.workers.play(fresh, run.policy(made.params), "initial")
        label = {"stage": now.stage, "iteration": state.iteration + 1}
        run.folder.append("episodes", (e.record(**label, kind="accept", reward=None) for e in judged))
    # A game that was not played, or that the other seat spoiled every time, keeps its rate.
    rates = {**state.win_rates, **win_rates(judged or played.episodes, state.win_rates)}
    rates = {game: rates[game] for game in now.games}
    return Verdict(accepted(mean(rates), state.previous, state.highest, config), rates, judged)


# ---- one iteration ---------------------------------------------------------------------------------------------------


def iterate(method: Method, now: Iteration) -> tuple[dict[str, float], dict[str, float]]:
    """Runs one iteration, which changes its run's state at the end only; returns its metrics and its clock readings."""
    run, state = now.run, now.state
    begun = time.perf_counter()
    played = method.play(now)
    values = rewarded(method, now, played)
    if now.config.refill:
        played, values = refilled(method, now, played, values)
    label = {"stage": now.stage, "iteration": state.iteration + 1, "kind": "train"}
    noted = list(zip(played.episodes, values, played.notes, strict=True))
    run.folder.append("episodes", (e.record(**label, **on_record(v), **note) for e, v, note in noted))
    rolled_out = time.perf_counter()

    shares = method.advantages(now, played.trained, [values[source] for source in played.sources])
    made = method.update(now, shares)
    trained = time.perf_counter()

    verdict = method.accept(now, played, made)
    now.memory.check()
    if verdict.kept:  # with its optimizer state
        state.best, state.optimizer = made.params, made.optimizer
        state.highest = max(state.highest, verdict.win_rate)
    state.previous, state.win_rates, state.memory = verdict.win_rate, verdict.win_rates, now.memory
    game_plan.remember_opponent(run, state, played.opponent, played.episodes)

    seconds = time.perf_counter() - begun
    both_kinds, episodes = [*played.episodes, *verdict.episodes], played.episodes
    tokens = sum(e.generated_tokens for e in episodes)
    metrics = {
        "win_rate": verdict.win_rate,
        "accepted": float(verdict.kept),
        "episodes": float(len(episodes)),
        "failed_episodes": float(sum(e.failed for e in both_kinds)),
        "stopped_episodes": float(sum(not (e.failed or e.left_out or e.counted) for e in both_kinds)),
        "generated_tokens": float(tokens),
        **played.metrics,
        **(choices_metrics(e.sample for e in episodes) if run.config.sampling.filtered else {}),
        **made.metrics,
        **{f"games/{game}/win_rate": rate for game, rate in state.win_rates.items()},
        **{f"games/{game}/seeds": float(number) for game, number in played.groups.items()},
        **episode_metrics(episodes, [total(value) for value in values]),
    }
    if run.missed is not None:  # the first iteration after a fuse says what that missed
        metrics["fusion/missed"], run.missed = run.missed, None
    clock = {
        "time": time.time(),
        "seconds": seconds,
        "rollout_seconds": rolled_out - begun,
        "training_seconds": trained - rolled_out,
        "acceptance_seconds": seconds - (trained - begun),
        "episodes_per_second": len(both_kinds) / seconds,
        "tokens_per_second": tokens / seconds,
    }
    return metrics, clock


def rewarded(method: Method, now: Iteration, played: Played) -> Sequence[Reward]:
    """Returns the rewards of games, which all processes have played and rewarded alike.

    Raises:
      TrainingError: a reward is one of turns, and the method takes none; or a token was sampled with a filter and its
        set was not kept. DfcError: processes differ.
    """
    if now.config.sampling.filtered:
        _require_sets(played.trained)
    values: Sequence[Reward] = method.reward(now, played.episodes)
    if not method.reads_turns and any(isinstance(value, list) for value in values):
        raise TrainingError("reward: one number for each turn, but this method takes one for a whole episode")
    multihost.require_equal("episodes", [_tokens(e.sample) for e in played.episodes])
    multihost.require_equal("rewards", [(np.asarray(value, np.float64),) for value in values])
    return values


def _tokens(sample: Sample) -> tuple[np.ndarray, ...]:
    """Returns what all processes have to have alike of a sample."""
    sets = () if sample.choices is None else tuple(sample.choices.arrays().values())
    return sample.token_ids, sample.mask, *sets


def _require_sets(episodes: Sequence[Episode]) -> None:
    """Raises a `TrainingError` where a sampled token has no set: its probability would be taken among all tokens."""
    for sample in (episode.sample for episode in episodes):
        if sample.mask.any() and (sample.choices is None or not sample.choices.kept[sample.mask].all()):
            raise TrainingError(
                "sampling has a filter, but a sampled token came without the set that it left: expected an engine with "
                "kept_sets=True, as dfc.rollout.workers makes one where the run's own sampling has a filter"
            )


def refilled(
    method: Method, now: Iteration, played: Played, values: Sequence[Reward]
) -> tuple[Played, Sequence[Reward]]:
    """Returns an iteration's games, with further groups where groups teach nothing (`dfc.training.refill`)."""
    play = method.refill
    assert play is not None  # noqa: S101 - `Method.open` has refused it

    def further(counts: Mapping[str, int], number: int) -> tuple[Played, Sequence[Reward]]:
        found = play(now, counts, number)
        return found, rewarded(method, now, found)

    return refill.refilled(played, values, now.config.refill, now.config.grpo, further)


def on_record(reward: Reward) -> dict[str, Any]:
    """Returns how a record names a reward: ``reward``, and ``turn_rewards`` where it is one of turns."""
    return {"reward": total(reward), **({"turn_rewards": reward} if isinstance(reward, list) else {})}


def episode_metrics(episodes: Sequence[Episode], values: Sequence[float]) -> dict[str, float]:
    """Returns means per game over the episodes that count.

    They are: reward, format rate (share of replies that were legal), tokens per reply, steps per episode, the share of
    episodes lost by an own overrun, and the share of rollout groups whose rewards are all equal, which teach nothing.
    """
    records: dict[str, Record] = matches.by_game(matches.tally(e for e in episodes if e.counted))
    generated_tokens: dict[str, int] = defaultdict(int)
    reward: dict[str, float] = defaultdict(float)
    spread: dict[tuple[str, int, int], set[float]] = defaultdict(set)
    for episode, value in zip(episodes, values, strict=True):
        if not episode.counted:
            continue
        generated_tokens[episode.game] += episode.generated_tokens
        reward[episode.game] += value
        spread[episode.game, episode.group, episode.seat].add(value)
    dead: dict[str, list[bool]] = defaultdict(list)
    for (game, _, _), rewards_of_group in spread.items():
        dead[game].append(len(rewards_of_group) == 1)
    found = {}
    for game, record in records.items():
        wrong = record.illegal_replies + record.malformed_replies
        found[f"games/{game}/reward"] = reward[game] / record.games
        found[f"games/{game}/format_rate"] = 1 - wrong / max(1, record.replies)
        found[f"games/{game}/response_length"] = generated_tokens[game] / max(1, record.replies)
        found[f"games/{game}/steps"] = record.steps_per_game
        found[f"games/{game}/overruns"] = record.lost_by_overrun / record.games
        found[f"games/{game}/dead_groups"] = sum(dead[game]) / len(dead[game])
    return found


# ---- a stage ---------------------------------------------------------------------------------------------------------


def begin(
    run: GamesRun, state: State, stage: str, games: Sequence[str], rates: Mapping[str, float] | None = None
) -> None:
    """Makes a stage ready whose policy is `State.best`: a new optimizer state, and win rates to compare with.

    Without known `rates` they are measured on fresh games.
    """
    if rates is None:
        chosen = {game: run.config.games[game] for game in games}
        settings = run.config
        roles = settings.learner_roles
        specs = matches.match_specs(chosen, settings.acceptance.games, settings.seed, f"begin {stage}", roles)
        played = run.pace.timed(lambda: run.workers.play(specs, run.policy(state.best), "initial"))
        label = {"stage": stage, "iteration": 0, "kind": "accept", "reward": None}
        run.folder.append("episodes", (e.record(**label) for e in played))
        rates = win_rates(played)
    state.optimizer = run.initial_state(state.best)
    state.win_rates = {game: rates[game] for game in games}
    state.previous = state.highest = mean(state.win_rates)


def train(
    run: GamesRun,
    method: Method,
    state: State,
    stage: str,
    games: Sequence[str],
    count: int,
    show: Callable[[IterationRecord], None],
    *,
    save_last: bool = False,
) -> None:
    """Runs the iterations a stage has left; saves now and then, and when asked to stop.

    `count` iterations make up the stage, of which `State.iteration` are done. The end of the stage is saved with
    `save_last`, and otherwise by the caller after what follows it.

    Raises:
      Interrupted: a stop was asked for. TrainingError: training has diverged; says how to continue. ConfigError: the
        method plays games in a way of its own, and the further ones of `refill` in GRPO's.
    """
    asked = run.config.refill
    if asked and method.refill is further_games and method.play is not play_games:
        raise ConfigError([f"refill={asked}: must be 0, as this method has a `play` of its own and no `refill` to it"])

    def once(state: State) -> tuple[dict[str, float], dict[str, float]]:
        try:
            surely_kept = method.accept is keep_or_drop  # `donates` knows when that drops none
            now = Iteration(run, state, stage, games, state.memory.copy(), surely_kept)
            return iterate(method, now)
        except DivergenceError as error:
            raise DivergenceError(f"{stage}, iteration {state.iteration + 1}: {error}") from None

    def shown(found: tuple[dict[str, float], dict[str, float]]) -> None:
        metrics, clock = found
        run.costs.note(run.workers.endpoints)
        state.iteration += 1
        state.steps += 1
        show(
            IterationRecord(
                stage=stage,
                iteration=state.iteration,
                iterations=count,
                step=state.steps,
                metrics={**metrics, **run.costs.unreported()},
                clock=clock,
                win_rates=state.win_rates,
                cost=str(run.costs),
            )
        )

    def due() -> bool:
        return state.iteration % run.config.checkpoint.every == 0 if state.iteration < count else save_last

    loop(run, state, once, shown, left=lambda: state.iteration < count, due=due)


# ---- games and groups ------------------------------------------------------------------------------------------------


def refuse_all_failed(episodes: Sequence[Episode]) -> None:
    """Stops where continuing would only spend time: an opponent that is down, a key that is not valid.

    Raises:
      TrainingError: every episode of a game failed.
    """
    for game, failure in all_failed((episode.game, episode.failure) for episode in episodes).items():
        raise TrainingError(f"{game}: every game failed, the first with: {failure}")


# ---- update ----------------------------------------------------------------------------------------------------------


def sequences(episodes: Sequence[Episode], values: Sequence[Reward], config: RlRunConfig, seed: int) -> Shares:
    """Returns the episodes to train on, one list per optimizer update; episodes of a group stay together.

    Half-negative drops half of the episodes, or turns, with a negative advantage: those whose gradient lowers a
    probability. What it drops is in no term of the loss, nor are episodes that do not count. An episode of advantage 0
    is trained on for its KL term where that has a coefficient above 0, and left out otherwise.
    """
    members, samples = group_members(episodes), [e.sample for e in episodes]
    relative = episode_advantages.relative(episodes, values, members, config.grpo)
    by_turn = relative.ndim > 1
    dropped = np.zeros(relative.shape, np.bool_)
    if config.half_negative:
        dropped = ~rewards.keep_half_of_negatives(relative.ravel(), seed).reshape(relative.shape)
    kept = np.where(dropped, 0, relative)
    advantages: Sequence[float | np.ndarray] | np.ndarray = kept
    if by_turn:
        samples, advantages = episode_advantages.by_token(episodes, kept, dropped)
    trained = None
    if config.grpo.kl_coefficient > 0:
        left = ~dropped if dropped.ndim == 1 else np.ones(len(episodes), np.bool_)  # of turns: by the samples' masks
        trained = left & np.asarray([episode.counted for episode in episodes])
    return share_out(samples, advantages, members, config.grpo.updates_per_iteration, seed, trained=trained)


def share_out(
    samples: Sequence[Sample],
    advantages: Sequence[float | np.ndarray] | np.ndarray,
    members: np.ndarray,
    updates: int,
    seed: int,
    *,
    trained: np.ndarray | None = None,
) -> Shares:
    """Deals out groups of samples to the updates of an iteration; an empty update is left out.

    Groups come game by game, and dealt out like that an update would see one game only: `seed` orders them.
    `advantages` has of each sample a number, or float32 [tokens]; `members`, int [groups, size], says which samples
    form a group; `trained`, bool [samples], which are trained on, None: those whose advantage is not 0.
    """
    chosen = [np.any(one) for one in advantages] if trained is None else trained
    order = np.random.Generator(np.random.Philox(derive_seed("shares", seed))).permutation(len(members))
    shares = [
        [segment(samples[i], advantages[i]) for i in part.ravel() if chosen[i]]
        for part in np.array_split(members[order], updates)
    ]
    return [share for share in shares if any(one.mask.any() for one in share)]


def donates(run: GamesRun, state: State) -> bool:
    """Returns whether an iteration's first update may take the memory of the policy it begins with.

    The old policy is needed again if the update is dropped, the initial one by every stage, past ones by a pool.
    """
    first = state.best is run.initial_params
    return run.config.acceptance.rule == "always" and not (first or state.pool or run.policies)


def make_loss(config: GrpoConfig, row_length: int) -> LossFunction:
    """Returns the GRPO loss in the trainer's signature.

    The fourth argument, log-probabilities under the weights that sampled as the trainer computes them, is read if
    `config.importance_cap` is above 0. None is right for the first update of an iteration only.
    """
    cap, mode = config.importance_cap, config.importance_mode
    weighs_sequences = cap > 0 and mode.startswith("sequence")
    packing = config.unit != "token" or config.ratio == "sequence" or weighs_sequences

    def loss(
        logprobs: jax.Array, batch: TokenBatch, reference_logprobs: jax.Array | None, proximal: jax.Array | None = None
    ) -> Loss:
        return grpo_loss(
            logprobs,
            batch.sampled_logprobs,
            batch.advantages,
            batch.mask,
            clip_ratio=config.clip_ratio,
            clip_ratio_high=config.clip_ratio_high or None,
            ratio=config.ratio,
            reference_logprobs=reference_logprobs,
            kl_coefficient=config.kl_coefficient if reference_logprobs is not None else 0.0,
            proximal_logprobs=proximal if cap else None,
            importance_cap=cap,
            importance_floor=config.importance_floor,
            importance_mode=mode,
            unit=config.unit,
            max_length=row_length if config.unit == "fixed_length" else 0.0,
            segments=batch.segments if packing else None,
            num_segments=max(1, row_length // 4) if packing else None,
        )

    return loss


def update(
    run: GamesRun,
    shares: Shares,
    params: Params,
    optimizer: Any,  # noqa: ANN401 - of the optimizer
    *,
    donate: bool,
) -> Updated:
    """Returns weights and optimizer state after an iteration's updates, and the updates' metrics.

    They are means over the updates; but `importance/max` is the largest, and the gap to the sampler the first one's.
    With `donate` the first update may take the memory of `params`, so that they are lost.
    """
    config, trainer = run.config, run.trainer
    reference_params = run.reference_params if run.reads_reference else None
    base_params = None if run.lora is None else run.reference_params
    # updates: 0 if nothing was left to train on: no KL term, and all rewards of every group were equal.
    metrics = {"updates": float(len(shares))}
    shape = config.batch.row_length, config.batch.micro_batch_rows
    batches = [packed(share, *shape, trainer.halves) for share in shares]
    # Later updates are corrected by the trainer's log-probabilities at the sampling weights; the first is at these.
    corrects = config.grpo.importance_cap > 0
    proximal = [
        trainer.logprobs(params, batch, base_params=base_params, check_stop=run.stop.check_stop)
        if corrects and number
        else None
        for number, batch in enumerate(batches)
    ]
    kept = True  # the state that the iteration began with
    for number, batch in enumerate(batches):
        made = trainer.update(
            params,
            optimizer,
            batch,
            reference_params,
            base_params=base_params,
            proximal=proximal[number],
            donate=number > 0 or donate,
            check_stop=run.stop.check_stop if kept else None,
        )
        kept = kept and not (number == 0 and donate)
        params, optimizer = made.params, made.optimizer_state
        found = {
            "loss": made.loss,
            "gradient_norm": made.gradient_norm,
            "trained_tokens": made.weight,
            **made.metrics,
        }
        largest = found.pop(LARGEST, None)
        if largest is not None:
            metrics[LARGEST] = max(metrics.get(LARGEST, 0.0), largest)
        for name, value in found.items():
            metrics[name] = metrics.get(name, 0.0) + value / len(shares)
        if number == 0:  # later ones include the change of the policy
            metrics |= made.gap
    return Updated(params, optimizer, metrics)


# ---- keep or drop ----------------------------------------------------------------------------------------------------


def win_rates(episodes: Sequence[Episode], known: Mapping[str, float] | None = None) -> dict[str, float]:
    """Returns the share of episodes won, per game, of those that count; an own overrun is a loss.

    A game of which no episode counts keeps the rate that was known, or has 0: nothing was won.

    Raises:
      TrainingError: every episode of a game failed.
    """
    refuse_all_failed(episodes)
    before = known or {}
    records = matches.by_game(matches.tally(episodes))
    return {game: r.win / r.decided if r.decided else before.get(game, 0.0) for game, r in records.items()}


def mean(rates: Mapping[str, float]) -> float:
    """Returns the mean over games."""
    return sum(rates.values()) / len(rates)


def accepted(win_rate: float, previous: float, best: float, config: RlRunConfig) -> bool:
    """Returns whether an update is kept (Algorithm 2, lines 19 to 22)."""
    rule = config.acceptance
    threshold = {"previous": previous, "best": best, "always": -1.0}[rule.rule]
    return win_rate >= threshold - rule.tolerance
