"""Queries, answers and judgements of self-play, sampled by one engine: what a role sees, and the text it wrote."""

import dataclasses
from collections.abc import Callable, Sequence

from dfc.config import SamplingConfig
from dfc.inference.engine import Engine
from dfc.models.chat import ChatTokenizer
from dfc.models.transformer import Params
from dfc.rollout.samples import samples
from dfc.rollout.workers import PolicyWeights
from dfc.samples import Sample

REFERENCE = "reference"  # the engine's name for the policy that judges


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a role wrote.

    Attributes:
      text: of its tokens, without white space at both ends.
      ended: whether it ended the reply itself; False: a limit did.
      sample: its prompt and its own tokens, for a trainer.
    """

    text: str
    ended: bool
    sample: Sample


@dataclasses.dataclass
class Roles:
    """Asks the policy, in either role, and the reference that judges.

    Attributes:
      engine: of the run. tokenizer: of its model. stops: the tokens that end a reply.
      look: called between two calls of the engine (`dfc.runs.stop_signals.Stop.look`).
    """

    engine: Engine
    tokenizer: ChatTokenizer
    stops: frozenset[int]
    look: Callable[[], None] = lambda: None

    def seat(self, policy: PolicyWeights, reference: PolicyWeights | None) -> None:
        """Takes over the weights of an iteration.

        Args:
          policy: what writes queries and answers.
          reference: what judges; None where nobody does.
        """
        self.engine.set_params(policy.params, self.engine.version() + 1, policy.adapters)
        if reference is not None:
            self.engine.set_params(reference.params, 0, reference.adapters, policy=REFERENCE)

    def leave(self, initial_params: Params) -> None:
        """Lets go of the policy: what the trainer makes of it next would lie beside it."""
        self.engine.set_params(initial_params, self.engine.version())
        self.engine.forget_copies()

    def prompt(self, text: str) -> list[int]:
        """Returns the tokens of a conversation that begins with a user's message.

        The message is text, whatever it spells: nothing in it becomes the markup of a role (`dfc.models.chat`).
        """
        return self.tokenizer.first_turn(text)

    def fits(self, prompt: Sequence[int], reply: int) -> bool:
        """Returns whether a prompt leaves room for a reply of so many tokens."""
        return 0 < len(prompt) <= self.engine.max_length - reply

    def write(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        *,
        seed: Callable[[int, int], int],
        longest: int,
        judge: SamplingConfig | None = None,
    ) -> list[list[Reply]]:
        """Returns n replies to every prompt; equal prompts that follow each other are read once.

        Args:
          prompts: tokens, each with room for a reply.
          n: replies to each.
          seed: of (prompt, reply).
          longest: tokens of a reply.
          judge: how the reference samples, if it is asked and not the policy.
        """
        if not prompts:
            return []
        found = samples(
            self.engine,
            prompts,
            n,
            seed=seed,
            max_reply_length=longest,
            policy="policy" if judge is None else REFERENCE,
            sampling=judge,
            look=self.look,
        )
        return [[self._reply(sample) for sample in group] for group in found]

    def _reply(self, sample: Sample) -> Reply:
        tokens = sample.token_ids[sample.mask].tolist()
        return Reply(self.tokenizer.decode(tokens).strip(), bool(tokens) and tokens[-1] in self.stops, sample)
