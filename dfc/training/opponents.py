"""Who plays against the policy in training games: the initial policy, the best one so far, a past one, a bot."""

from collections.abc import Sequence

import numpy as np

from dfc.config import OpponentPoolConfig
from dfc.episodes import Episode
from dfc.evaluation import matches
from dfc.rollout.workers import Opponent
from dfc.training.rl_run import State, TrainingRun

INITIAL = "initial"


def choose(run: TrainingRun, state: State, seed: int) -> tuple[Opponent, str]:
    """Returns an iteration's opponent, and its name in the records.

    Args:
      run: its settings say which opponent; ``pool`` samples one of the past policies, the initial one among them.
      state: the past policies, and how the policy fared when it last met each.
      seed: of the choice.
    """
    settings = run.config
    if settings.opponent != "pool":
        return settings.opponent, settings.opponent
    names = [INITIAL, *state.pool]
    rates = [state.met.get(name, 0.5) for name in names]
    chances = choice_probabilities(rates, settings.pool)
    uniform = np.random.Generator(np.random.Philox(seed)).random()
    name = names[min(int(np.searchsorted(np.cumsum(chances), uniform, side="right")), len(names) - 1)]
    past: Opponent = INITIAL if name == INITIAL else run.policy(state.pool[name])
    return past, f"pool {name}"


def choice_probabilities(win_rates: Sequence[float], settings: OpponentPoolConfig) -> np.ndarray:
    """Returns the probability of meeting each opponent, float64 [opponents].

    Args:
      win_rates: of the policy against each.
      settings: ``hardest`` (1 - w)^2, ``even`` w (1 - w), ``uniform`` 1, each plus 0.01 so that nobody is forgotten.

    Source: prioritised fictitious self-play, Vinyals et al., Nature 575 (2019), Methods; the 0.01 is ours.
    """
    w = np.asarray(win_rates, np.float64)
    weights = {"hardest": (1 - w) ** 2, "even": w * (1 - w), "uniform": np.ones_like(w)}[settings.choice] + 0.01
    return np.asarray(weights / weights.sum())


def remember(run: TrainingRun, state: State, who: str, played: Sequence[Episode]) -> None:
    """Notes how a past policy was met, and lets the policy join the pool after every `every` iterations."""
    settings = run.config
    if settings.opponent != "pool":
        return
    records = matches.by_game(matches.tally(e for e in played if e.opponent == who)).values()
    scores = [r.score.estimate for r in records if r.games > r.truncated]  # truncated games have no score
    if scores:
        state.met = {**state.met, who.removeprefix("pool "): sum(scores) / len(scores)}
    if (state.iteration + 1) % settings.pool.every == 0:
        pool = {**state.pool, f"iteration {state.iteration + 1}": state.best}
        state.pool = dict(list(pool.items())[-settings.pool.size :])
        state.met = {name: rate for name, rate in state.met.items() if name in {INITIAL, *state.pool}}
