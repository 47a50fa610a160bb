"""Queries, answers and judgements of self-play, sampled by one engine: what a role sees, and the text it wrote."""

import dataclasses
from collections.abc import Callable, Sequence

from dfc.config import SamplingConfig
from dfc.inference.prefixes import in_common
from dfc.models.transformer import Params
from dfc.rollout.host import PolicyWeights, release
from dfc.rollout.samples import Asker, Reply

# The engine's names for the policy that judges, and for a Challenger with weights of its own.
REFERENCE, CHALLENGER = "reference", "challenger"


@dataclasses.dataclass
class Roles(Asker):
    """Asks the policy, in either role, and the reference that judges.

    Attributes:
      asked: prompts of the iteration, by who was asked.
    """

    asked: dict[str, list[Sequence[int]]] = dataclasses.field(default_factory=dict)
    challenger: str = "policy"  # the engine's name for the Challenger's weights
    _read: int = 0  # prompt tokens of earlier iterations

    def seat(
        self, policy: PolicyWeights, reference: PolicyWeights | None, challenger: PolicyWeights | None = None
    ) -> None:
        """Takes over the weights of an iteration: the policy's, the judge's if any, and a Challenger's of its own."""
        self.asked, self._read = {}, self.engine.counts.prompt_tokens
        version = self.engine.version() + 1
        self.engine.set_params(policy.params, version, policy.adapters)
        self.challenger = "policy" if challenger is None else CHALLENGER
        if challenger is not None:
            self.engine.set_params(challenger.params, version, challenger.adapters, policy=CHALLENGER)
        if reference is not None:
            self.engine.set_params(reference.params, 0, reference.adapters, policy=REFERENCE)

    def leave(self, initial_params: Params) -> None:
        """Releases the policy's weights so that the next update does not hold two copies."""
        release(self.engine, dict.fromkeys(("policy", self.challenger)), initial_params)

    def prompt_tokens(self) -> dict[str, float]:
        """Returns prompt tokens of the iteration so far: those that this host has prefilled, and the distinct ones.

        Distinct are those left if every shared prefix is read once for each role asked.
        """
        prefilled = self.engine.counts.prompt_tokens - self._read
        distinct = sum(distinct_tokens(prompts) for prompts in self.asked.values())
        return {"prompt_tokens/prefilled": float(prefilled), "prompt_tokens/distinct": float(distinct)}

    def write(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        *,
        seed: Callable[[int, int], int],
        longest: int,
        queries: bool = False,
        judge: SamplingConfig | None = None,
    ) -> list[list[Reply]]:
        """Returns n replies to every prompt, without white space at both ends; equal prompts in a row are read once.

        Prompts are tokens, each with room for a reply of `longest` tokens; `seed` is a function of (prompt, reply).
        With `queries` the Challenger is asked, else the Solver; with `judge` the reference, which samples as it says.
        """
        if not prompts:
            return []
        who = REFERENCE if judge is not None else self.challenger if queries else "policy"
        self.asked.setdefault(who, []).extend(prompts)
        found = self.ask(prompts, n, seed=seed, longest=longest, policy=who, sampling=judge)
        return [[dataclasses.replace(reply, text=reply.text.strip()) for reply in group] for group in found]


def distinct_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Returns how many tokens prompts have if what several begin with counts once.

    >>> distinct_tokens([[1, 2, 3], [1, 2, 4], [1, 2, 3], [5]])
    5
    """
    found = 0
    before: list[int] = []
    for prompt in sorted(map(list, prompts)):
        found += len(prompt) - in_common(before, prompt)
        before = prompt
    return found
