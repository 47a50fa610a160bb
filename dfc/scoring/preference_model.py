"""Rewards from a model of preferences: a decoder with one score per conversation, such as Skywork-Reward-V2.

Read are folders of `LlamaForSequenceClassification`, Qwen2's and Qwen3's with one label. A conversation is the query as
a user's message and the answer as the reply, through the folder's own chat template, once: a beginning of text that the
template writes is not written again. The score is that of the last token, as transformers has it. Several
conversations share a row, each its own segment. It samples nothing, so it is a program of its own beside the decoding
engine.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dfc.errors import ConfigError, WeightsError, shown
from dfc.models import families, hf_architectures, huggingface, model_folders
from dfc.models.chat import ChatTokenizer
from dfc.models.config import DecoderConfig
from dfc.models.execution import Execution
from dfc.models.sharding import batch_sharding
from dfc.models.transformer import Params, bind
from dfc.packing import Layout, Segment, fill, lay_out
from dfc.samples import TokenBatch
from dfc.scoring.scorer import LONGEST_ANSWER, Scores, checked_pairs, scores_of

LEAST_PLACES = 8  # scores of a row, at least: programs see few shapes
_SCORING = [name for name, family in hf_architectures.FAMILIES.items() if family.scores]


def problems(path: str) -> list[str]:
    """Returns why a path for `huggingface.resolve` is no supported model of preferences; reads its config.json only."""
    try:
        folder = huggingface.resolve(path, weights=False)
        said = model_folders.read_json(folder / model_folders.CONFIG)
    except (WeightsError, OSError) as error:
        return [str(error)]
    return _kind_problems(path, said)


def _kind_problems(path: str, said: Mapping[str, Any]) -> list[str]:
    named = said.get("architectures")
    name = named[0] if isinstance(named, list) and named else None
    if name not in _SCORING:
        return [f"{path}: is {shown(name)}; a supported model of preferences is one of {', '.join(_SCORING)}"]
    try:
        config = families.from_config_json(dict(said))
    except WeightsError as error:
        return [f"{path}: {error}"]
    if config.labels != 1:
        return [f"{path}: gives {config.labels} scores; a model of preferences has one label (num_labels)"]
    return []


class PreferenceModel:
    """Scores answers by a model of preferences; a scorer (`dfc.scoring.scorer.Scorer`).

    Args:
      path: the model's folder, as `dfc.models.huggingface.resolve` takes it.
      mesh: the devices, as `dfc.models.sharding.make_mesh` gives them; None: the first one.
      dtype: ``float32`` or ``bfloat16``, computed with.
      row_length: tokens of a row; a longer conversation cannot be scored.
      rows: of one call; a multiple of the mesh's data times fsdp devices.

    Raises:
      ConfigError: the folder is none of these models, or has several labels.
      WeightsError: the weights or the chat template cannot be used.
    """

    def __init__(
        self,
        path: str,
        *,
        mesh: jax.sharding.Mesh | None = None,
        dtype: str = "float32",
        row_length: int = 2048,
        rows: int = 8,
    ) -> None:
        if found := problems(path):
            raise ConfigError(found)
        share = 1 if mesh is None else mesh.shape["data"] * mesh.shape["fsdp"]
        if rows % share:
            raise ConfigError([f"rows={rows}: must be a multiple of {share}, the devices they are split over"])
        folder = huggingface.resolve(path)
        self._config, self._params = huggingface.load(folder, mesh=mesh, dtype=dtype)
        # A whole conversation is scored; the setting of templates concerns only the prompt of a reply to come.
        self._tokenizer = ChatTokenizer.load(folder, enable_thinking=None)
        self._mesh, self._row_length, self._rows = mesh, row_length, rows
        self._forward = forward(self._config, mesh)

    def token_ids(self, query: str, answer: str) -> list[int]:
        """Returns the tokens that are scored for an answer."""
        return self._tokenizer.closed_turn(query, answer)

    def __call__(self, queries: Sequence[str], answers: Sequence[str]) -> Scores:
        """Returns the model's scores, as they are; an answer whose conversation fits no row cannot be scored."""
        pairs = checked_pairs(queries, answers)
        found: list[tuple[float | None, str]] = [(None, "too_long")] * len(pairs)
        kept, segments = [], []
        for place, (query, answer) in enumerate(pairs):
            # What is far longer than any row is not even tokenized.
            tokens = self.token_ids(query, answer) if len(query) + len(answer) <= LONGEST_ANSWER else None
            if tokens is not None and len(tokens) <= self._row_length:
                kept.append(place)
                segments.append(Segment(np.asarray(tokens, np.int32), np.ones(len(tokens), bool)))
        for layout in lay_out([len(one.token_ids) for one in segments], self._row_length, self._rows):
            for unit, score in self._computed(layout, segments).items():
                found[kept[unit]] = (score, "scored") if np.isfinite(score) else (None, "not_finite")
        return scores_of(found)

    def _computed(self, layout: Layout, segments: Sequence[Segment]) -> dict[int, float]:
        """Returns the scores of a call, by unit."""
        batch = fill(layout, lambda unit: [segments[unit]])
        most = max(map(len, layout.rows))
        ends = np.zeros((len(layout.rows), max(LEAST_PLACES, 1 << (most - 1).bit_length())), np.int32)
        for row, units in enumerate(layout.rows):
            lengths = [len(segments[unit].token_ids) for unit in units]
            ends[row, : len(units)] = np.cumsum(lengths) - 1
        scores = np.asarray(self._forward(self._params, *map(self._placed, _inputs(batch)), self._placed(ends)))
        return {
            unit: float(scores[row, place]) for row, units in enumerate(layout.rows) for place, unit in enumerate(units)
        }

    def _placed(self, array: np.ndarray) -> jax.Array:
        if self._mesh is None:
            return jnp.asarray(array)
        return jax.make_array_from_callback(array.shape, batch_sharding(self._mesh), array.__getitem__)


def _inputs(batch: TokenBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return batch.tokens, batch.positions, batch.segments


def forward(config: DecoderConfig, mesh: jax.sharding.Mesh | None) -> Any:  # noqa: ANN401 - a jitted function
    """Returns the program that scores: (weights, tokens, positions, segments [B, T], ends [B, S]) -> float32 [B, S]."""
    return jax.jit(functools.partial(_scores, config, Execution(mesh=mesh)))


def _scores(
    config: DecoderConfig,
    execution: Execution,
    params: Params,
    tokens: jax.Array,
    positions: jax.Array,
    segments: jax.Array,
    ends: jax.Array,
) -> jax.Array:
    """Returns the scores float32 [B, S] at positions `ends` [B, S] of packed rows [B, T]."""
    model = bind(config, params, None, execution)
    hidden = model(tokens, positions, segments)
    last = jnp.take_along_axis(hidden, ends[:, :, None], axis=1)
    flat = last.reshape(-1, 1, last.shape[-1])
    return model.scores(flat, jnp.zeros(flat.shape[0], jnp.int32)).reshape(ends.shape)
