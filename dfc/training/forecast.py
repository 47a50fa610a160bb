"""A forecast of a run's duration from its first games, printed before its first step."""

import dataclasses
import time
from collections.abc import Callable, Sequence

from dfc.episodes import Episode
from dfc.runs.activity import compilations, duration
from dfc.runs.progress import long_run


@dataclasses.dataclass
class Pace:
    """How fast this process has played so far: games, tokens of its policy, seconds without those of compilation."""

    games: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def timed(self, play: Callable[[], list[Episode]]) -> list[Episode]:
        """Returns the episodes that a function plays, and counts them."""
        compiled, began = compilations().seconds, time.perf_counter()
        played = play()
        seconds = time.perf_counter() - began - (compilations().seconds - compiled)
        self.games += len(played)
        self.tokens += sum(episode.generated_tokens for episode in played)
        self.seconds += max(0.0, seconds)
        return played


def lines(pace: Pace, trained: int, judged: int, matches: int, shorter: Sequence[str]) -> list[str]:
    """Returns a text of a run's games, tokens and time, and a warning if playing alone takes more than an hour.

    `pace` is that of the first games; without any, as after a resume, the progress of the first iteration tells the
    time. `judged` games decide what is kept, `matches` are played between stages and at the end, and the settings
    `shorter` make the run shorter.
    """
    found = [f"games: {trained:,} to train on, {judged:,} to decide what is kept, {matches:,} in matches"]
    if not pace.games:
        return found
    games = trained + judged + matches
    tokens, seconds = (games * value / pace.games for value in (pace.tokens, pace.seconds))
    found.append(
        f"tokens: about {tokens:,.0f} to sample, {pace.tokens / pace.games:.1f} a game; at the speed of the first"
        f" {pace.games:,} games playing takes {duration(seconds)}, training comes on top"
    )
    warning = long_run(seconds, shorter)
    return [*found, f"warning: {warning}"] if warning else found
