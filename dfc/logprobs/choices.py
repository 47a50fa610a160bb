"""Log-probabilities of tokens that were chosen among few, from the rows of the output embedding of those few.

A batch is as wide as its widest set of choices, and most sets are small. Where all fits, padding is projected with
them. Otherwise a loop runs over the pairs of a token and one of its choices, in the order of the tokens: it finds the
token of a pair among running totals of the sets' sizes, so that no more rows are gathered than there are choices.

Where devices share the tokens or the vocabulary, each runs the loop over the pairs of its own tokens, and takes those
whose choice is among its own rows. In the loop no device waits for another; they add up products, and gradients, once.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from dfc.logprobs.inputs import checked, logits_of

_WHOLE = 1 << 24  # numbers of the embedding up to which the rows of all places are gathered at once
_GATHERED = 1 << 20  # numbers of the embedding that are gathered at a time in a loop
_State = TypeVar("_State")
_Result = TypeVar("_Result")


def constrained_logprobs(
    hidden: jax.Array,
    output_embedding: jax.Array,
    targets: jax.Array,
    choices: jax.Array,
    *,
    token_shards: int = 1,
    vocab_shards: int = 1,
    temperature: float = 1.0,
    soft_cap: float | None = None,
) -> jax.Array:
    """Log-probability of one target per token where only some tokens could be chosen.

    With l as in `token_logprobs` and C the choices of a token::

        logprob[n] = l[n, targets[n]] - log sum_{v in C[n]} exp(l[n, v])

    Products, sums and results are float32, whatever the inputs are. Gradients (reverse mode) flow into `hidden` and
    `output_embedding`, through choices alone; both are summed in float32 and cast at the end.

    Beside arguments and results a device holds a few float32 arrays of the shape of its `choices`; of its rows of the
    embedding 64 MiB in float32 or less at a time, not more than are in `choices`; for the gradient, float32 arrays of
    the shapes of its hidden states and of its rows of the embedding; and, where devices split the tokens, its rows of
    the embedding in full width.

    Args:
      hidden: floating [tokens, width], the final hidden states; a batch is flattened first.
      output_embedding: floating [vocabulary, width].
      targets: int [tokens], each one of its choices; another gives NaN, which a loss ignores where its mask is 0.
      choices: int [tokens, choices], distinct token ids in any order, then padding below 0. A token without any choice
        gets 0, and no gradient; one with a choice outside the vocabulary NaN. One that is there twice counts twice.
        Fewer than 2^31 places.
      token_shards: number of devices the token axis is split over, in equal shares. Each then works on its own tokens,
        and they sum up their gradients of the embedding once. Another number gives the same result, but devices send
        each other hidden states.
      vocab_shards: number of devices the vocabulary axis of `output_embedding` is split over; divides the vocabulary.
        Each then works on its own rows of it, and they sum up their products, [tokens, choices], once. Another number
        gives the same result, but devices send each other rows.
      temperature: above 0; that of sampling.
      soft_cap: above 0, or None.

    Returns:
      float32 [tokens].

    Raises:
      ValueError: shapes, types or numbers do not fit.

    >>> embedding = jnp.log(jnp.asarray([[1.0], [3.0], [5.0]]))
    >>> found = constrained_logprobs(jnp.ones((1, 1)), embedding, jnp.asarray([1]), jnp.asarray([[0, 1]]))
    >>> round(float(jnp.exp(found[0])), 4)
    0.75
    """
    where, counts = "constrained_logprobs", {"token_shards": token_shards, "vocab_shards": vocab_shards}
    hidden, embedding, targets = checked(where, hidden, output_embedding, targets, {**counts}, temperature, soft_cap)
    tokens, width = hidden.shape
    if choices.shape[:1] != (tokens,) or choices.ndim != 2 or not choices.shape[1] or choices.dtype.kind not in "iu":
        raise ValueError(
            f"{where}: choices must be int [tokens, choices] = [{tokens}, 1 or more], got {choices.dtype}"
            f" {list(choices.shape)}; a token without choices has a row of -1"
        )
    choices = choices.astype(jnp.int32)
    if token_shards == vocab_shards == 1 and choices.size * width <= _WHOLE:
        found = _at_once(hidden, embedding, targets, choices, temperature, soft_cap)
    else:
        projections = _in_a_loop(hidden, embedding, choices, token_shards, vocab_shards)
        found = _among(projections, targets, choices, temperature, soft_cap)
    given = choices >= 0
    valid = (given & (choices == targets[:, None])).any(axis=1) & (choices < embedding.shape[0]).all(axis=1)
    return jnp.where(choices[:, 0] >= 0, jnp.where(valid, found, jnp.nan), 0)


def _among(
    projections: jax.Array, targets: jax.Array, choices: jax.Array, temperature: float, soft_cap: float | None
) -> jax.Array:
    """Log-probabilities from projections to the choices, float32 [tokens, choices]."""
    logits = logits_of(projections, temperature, soft_cap)
    given = (choices >= 0) | (choices[:, :1] < 0)  # without any choice all places count: no infinity, no NaN
    chosen = jnp.where(choices == targets[:, None], logits, 0).sum(axis=1)
    return chosen - jax.nn.logsumexp(logits, axis=1, where=given)


@functools.partial(jax.checkpoint, static_argnums=(4, 5))  # the rows that are gathered are gathered again, not kept
def _at_once(
    hidden: jax.Array,
    embedding: jax.Array,
    targets: jax.Array,
    choices: jax.Array,
    temperature: float,
    soft_cap: float | None,
) -> jax.Array:
    """The same from the hidden states, with the rows of all choices at once."""
    rows = _rows(embedding, jnp.maximum(choices, 0))
    projections = jnp.einsum("nd,nmd->nm", hidden, rows, preferred_element_type=jnp.float32)
    return _among(projections, targets, choices, temperature, soft_cap)


@jax.custom_vjp
def _rows(embedding: jax.Array, token_ids: jax.Array) -> jax.Array:
    """Rows of the embedding, whose gradients are summed in float32."""
    return _rows_saving(embedding, token_ids)[0]


def _rows_saving(embedding: jax.Array, token_ids: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return embedding[token_ids], (token_ids, embedding[:, :0])


def _rows_backward(residuals: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, None]:
    token_ids, like = residuals
    start = jnp.zeros((like.shape[0], gradient.shape[-1]), jnp.float32)
    return start.at[token_ids].add(gradient.astype(jnp.float32)).astype(like.dtype), None


_rows.defvjp(_rows_saving, _rows_backward)


def _in_a_loop(
    hidden: jax.Array, embedding: jax.Array, choices: jax.Array, token_shards: int, vocab_shards: int
) -> jax.Array:
    """The same, some rows of the embedding at a time, and 0 where there is no choice."""
    (tokens, width), most = hidden.shape, choices.shape[1]
    share = -(-tokens // token_shards)
    missing = ((0, share * token_shards - tokens), (0, 0))
    found = _by_pairs(
        jnp.pad(hidden, missing).reshape(token_shards, share, width),
        embedding.reshape(vocab_shards, embedding.shape[0] // vocab_shards, width),
        jnp.pad(choices, missing, constant_values=-1).reshape(token_shards, share, most),
    )
    return found.reshape(-1, most)[:tokens]


class _Pairs(NamedTuple):
    """Some pairs of a token and one of its choices as one device sees them, int32 [pairs] each."""

    token: jax.Array  # its place among the device's tokens; past their end where there is no pair
    column: jax.Array  # the place of the choice
    row: jax.Array  # its place among the device's rows of the embedding; past their end if it is not among them


class _Loop(NamedTuple):
    """Pairs in the order of the tokens, `size` at a time, as often as the shard that has most of them needs."""

    size: int
    rows: int  # of the embedding, on a device
    turns: jax.Array  # int32
    ends: jax.Array  # int32 [token shards, tokens], the number of pairs up to those of a token

    @classmethod
    def over(cls, choices: jax.Array, rows: int, width: int) -> "_Loop":
        """Over choices [token shards, tokens, choices]."""
        _, tokens, most = choices.shape
        columns = jnp.arange(1, most + 1, dtype=jnp.int32)[None, None]
        ends = jnp.cumsum(jnp.where(choices >= 0, columns, 0).max(axis=2), axis=1)
        size = max(1, min(tokens * most, _GATHERED // width))
        return cls(size, rows, (ends[:, -1:].max(initial=0) + (size - 1)) // size, ends)

    def pairs(self, turn: jax.Array, ends: jax.Array, choices: jax.Array, first: jax.Array) -> _Pairs:
        """Those of one turn, on the device whose rows of the embedding are those from `first` on."""
        number = turn * self.size + jnp.arange(self.size, dtype=jnp.int32)
        token = jnp.searchsorted(ends, number, side="right", method="scan_unrolled").astype(jnp.int32)
        column = number - jnp.where(token > 0, ends[token - 1], 0)
        token_id = choices.at[token, column].get(mode="fill", fill_value=-1)
        here = (token_id >= 0) & (token_id >= first) & (token_id < first + self.rows)
        return _Pairs(token, column, jnp.where(here, token_id - first, self.rows))


_Sums = tuple[jax.Array, jax.Array]  # of gradients of the hidden states and of the embedding


@jax.custom_vjp
def _by_pairs(hidden: jax.Array, embedding: jax.Array, choices: jax.Array) -> jax.Array:
    """Projections float32 [token shards, tokens, choices]; the first axis of every argument is that of its shards."""
    return _by_pairs_saving(hidden, embedding, choices)[0]


def _by_pairs_saving(
    hidden: jax.Array, embedding: jax.Array, choices: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    (token_shards, tokens, width), (vocab_shards, rows, _), most = hidden.shape, embedding.shape, choices.shape[2]
    loop = _Loop.over(choices, rows, width)
    # With an axis for the devices that share the tokens: if they share the width of the embedding too, each is sent the
    # rest of its rows here, once. Otherwise the partitioner has them send parts of rows in every turn of the loop.
    embedding = jnp.broadcast_to(embedding[None], (token_shards, *embedding.shape))

    def one_turn(turn: jax.Array, products: jax.Array) -> jax.Array:
        def on_one_device(of_tokens: tuple[jax.Array, ...], of_rows: tuple[jax.Array, ...], _: None) -> jax.Array:
            hidden, ends, choices = of_tokens
            embedding, first = of_rows
            pairs = loop.pairs(turn, ends, choices, first)
            both = hidden[pairs.token].astype(jnp.float32) * embedding[pairs.row].astype(jnp.float32)
            return jnp.where(pairs.row < rows, both.sum(axis=1), 0)

        part = _everywhere(on_one_device)((hidden, loop.ends, choices), (embedding, _firsts(embedding)), None)
        return jax.lax.dynamic_update_slice_in_dim(products, part, turn * loop.size, axis=2)

    length = loop.size * max(1, -(-tokens * most // loop.size))
    products = jnp.zeros((token_shards, vocab_shards, length), jnp.float32)
    products = jax.lax.fori_loop(0, loop.turns, one_turn, products).sum(axis=1)
    begins = jnp.pad(loop.ends[:, :-1], ((0, 0), (1, 0)))
    numbers = begins[..., None] + jnp.arange(most, dtype=jnp.int32)[None, None]
    found = jax.vmap(lambda products, numbers: products.at[numbers].get(mode="clip"))(products, numbers)
    return jnp.where(choices >= 0, found, 0), (hidden, embedding, choices)


def _by_pairs_backward(residuals: tuple[jax.Array, ...], gradient: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    hidden, embedding, choices = residuals
    (_, tokens, width), rows = hidden.shape, embedding.shape[2]
    loop = _Loop.over(choices, rows, width)

    def one_turn(turn: jax.Array, sums: _Sums) -> _Sums:
        def on_one_device(of_tokens: tuple[jax.Array, ...], of_rows: tuple[jax.Array, ...], sums: _Sums) -> _Sums:
            hidden, ends, choices, gradient = of_tokens
            embedding, first = of_rows
            pairs = loop.pairs(turn, ends, choices, first)
            weights = gradient[pairs.token, pairs.column][:, None]
            token = jnp.where(pairs.row < rows, pairs.token, tokens)
            return (
                sums[0].at[token].add(weights * embedding[pairs.row].astype(jnp.float32), mode="drop"),
                sums[1].at[pairs.row].add(weights * hidden[pairs.token].astype(jnp.float32), mode="drop"),
            )

        of_tokens = hidden, loop.ends, choices, gradient
        return _everywhere(on_one_device)(of_tokens, (embedding, _firsts(embedding)), sums)

    shards = embedding.shape[:2]
    sums = jnp.zeros((*shards, tokens, width), jnp.float32), jnp.zeros((*shards, rows, width), jnp.float32)
    hidden_gradient, embedding_gradient = jax.lax.fori_loop(0, loop.turns, one_turn, sums)
    return (
        hidden_gradient.sum(axis=1).astype(hidden.dtype),
        embedding_gradient.sum(axis=0).astype(embedding.dtype),
        None,
    )


_by_pairs.defvjp(_by_pairs_saving, _by_pairs_backward)


def _firsts(embedding: jax.Array) -> jax.Array:
    """Int32 [vocabulary shards], the first id of each; embedding [token shards, vocabulary shards, rows, width]."""
    return embedding.shape[2] * jnp.arange(embedding.shape[1], dtype=jnp.int32)


def _everywhere(
    on_one_device: Callable[[tuple[jax.Array, ...], tuple[jax.Array, ...], _State], _Result],
) -> Callable[[tuple[jax.Array, ...], tuple[jax.Array, ...], _State], _Result]:
    """Maps over devices: the first axis of what belongs to tokens, and the first two of the others."""
    # The second of what belongs to rows, their first id, is the same for all shards of the tokens.
    return jax.vmap(jax.vmap(on_one_device, in_axes=(None, 0, 0)), in_axes=(0, (0, None), 0))
