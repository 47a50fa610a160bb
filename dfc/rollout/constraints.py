"""Restricts a reply to a given set, such as the spellings of the legal actions, one id at a time.

The replies form a trie: a node is what has been written so far, its edges are the ids that may come next. Nodes with
the same future are one node, so many actions with the same ending cost little. On the host a `Position` walks it; for
the device `pack` lays the tries of a batch into one table, which `allowed` and `advance` read inside a decode loop.
Every id is drawn from the model's distribution over the allowed ids, renormalised at every step; ids that follow
without a choice have probability 1.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

_END = -1  # where a reply's last id leads
_PADDING = -1
_SHOWN = 80  # characters of an action in an error


@dataclasses.dataclass(frozen=True)
class ActionTrie:
    """The replies that are allowed; make one with `build`.

    Attributes:
      nodes: per node the ids that may come next, ascending, each with the node it leads to (-1: the reply is
        complete). Node 0 is the empty reply.
    """

    nodes: tuple[tuple[tuple[int, int], ...], ...]

    @classmethod
    def build(cls, replies: Sequence[Sequence[int]]) -> "ActionTrie":
        """Builds the trie of some replies; the same reply twice counts once.

        Args:
          replies: ids of each whole reply, its end id included.

        Raises:
          ValueError: no reply, an empty one, a negative id, or a reply that is the beginning of another, so that
            after its last id nothing says whether it goes on.
        """
        distinct = sorted({tuple(int(id_) for id_ in reply) for reply in replies})
        if not distinct:
            raise ValueError("expected at least one reply, got none: a game that is over has no action to choose from")
        if not distinct[0]:
            raise ValueError(
                "expected replies of at least one id, got an empty one: let every reply end with an end id"
            )
        children: list[dict[int, int]] = [{}]
        for reply in distinct:
            if min(reply) < 0:
                raise ValueError(f"expected ids of 0 or more, got {list(reply)}")
            node = 0
            for id_ in reply[:-1]:
                following = children[node].setdefault(id_, len(children))
                # In sorted order the shorter of two such replies comes first.
                if following == _END:
                    raise ValueError(
                        f"one reply is the beginning of another, {list(reply)}: let every reply end with an end id, "
                        "which tells them apart"
                    )
                if following == len(children):
                    children.append({})
                node = following
            children[node][reply[-1]] = _END
        return cls(_shared(children))

    def after(self, ids: Sequence[int]) -> "Position":
        """Returns where the first ids of a reply lead; see `Position.after`."""
        return Position(self, 0).after(ids)


@dataclasses.dataclass(frozen=True)
class Position:
    """A place in a trie: what a reply that has begun may still become.

    Attributes:
      trie: the replies.
      node: which of its nodes; -1 after the last id of a reply.
    """

    trie: ActionTrie
    node: int

    @property
    def complete(self) -> bool:
        """Whether the reply has its last id."""
        return self.node == _END

    @property
    def choices(self) -> tuple[int, ...]:
        """The ids that may come next, ascending; none after the last."""
        return () if self.complete else tuple(id_ for id_, _ in self.trie.nodes[self.node])

    def after(self, ids: Sequence[int]) -> "Position":
        """Returns where some more ids lead.

        Raises:
          ValueError: an id that no reply has at this place.
        """
        position = self
        for id_ in ids:
            edges = {} if position.complete else dict(position.trie.nodes[position.node])
            if id_ not in edges:
                raise ValueError(f"expected one of {list(position.choices)} next, got id {id_} of {list(ids)}")
            position = Position(position.trie, edges[id_])
        return position


@dataclasses.dataclass(frozen=True)
class PackedTries:
    """The tries of a batch in one table.

    Attributes:
      ids: int32 [N, M], the ids that may follow each node; -1 is padding.
      nodes: int32 [N, M], the node each of them leads to; -1 after a reply's last id.
      start: int32 [B], where each row stands; -1 for a row without constraint.
    """

    ids: np.ndarray
    nodes: np.ndarray
    start: np.ndarray


def action_replies(
    actions: Sequence[str], encode: Callable[[str], Sequence[int]], end_ids: Sequence[int]
) -> list[list[int]]:
    """Returns the ids of every reply that is just an action: its text, then an end id; one reply per end id.

    An action is spelled in the one way the tokenizer spells it; other ids of the same text are no reply.

    Args:
      actions: texts, e.g. a game's `legal_actions()`.
      encode: text to ids without an end id, e.g. `dfc.models.chat.ChatTokenizer.encode_reply`.
      end_ids: the ids that may end a reply; the tokenizer's first one keeps it to what its chat template writes.

    Raises:
      ValueError: no end id, or an action without ids.
    """
    if not end_ids:
        raise ValueError("expected at least one end id, got none: give the tokenizer's end_ids")
    replies = []
    for action in actions:
        ids = list(encode(action))
        if not ids:
            raise ValueError(f"the action {action!r} has no ids: every action needs a text the tokenizer can spell")
        replies += [[*ids, end_id] for end_id in end_ids]
    return replies


def cut_reply(
    actions: Sequence[str],
    encode: Callable[[str], Sequence[int]],
    decode: Callable[[Sequence[int]], str],
    *,
    limit: int,
    stop: Sequence[str] = (),
) -> str | None:
    """Returns why one of some actions cannot be written to its end, in words that follow its name; None if all can.

    The end id needs no room: an action that fills the reply is whole.

    Args:
      actions: texts, e.g. a game's `legal_actions()`.
      encode: text to ids without an end id, e.g. `dfc.models.chat.ChatTokenizer.encode_reply`.
      decode: ids to text, e.g. `dfc.models.chat.ChatTokenizer.decode`.
      limit: tokens of one reply at most.
      stop: a reply ends with the first id whose text completes one of these strings.
    """
    spelled = [(action, list(encode(action))) for action in actions]
    longest, ids = max(spelled, key=lambda pair: len(pair[1]), default=("", []))
    if len(ids) > limit:
        return f"the legal action {_shown(longest)} takes {len(ids)} tokens, and a reply has {limit} at most"
    for action, ids in spelled if stop else ():
        begun = decode(ids[:-1]) if any(string in action for string in stop) else ""
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
    ids, nodes = np.full(shape, _PADDING, np.int32), np.full(shape, _END, np.int32)
    for node, (offset, edges) in enumerate(table):
        for column, (id_, following) in enumerate(edges):
            ids[node, column] = id_
            nodes[node, column] = _END if following == _END else offset + following
    return PackedTries(ids, nodes, start)


def allowed(ids: jax.Array, node: jax.Array, vocabulary: int) -> jax.Array:
    """Returns which ids may come next, bool [B, vocabulary]; all of them in a row without constraint.

    Args:
      ids: `PackedTries.ids`, int32 [N, M].
      node: where each row stands, int32 [B]; -1 without constraint.
      vocabulary: number of ids (static), more than any id of the tries.
    """
    choices = jnp.asarray(ids)[jnp.maximum(node, 0)]
    # A negative index would count from the end, one beyond the end is dropped.
    columns = jnp.where(choices == _PADDING, jnp.int32(vocabulary), choices)
    rows = jnp.arange(len(node), dtype=jnp.int32)[:, None]
    found = jnp.zeros((len(node), vocabulary), bool).at[rows, columns].set(True, mode="drop")
    return found | (node < 0)[:, None]


def advance(ids: jax.Array, nodes: jax.Array, node: jax.Array, drawn: jax.Array) -> jax.Array:
    """Returns where each row stands behind the id it drew, int32 [B]; -1 after a reply's last id.

    Args:
      ids: `PackedTries.ids`, int32 [N, M].
      nodes: `PackedTries.nodes`, int32 [N, M].
      node: where each row stood, int32 [B]; -1 (no constraint) stays.
      drawn: the id each row drew, int32 [B], an allowed one.
    """
    row = jnp.maximum(node, 0)
    taken = jnp.asarray(ids)[row] == drawn[:, None]
    following = jnp.max(jnp.where(taken, jnp.asarray(nodes)[row], jnp.int32(_END)), axis=-1)
    return jnp.where(node < 0, jnp.int32(_END), following)


def _shared(children: list[dict[int, int]]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Returns the nodes of a tree with equal futures made one; a parent comes before its children, in and out."""
    known: dict[tuple[tuple[int, int], ...], int] = {}
    unique = {_END: _END}
    for node in range(len(children) - 1, -1, -1):
        edges = tuple(sorted((id_, unique[following]) for id_, following in children[node].items()))
        unique[node] = known.setdefault(edges, len(known))
    last = len(known) - 1  # the root was met last; counted from the other end it is node 0
    return tuple(
        tuple((id_, _END if following == _END else last - following) for id_, following in edges)
        for edges in reversed(known)
    )


def _shown(action: str) -> str:
    """Returns an action as an error names it, of bounded length."""
    return repr(action if len(action) <= _SHOWN else f"{action[:_SHOWN]}...")


def _power_of_two(number: int) -> int:
    """Returns the smallest power of two that is not below a number of 1 or more."""
    return 1 << (number - 1).bit_length()
