"""Restricts a reply to a given set, such as the spellings of the legal actions, one token at a time.

The replies form a trie: a node is what has been written so far, its edges are the tokens that may come next. Nodes with
the same future are one node, so many actions with the same ending cost little. On the host a `Position` walks it; for
the device `pack` lays the tries of a batch into one table, which `allowed` and `advance` read inside a decode loop.
Every token is sampled from the model's distribution over the allowed tokens, renormalised at every step; tokens that
follow without a choice have probability 1.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

_END = -1  # where a reply's last token leads
_PADDING = -1
_SHOWN = 80  # characters of an action in an error


@dataclasses.dataclass(frozen=True)
class ActionTrie:
    """The replies that are allowed; make one with `build`.

    Attributes:
      nodes: per node the tokens that may come next, ascending, each with the node it leads to (-1: the reply is
        complete). Node 0 is the empty reply.
    """

    nodes: tuple[tuple[tuple[int, int], ...], ...]

    @classmethod
    def build(cls, replies: Sequence[Sequence[int]]) -> "ActionTrie":
        """Builds the trie of whole replies, end tokens included; the same reply twice counts once.

        Raises:
          ValueError: no reply, an empty one, a negative token id, or a reply that is the beginning of another, so that
            after its last token nothing says whether it continues.
        """
        distinct = sorted({tuple(int(token_id) for token_id in reply) for reply in replies})
        if not distinct:
            raise ValueError("expected at least one reply, got none: a game that is over has no action to choose from")
        if not distinct[0]:
            raise ValueError(
                "expected replies of at least one token, got an empty one: let every reply end with an end token"
            )
        children: list[dict[int, int]] = [{}]
        for reply in distinct:
            if min(reply) < 0:
                raise ValueError(f"expected token ids of 0 or more, got {list(reply)}")
            node = 0
            for token_id in reply[:-1]:
                following = children[node].setdefault(token_id, len(children))
                # In sorted order the shorter of two such replies comes first.
                if following == _END:
                    raise ValueError(
                        f"one reply is the beginning of another, {list(reply)}: let every reply end with an end token, "
                        "which tells them apart"
                    )
                if following == len(children):
                    children.append({})
                node = following
            children[node][reply[-1]] = _END
        return cls(_shared(children))

    def after(self, token_ids: Sequence[int]) -> "Position":
        """Returns where the first tokens of a reply lead; see `Position.after`."""
        return Position(self, 0).after(token_ids)


@dataclasses.dataclass(frozen=True)
class Position:
    """A place in a trie: how a reply that has begun may continue.

    Attributes:
      trie: the replies.
      node: which of its nodes; -1 after the last token of a reply.
    """

    trie: ActionTrie
    node: int

    @property
    def complete(self) -> bool:
        """Whether the reply has its last token."""
        return self.node == _END

    @property
    def choices(self) -> tuple[int, ...]:
        """The tokens that may come next, ascending; none after the last."""
        return () if self.complete else tuple(token_id for token_id, _ in self.trie.nodes[self.node])

    def after(self, token_ids: Sequence[int]) -> "Position":
        """Returns where some more tokens lead.

        Raises:
          ValueError: a token that no reply has at this place.
        """
        position = self
        for token_id in token_ids:
            edges = {} if position.complete else dict(position.trie.nodes[position.node])
            if token_id not in edges:
                raise ValueError(
                    f"expected one of {list(position.choices)} next, got token {token_id} of {list(token_ids)}"
                )
            position = Position(position.trie, edges[token_id])
        return position


@dataclasses.dataclass(frozen=True)
class PackedTries:
    """The tries of a batch in one table.

    Attributes:
      token_ids: int32 [N, M], the tokens that may follow each node; -1 is padding.
      nodes: int32 [N, M], the node each of them leads to; -1 after a reply's last token.
      start: int32 [B], where each row stands; -1 for a row without constraint.
    """

    token_ids: np.ndarray
    nodes: np.ndarray
    start: np.ndarray


def action_replies(
    actions: Sequence[str], encode: Callable[[str], Sequence[int]], end_token_ids: Sequence[int]
) -> list[list[int]]:
    """Returns the tokens of every reply that is just an action: its text, then an end token; one reply per end token.

    An action is tokenized in the tokenizer's one way; other tokens of the same text are no reply. `encode` adds no end
    token (`dfc.models.chat.ChatTokenizer.encode_reply`). Of `end_token_ids`, the tokenizer's first one keeps it to what
    its chat template writes.

    Raises:
      ValueError: no end token, or an action without tokens.
    """
    if not end_token_ids:
        raise ValueError("expected at least one end token, got none: give the tokenizer's end_token_ids")
    replies = []
    for action in actions:
        token_ids = list(encode(action))
        if not token_ids:
            raise ValueError(f"the action {action!r} has no tokens: every action needs a text the tokenizer can encode")
        replies += [[*token_ids, end_token_id] for end_token_id in end_token_ids]
    return replies


def cut_reply(
    actions: Sequence[str],
    encode: Callable[[str], Sequence[int]],
    decode: Callable[[Sequence[int]], str],
    *,
    limit: int,
    stop: Sequence[str] = (),
) -> str | None:
    """Returns why one of some actions cannot be written to its end, as a text that follows its name; None if all can.

    The end token needs no room: an action that fills the reply is whole. `encode` (without an end token) and `decode`
    are e.g. `encode_reply` and `decode` of `dfc.models.chat.ChatTokenizer`. A reply has at most `limit` tokens, and
    ends with the first token whose text completes a string of `stop`.
    """
    spelled = [(action, list(encode(action))) for action in actions]
    longest, token_ids = max(spelled, key=lambda pair: len(pair[1]), default=("", []))
    if len(token_ids) > limit:
        return f"the legal action {_shown(longest)} takes {len(token_ids)} tokens, and a reply has {limit} at most"
    for action, token_ids in spelled if stop else ():
        begun = decode(token_ids[:-1]) if any(string in action for string in stop) else ""
        found = next((string for string in stop if string in begun), None)
        if found is not None:
            return f"the legal action {_shown(action)} holds the stop string {found!r} before its last token"
    return None


def pack(rows: Sequence[ActionTrie | Position | None], *, least_nodes: int = 1, least_choices: int = 1) -> PackedTries:
    """Lays the tries of a batch into one table; equal tries share their nodes.

    Both sides of the table are rounded up to powers of two, so that programs see few shapes.

    Args:
      rows: per row where its reply stands (a trie: at its beginning); None for a row without constraint.
      least_nodes: the smallest number of nodes the table may have, before it is rounded up.
      least_choices: the same of its width.

    Raises:
      ValueError: a row whose reply is complete.
    """
    offsets: dict[ActionTrie, int] = {}
    table: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    start = np.full(len(rows), -1, np.int32)
    for row, given in enumerate(rows):
        if given is None:
            continue
        position = given if isinstance(given, Position) else Position(given, 0)
        if position.complete:
            raise ValueError(f"row {row}: its reply is complete already, nothing can follow; close it first")
        offset = offsets.setdefault(position.trie, len(table))
        if offset == len(table):
            table += [(offset, edges) for edges in position.trie.nodes]
        start[row] = offset + position.node
    shape = (
        _power_of_two(max(least_nodes, len(table))),
        _power_of_two(max([least_choices, *(len(edges) for _, edges in table)])),
    )
    token_ids, nodes = np.full(shape, _PADDING, np.int32), np.full(shape, _END, np.int32)
    for node, (offset, edges) in enumerate(table):
        for column, (token_id, following) in enumerate(edges):
            token_ids[node, column] = token_id
            nodes[node, column] = _END if following == _END else offset + following
    return PackedTries(token_ids, nodes, start)


def allowed(token_ids: jax.Array, node: jax.Array, vocabulary: int) -> jax.Array:
    """Returns which tokens may come next, bool [B, vocabulary]; all of them in a row without constraint.

    Args:
      token_ids: `PackedTries.token_ids`, int32 [N, M].
      node: where each row stands, int32 [B]; -1 without constraint.
      vocabulary: number of token ids (static), more than any token id of the tries.
    """
    choices = jnp.asarray(token_ids)[jnp.maximum(node, 0)]
    # A negative index would count from the end, one beyond the end is dropped.
    columns = jnp.where(choices == _PADDING, jnp.int32(vocabulary), choices)
    rows = jnp.arange(len(node), dtype=jnp.int32)[:, None]
    found = jnp.zeros((len(node), vocabulary), bool).at[rows, columns].set(True, mode="drop")
    return found | (node < 0)[:, None]


def advance(token_ids: jax.Array, nodes: jax.Array, node: jax.Array, sampled: jax.Array) -> jax.Array:
    """Returns where each row stands after the token it sampled, int32 [B]; -1 after a reply's last token.

    Args:
      token_ids: `PackedTries.token_ids`, int32 [N, M].
      nodes: `PackedTries.nodes`, int32 [N, M].
      node: where each row stood, int32 [B]; -1 (no constraint) stays.
      sampled: the token each row sampled, int32 [B], an allowed one.
    """
    row = jnp.maximum(node, 0)
    taken = jnp.asarray(token_ids)[row] == sampled[:, None]
    following = jnp.max(jnp.where(taken, jnp.asarray(nodes)[row], jnp.int32(_END)), axis=-1)
    return jnp.where(node < 0, jnp.int32(_END), following)


def _shared(children: list[dict[int, int]]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Returns the nodes of a tree with equal futures made one; a parent comes before its children, in and out."""
    known: dict[tuple[tuple[int, int], ...], int] = {}
    unique = {_END: _END}
    for node in range(len(children) - 1, -1, -1):
        edges = tuple(sorted((token_id, unique[following]) for token_id, following in children[node].items()))
        unique[node] = known.setdefault(edges, len(known))
    last = len(known) - 1  # the root was visited last; counted from the other end it is node 0
    return tuple(
        tuple((token_id, _END if following == _END else last - following) for token_id, following in edges)
        for edges in reversed(known)
    )


def _shown(action: str) -> str:
    """Returns an action as an error names it, of bounded length."""
    return repr(action if len(action) <= _SHOWN else f"{action[:_SHOWN]}...")


def _power_of_two(number: int) -> int:
    """Returns the smallest power of two that is not below a number of 1 or more."""
    return 1 << (number - 1).bit_length()
