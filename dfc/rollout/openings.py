"""What a game begins with that was played and recorded before."""

import dataclasses

from dfc.episodes import PlayedReply
from dfc.samples import Sample


@dataclasses.dataclass(frozen=True, eq=False)
class Opening:
    """The first replies of a recorded game; a match plays on after them (`dfc.rollout.match`).

    Attributes:
      replies: of all seats, in the order played, asides included, up to a turn of the policy's seat that is no aside.
      sample: the policy's conversation up to that turn, its observation included, as it was recorded: nothing of it is
        tokenized again, and what was sampled then stays marked as sampled. None: the tokenizer's template writes it,
        and none of it counts as sampled.
    """

    replies: tuple[PlayedReply, ...]
    sample: Sample | None = None
