"""Rewards of Playpen's GRPO (arXiv 2504.08590, Table 5 and appendix D.4): of an episode, from 0 to 1.

``reward.function="dfc.scoring.playpen_rewards:table_5"`` pays them.
"""

from dfc.episodes import Episode

_MOST_ROUNDS = 3  # of taboo in which a guess is paid
_ALL_OR_NOTHING = frozenset({"clem_wordle", "clem_wordle_withclue", "clem_wordle_withcritic", "clem_referencegame"})


def table_5(episode: Episode) -> float:
    """Returns the reward of an episode of a dialogue game, from 0 to 1.

    ::

        taboo                                 1 / n for the right guess in round n <= 3, else 0
        wordle, with clue, with critic        1 for the right word, else 0
        reference game                        1 for the right grid, else 0
        image game                            F1 of the drawn grid and the target
        private and shared                    share of slots that were filled; what was asked aside does not count
        any other game                        its quality / 100

    A game that was broken off, by whoever, and one whose context was full has the reward 0.

    Args:
      episode: of any game.

    Source: Playpen (arXiv 2504.08590), Table 5. Departures: of games that the table does not name the quality is paid;
    the table gives no reward to a game that the teacher broke off, since that is played again
    (`dfc.training.teacher_errors`).
    """
    if episode.failed or episode.abort_reason is not None or episode.outcome not in ("win", "draw", "loss"):
        return 0.0
    won = episode.outcome == "win"
    if episode.game == "clem_taboo":
        rounds = episode.measures["rounds"]
        return 1 / rounds if won and rounds <= _MOST_ROUNDS else 0.0
    if episode.game in _ALL_OR_NOTHING:
        return float(won)
    if episode.game == "clem_privateshared":
        return float(episode.measures["slot_accuracy"])
    return (episode.quality or 0.0) / 100
