"""Configuration of tournaments."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Literal

from dfc.config.ranges import Count
from dfc.config.run import PlayersRunConfig
from dfc.config.sections import MeshConfig, SamplingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(PlayersRunConfig, recipe="evaluate", module="stages.evaluate"):
    """A tournament: every policy alone and against every other one, on the same deals.

    Attributes:
      policies: who plays, each ``NAME=PLAYER`` or ``PLAYER``: ``random_legal``, ``simple``, ``strong``, a folder with
        weights or a run, ``tiny_player``, or ``http://HOST/v1#MODEL``; also as A,B,C.
      mesh: how devices are laid out.
      dtype: the type weights are computed with and kept in.
      sampling: how tokens of models are sampled.
      enable_thinking: passed to the chat templates of models, by name of the policy (or ``simulators``); a policy not
        named has what its run was trained with (`ModelConfig.enable_thinking`), or its template's own default.
      seeds: deals per game; each is played alone, or twice by every pair of policies with seats swapped (paper: 20).
      anchor: the policy rated 0; empty: the mean of all is 0.
      trained: the policy in the place of the paper's Qwen2.5 (DFC-MSRL) in its tables; empty: the first one.
      base: in the place of Qwen2.5; empty: the second one.
      reference: in the place of Claude3.5; empty: the third one.
    """

    shorter: ClassVar[tuple[str, ...]] = ("seeds", "games", "policies", "rollout.max_reply_length")

    policies: tuple[str, ...] = ()
    mesh: MeshConfig = MeshConfig()
    dtype: Literal["float32", "bfloat16"] = "float32"
    sampling: SamplingConfig = SamplingConfig()
    enable_thinking: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    seeds: Count = 20
    anchor: str = ""
    trained: str = ""
    base: str = ""
    reference: str = ""
