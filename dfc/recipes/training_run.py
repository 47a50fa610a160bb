"""What a run is while it goes on: its state, what every step needs beside it, and how both survive a stop.

Resume order: 1. the run folder's streams are cut to the checkpoint's sizes; 2. weights, optimizer state, finished
group policies and past policies are read; 3. the loop goes on at the checkpoint's stage and iteration. Every random
number is derived from (seed, stage, iteration), so what follows is the same, bit for bit, as without the stop.
"""

import dataclasses
from typing import Any

import jax

from dfc.config import RunConfig
from dfc.interruption import Stop
from dfc.models.lora import LoraConfig
from dfc.models.transformer import Adapters, Params
from dfc.recipes.stages import Group
from dfc.recipes.table import Policy, Table, lora_config
from dfc.run_folder import RunFolder
from dfc.training.checkpoint import Checkpointer
from dfc.training.step import Trainer


@dataclasses.dataclass
class State:
    """What a checkpoint holds: where the run is, and the weights it needs from here on."""

    stage: int = 0
    iteration: int = 0
    steps: int = 0
    best: Params = None
    optimizer: Any = None
    policies: dict[str, Params] = dataclasses.field(default_factory=dict)  # finished group policies, not yet fused
    pool: dict[str, Params] = dataclasses.field(default_factory=dict)  # past policies, oldest first
    met: dict[str, float] = dataclasses.field(default_factory=dict)  # win rate when a past policy was last met
    win_rates: dict[str, float] = dataclasses.field(default_factory=dict)
    previous: float = 0.0
    highest: float = 0.0


_ARRAYS = ("best", "optimizer", "policies", "pool")


@dataclasses.dataclass
class Run:
    """What every step of the recipe needs beside the state."""

    config: RunConfig
    folder: RunFolder
    stop: Stop
    table: Table
    trainer: Trainer
    checkpointer: Checkpointer
    start: Params  # the initial policy as the trainer trains it
    reference: Params  # the initial policy as the trainer reads it, or None if it does not
    missed: float | None = None  # share of the last average of adapters that their rank could not hold

    @property
    def lora(self) -> LoraConfig | None:
        """What is trained instead of all weights, if it is."""
        return lora_config(self.config.adapter)

    def policy(self, trained: Params) -> Policy:
        """Returns what plays, from what is trained."""
        played = self.trainer.policy(trained)
        if self.lora is None:
            return Policy(played)
        return Policy(self.table.initial, Adapters(played, self.lora.scale))

    def save(self, state: State, groups: list[Group]) -> None:
        """Writes a checkpoint from which the run goes on exactly here."""
        arrays = {name: getattr(state, name) for name in _ARRAYS}
        progress = {
            "positions": self.folder.positions(),
            "groups": [{**dataclasses.asdict(group), "games": list(group.games)} for group in groups],
            "state": {name: value for name, value in vars(state).items() if name not in arrays},
        }
        # Increases from save to save: the end of a stage is iteration 0 of the next.
        self.checkpointer.save(state.stage * (1 << 20) + state.iteration, arrays, progress)

    def restore(self) -> tuple[State, list[Group]] | None:
        """Returns the state and groups of the newest checkpoint; without one, empties the streams and returns None."""
        restored = self.checkpointer.restore(like=lambda saved: _template(saved, self.start, self.trainer))
        if restored is None:
            self.folder.rewind(dict.fromkeys(self.folder.positions(), 0))
            return None
        self.folder.rewind(restored.progress["positions"])
        state = restored.progress["state"]
        print(f"going on behind step {state['steps']}; records after it are made again", flush=True)  # noqa: T201 - progress
        groups = [Group(**{**group, "games": tuple(group["games"])}) for group in restored.progress["groups"]]
        return State(**state, **restored.arrays), groups


def _template(saved: dict[str, Any], params: Params, trainer: Trainer) -> dict[str, Any]:
    """Returns arrays of the structure, types and placement that a checkpoint's arrays are to have."""
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), params)  # type: ignore[no-untyped-call]  # jax leaves it untyped
    return {
        "best": like,
        "optimizer": trainer.abstract_state(params),
        "policies": dict.fromkeys(saved["policies"], like),
        "pool": dict.fromkeys(saved["pool"], like),
    }
