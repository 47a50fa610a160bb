"""One iteration of the conquer recipe (Divide-Fuse-Conquer, arXiv 2505.16401, Algorithm 2), as separate steps.

    seeds -> games -> rewards -> advantages -> sequences -> update -> win rate

How it departs from the paper:

1. Groups whose rewards are all equal carry no signal and are left out of the update; their KL term with them.
2. An illegal or malformed reply that is answered with another try costs `reward.illegal_try`; in the paper it is
   free, and a policy learns to use it.
3. The paper drops half of the "negative" samples without saying negative in what; here it is the advantage.
4. The disturbance of an action is decided before the policy is asked, which gives the same games and saves a reply.
5. A game won before the policy's first turn, by the other seat's invalid reply, counts as one step.
6. A game that the policy ends by filling its own context is worth `reward.overrun`, a loss: otherwise rambling would
   pay where a game goes badly. One that was stopped from outside (the other seat's context, `rollout.max_actions`
   where nobody is measurably ahead) is like one that failed: no advantage, and in no mean. The paper names neither.
7. The policy's earlier thoughts stay in the conversation and count against `rollout.max_prompt_length`; the paper does
   not say whether its 8,192 tokens of input hold them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from dfc import advantages, curriculum, rewards
from dfc.config import DivideFuseConquer, GrpoConfig, RewardConfig, RlRun
from dfc.episodes import Episode, TokenBatch
from dfc.errors import TrainingError
from dfc.evaluation import matches
from dfc.evaluation.statistics import Record
from dfc.games import registry
from dfc.games.rng import derive_seed
from dfc.losses import Loss, grpo_loss, sft_loss
from dfc.rollout.runner import EpisodeSpec
from dfc.training.packing import Sequence1D
from dfc.training.trainer import LossFunction


def allocate(games: Sequence[str], win_rates: Mapping[str, float], config: RlRun) -> dict[str, int]:
    """Returns how many rollout seeds each game gets; they sum to seeds_per_game x games (section 3.2.3)."""
    budget = config.seeds_per_game * len(games)
    priority = config.mixed_priority
    if not priority.enabled:
        weights = np.ones(len(games))
    else:
        rates = [win_rates[game] for game in games]
        weights = curriculum.mixed_priority_weights(rates, a=priority.a, b=priority.b, floor=priority.floor)
    seeds = curriculum.allocate_seeds(weights, budget, minimum=1)
    return dict(zip(games, seeds.tolist(), strict=True))


def rollout_specs(seeds: Mapping[str, int], config: RlRun, stage: str, iteration: int) -> list[EpisodeSpec]:
    """Returns `trajectories_per_seed` episodes of every rollout seed; seats alternate from seed to seed.

    Episodes of one group follow each other, and games take turns, so that all lengths are in flight together.
    """
    seed, options = config.seed, config.games
    place = iteration if config.randomize_seeds else 0
    specs: list[tuple[float, EpisodeSpec]] = []
    group = 0
    for game, count in seeds.items():
        seats = registry.make(game, **options[game]).seats
        for index in range(count):
            deal = derive_seed("rollout deal", seed, stage, game, place, index)
            deal = deal % config.tasks if config.tasks else deal
            for copy in range(config.trajectories_per_seed):
                sampling_seed = derive_seed("rollout draws", seed, stage, game, iteration, index, copy)
                spec = EpisodeSpec(
                    game, options[game], deal, (index + iteration) % seats, group, sampling_seed, config.epsilon
                )
                specs.append((index / count, spec))
            group += 1
    return [spec for _, spec in sorted(specs, key=lambda item: item[0])]


def reward(episode: Episode, config: RewardConfig) -> float:
    """Returns what an episode is worth: Table 1, or an overrun's price in its place, less what retried replies cost.

    A reply that forfeits, illegal or malformed, is answered with none: the format reward is its price.
    """
    invalid = episode.outcome == "invalid"
    form = rewards.format_reward(not invalid, invalid=config.invalid) if config.format else 0.0
    outcome = rewards.outcome_reward("loss" if episode.ran_out else episode.outcome)
    steps = max(1, episode.steps) if config.hasty_action_penalty else 1
    forgiven = episode.illegal_tries - int(invalid and not episode.malformed)
    forgiven += max(0, episode.malformed_tries - int(invalid and episode.malformed))
    worth = config.overrun if episode.overran else rewards.step_reward(form, outcome, steps)
    return worth - config.illegal_try * forgiven


def sequences(episodes: Sequence[Episode], values: Sequence[float], config: RlRun, seed: int) -> list[list[Sequence1D]]:
    """Returns the episodes to train on, one list per optimizer update; episodes of a group stay together.

    Half-negative drops half of the episodes with a negative advantage: those whose gradient lowers a probability. An
    update for which nothing is left is left out.

    Args:
      episodes: of one iteration.
      values: their rewards.
      config: the recipe's settings.
      seed: of the half-negative filter.
    """
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)  # the seats of one group see different games
    for index, episode in enumerate(episodes):
        groups[episode.group, episode.seat].append(index)
    members = np.asarray(list(groups.values()))
    relative = relative_to_baseline(episodes, values, members, config.grpo)
    keep = relative != 0
    if config.half_negative:
        keep &= rewards.keep_half_of_negatives(relative, seed)
    # Groups come game by game; dealt out in that order, an update would see one game only.
    order = np.random.Generator(np.random.Philox(derive_seed("shares", seed))).permutation(len(members))
    shares = []
    for part in np.array_split(members[order], config.grpo.updates_per_iteration):
        chosen = [episodes[i] for i in part.ravel() if keep[i]]
        worth = [float(relative[i]) for i in part.ravel() if keep[i]]
        shares.append(
            [Sequence1D(e.token_ids, e.mask, e.sampled_logprobs, a) for e, a in zip(chosen, worth, strict=True)]
        )
    return [share for share in shares if any(sequence.mask.any() for sequence in share)]


def relative_to_baseline(
    episodes: Sequence[Episode], values: Sequence[float], members: np.ndarray, config: GrpoConfig
) -> np.ndarray:
    """Returns each episode's advantage, float32 [episodes]; 0 for those that do not count, whose rewards are not read.

    Args:
      episodes: of one iteration.
      values: their rewards.
      members: int [groups, size], which episodes form a group.
      config: which baseline.
    """
    counted = np.asarray([episode.counted for episode in episodes])
    rewards_ = np.asarray(values, np.float32)
    if config.baseline == "role":
        roles = {role: number for number, role in enumerate(dict.fromkeys((e.game, e.seat) for e in episodes))}
        numbers = np.asarray([roles[e.game, e.seat] for e in episodes])
        return advantages.role_relative(
            rewards_, numbers, num_roles=len(roles), normalize_std=config.normalize_std, mask=counted
        )
    relative = np.zeros(len(episodes), np.float32)
    table, mask = rewards_[members], counted[members]
    if config.baseline == "leave_one_out":
        relative[members] = advantages.leave_one_out(table, mask=mask)
    else:
        relative[members] = advantages.group_relative(table, normalize_std=config.normalize_std, mask=mask)
    return relative


def won_sequences(episodes: Sequence[Episode], config: RlRun, seed: int) -> list[list[Sequence1D]]:
    """Returns the won episodes, one list per optimizer update; an update for which nothing is left is left out."""
    won = [episode for episode in episodes if episode.counted and episode.outcome == "win"]
    order = np.random.Generator(np.random.Philox(derive_seed("shares", seed))).permutation(len(won))
    parts = np.array_split(order, config.grpo.updates_per_iteration)
    shares = [
        [Sequence1D(e.token_ids, e.mask, e.sampled_logprobs, 1.0) for e in (won[i] for i in part)] for part in parts
    ]
    return [share for share in shares if any(sequence.mask.any() for sequence in share)]


def reads_reference(config: DivideFuseConquer) -> bool:
    """Returns whether the update compares with the initial policy."""
    return config.method != "imitate_wins" and config.grpo.kl_coefficient > 0


def method_loss(config: DivideFuseConquer, row_length: int) -> LossFunction:
    """Returns the loss of a method: GRPO, or that of supervised training."""
    return imitation_loss(row_length) if config.method == "imitate_wins" else make_loss(config.grpo, row_length)


def imitation_loss(row_length: int) -> LossFunction:
    """Returns the negative log-likelihood of action tokens, averaged within each episode first."""

    def loss(
        logprobs: jax.Array, batch: TokenBatch, reference_logprobs: jax.Array | None, proximal: jax.Array | None = None
    ) -> Loss:
        del reference_logprobs, proximal
        return sft_loss(logprobs, batch.mask, segments=batch.segments, num_segments=max(1, row_length // 4))

    return loss


def make_loss(config: GrpoConfig, row_length: int) -> LossFunction:
    """Returns GRPO as a trainer wants it.

    The fourth argument, log-probabilities under the weights that sampled as the trainer computes them, is read if
    `config.importance_cap` is above 0. None is right for the first update of an iteration only.
    """
    packing = "sequence" in (config.unit, config.ratio)
    cap = config.importance_cap

    def loss(
        logprobs: jax.Array, batch: TokenBatch, reference_logprobs: jax.Array | None, proximal: jax.Array | None = None
    ) -> Loss:
        return grpo_loss(
            logprobs,
            batch.old_logprobs,
            batch.advantages,
            batch.mask,
            clip_ratio=config.clip_ratio,
            clip_ratio_high=config.clip_ratio_high or None,
            ratio=config.ratio,
            reference_logprobs=reference_logprobs,
            kl_coefficient=config.kl_coefficient if reference_logprobs is not None else 0.0,
            proximal_logprobs=proximal if cap else None,
            importance_cap=cap,
            unit=config.unit,
            segments=batch.segments if packing else None,
            num_segments=max(1, row_length // 4) if packing else None,
        )

    return loss


def accepted(win_rate: float, previous: float, best: float, config: RlRun) -> bool:
    """Returns whether an update is kept (Algorithm 2, lines 19 to 22)."""
    rule = config.acceptance
    threshold = {"previous": previous, "best": best, "always": -1.0}[rule.rule]
    return win_rate >= threshold - rule.tolerance


def refuse_all_failed(episodes: Sequence[Episode]) -> None:
    """Stops where continuing would only spend time: an opponent that is down, a key that is not valid.

    Raises:
      TrainingError: every episode of a game failed.
    """
    counted = {episode.game for episode in episodes if not episode.failed}
    for episode in episodes:
        if episode.game not in counted:
            raise TrainingError(f"{episode.game}: every game failed, the first with: {episode.failure}")


def win_rates(episodes: Sequence[Episode], known: Mapping[str, float] | None = None) -> dict[str, float]:
    """Returns the share of episodes won, per game, of those that count; an own overrun is a loss.

    A game of which no episode counts keeps the rate that was known, or has 0: nothing was won.

    Args:
      episodes: games that were played.
      known: rates of before.

    Raises:
      TrainingError: every episode of a game failed.
    """
    refuse_all_failed(episodes)
    before = known or {}
    records = matches.by_game(matches.tally(episodes))
    return {game: r.win / r.decided if r.decided else before.get(game, 0.0) for game, r in records.items()}


def episode_metrics(episodes: Sequence[Episode], values: Sequence[float]) -> dict[str, float]:
    """Returns means per game over the episodes that count.

    They are: reward, format rate (share of replies that were legal), tokens per reply, steps per episode, the share of
    episodes lost by an own overrun, and the share of rollout groups whose rewards are all equal, which teach nothing.
    """
    records: dict[str, Record] = matches.by_game(matches.tally(e for e in episodes if e.counted))
    generated_tokens: dict[str, int] = defaultdict(int)
    worth: dict[str, float] = defaultdict(float)
    spread: dict[tuple[str, int, int], set[float]] = defaultdict(set)
    for episode, value in zip(episodes, values, strict=True):
        if not episode.counted:
            continue
        generated_tokens[episode.game] += episode.generated_tokens
        worth[episode.game] += value
        spread[episode.game, episode.group, episode.seat].add(value)
    dead: dict[str, list[bool]] = defaultdict(list)
    for (game, _, _), rewards_of_group in spread.items():
        dead[game].append(len(rewards_of_group) == 1)
    found = {}
    for game, record in records.items():
        wrong = record.illegal_replies + record.malformed_replies
        found[f"games/{game}/reward"] = worth[game] / record.games
        found[f"games/{game}/format_rate"] = 1 - wrong / max(1, record.replies)
        found[f"games/{game}/response_length"] = generated_tokens[game] / max(1, record.replies)
        found[f"games/{game}/steps"] = record.steps_per_game
        found[f"games/{game}/overruns"] = record.lost_by_overrun / record.games
        found[f"games/{game}/dead_groups"] = sum(dead[game]) / len(dead[game])
    return found
