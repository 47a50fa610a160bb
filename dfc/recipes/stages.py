"""Groups of games and the stages of a run: who is trained on what, in which order, from which weights.

divide_fuse_conquer  divide g1, divide g2, ..., conquer g1+g2 (fuses g2), conquer g1+g2+g3 (fuses g3), ...
naive_single         one stage per game, each from the initial policy
imitate_wins         one stage on all games, learning from the initial policy's won games
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dfc.config import DivideFuseConquer, GroupingConfig
from dfc.training import rl

Kind = Literal["divide", "conquer", "single", "imitate"]


@dataclasses.dataclass(frozen=True)
class Group:
    """Games that are learned together; `start` and `winnable` are why, None where the group was given by hand."""

    name: str
    games: tuple[str, ...]
    start: str | None = None
    winnable: bool | None = None

    def why(self) -> str:
        """Returns in words why these games are together."""
        if self.start is None:
            return "by hand"
        return f"{self.start} start, {'can' if self.winnable else 'cannot'} be won by the base model"


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stretch of training.

    Attributes:
      name: in metrics, records and the report.
      kind: ``divide``: a group's own policy; ``conquer``: the policy that stays; ``single``: a game's own policy;
        ``imitate``: supervised.
      games: the games trained on.
      group: the divided group's name, else empty.
      fuses: names of the groups whose policies are fused into the policy so far before it begins.
    """

    name: str
    kind: Kind
    games: tuple[str, ...]
    group: str = ""
    fuses: tuple[str, ...] = ()


def group_games(measured: Mapping[str, Mapping[str, Any]], settings: GroupingConfig) -> list[Group]:
    """Returns the groups: those given by hand, else the non-empty ones by (start kind) x (can it be won).

    Args:
      measured: game id -> trials (episodes that count), wins and start kind.
      settings: a game counts as winnable if wins / trials is above `winnable_above` (the paper: 0).
    """
    if settings.groups:
        return [Group(f"g{n}", games) for n, games in enumerate(settings.groups, start=1)]
    groups: list[Group] = []
    for kind in settings.order:
        start, winnable = kind.split("_")[0], kind.endswith("_winnable")
        games = tuple(
            game
            for game, m in measured.items()
            if m["start"] == start and (m["wins"] / max(1, m["trials"]) > settings.winnable_above) == winnable
        )
        if games:
            groups.append(Group(f"g{len(groups) + 1}", games, start, winnable))
    return groups


def plan(groups: Sequence[Group], games: Sequence[str], settings: DivideFuseConquer) -> list[Stage]:
    """Returns the stages of a method.

    Args:
      groups: of `group_games`.
      games: all of the run.
      settings: method, and whether all groups are fused at once.
    """
    everything = tuple(games)
    if settings.method == "naive_single":
        return [Stage(f"only {game}", "single", (game,)) for game in everything]
    if settings.method == "imitate_wins":
        return [Stage("imitate wins", "imitate", everything)]
    stages = [Stage(f"divide {g.name}", "divide", g.games, group=g.name) for g in groups]
    counts = [len(groups)] if settings.fusion.at_once and len(groups) > 1 else range(2, len(groups) + 1)
    for count in counts:
        joined = groups[:count]
        fuses = [g.name for g in (joined if settings.fusion.at_once else joined[-1:])]
        name = "conquer " + "+".join(g.name for g in joined)
        stages.append(Stage(name, "conquer", tuple(x for g in joined for x in g.games), fuses=tuple(fuses)))
    return stages


def iterations(stage: Stage, settings: DivideFuseConquer) -> int:
    """Returns how many iterations a stage has."""
    return settings.divide_iterations if stage.kind == "divide" else settings.conquer_iterations


def episodes(stages: Sequence[Stage], settings: DivideFuseConquer) -> tuple[int, int]:
    """Returns how many games a run's iterations play: those trained on, and those that decide what is kept."""
    return rl.games_played(settings, sum(iterations(stage, settings) * len(stage.games) for stage in stages))
