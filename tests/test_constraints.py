"""Constrained replies against brute force: all replies enumerated, every probability computed reply by reply."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies
from scipy import stats

from dfc.config import SamplingConfig
from dfc.configs.tiny_player import GAME_IDS
from dfc.games import registry
from dfc.games.game import Verdict
from dfc.inference.constraints import ActionTrie, Position, action_replies, advance, allowed, pack
from dfc.inference.sampling import filters_of, row_sampling, sample_tokens, uniforms

END = 9
VOCABULARY = 10
_allowed, _advance = jax.jit(allowed, static_argnums=2), jax.jit(advance)
# [1, 2] begins [1, 2, 3]; only their end ids tell them apart.
REPLIES = [[1, 2, END], [1, 2, 3, END], [4, END], [5, 2, 3, END], [5, 6, 6, 6, END], [0, END]]

reply_sets = strategies.sets(
    strategies.lists(strategies.integers(0, 3), max_size=5).map(tuple), min_size=1, max_size=12
).map(lambda texts: [[*text, END] for text in texts])


def spelled(position):
    """Every list of ids that leads from a position to the end."""
    if position.complete:
        return [[]]
    return [[token_id, *rest] for token_id in position.choices for rest in spelled(position.after([token_id]))]


def futures(replies, written):
    """What may follow some ids, by looking at all replies."""
    return {tuple(r[len(written) :]) for r in replies if list(r[: len(written)]) == list(written)}


@hypothesis.given(reply_sets)
@hypothesis.settings(max_examples=100, deadline=None)
def test_a_trie_spells_exactly_its_replies(replies):
    trie = ActionTrie.build(replies + replies[::-1])
    assert sorted(spelled(trie.after([]))) == sorted(replies)
    for reply in replies:
        for count in range(len(reply)):
            following = {future[0] for future in futures(replies, reply[:count])}
            assert set(trie.after(reply[:count]).choices) == following
            assert trie.after(reply[:count]).after(reply[count:]).complete


@hypothesis.given(reply_sets)
@hypothesis.settings(max_examples=100, deadline=None)
def test_a_trie_has_one_node_for_each_different_future(replies):
    written = {tuple(reply[:count]) for reply in replies for count in range(len(reply))}
    assert len(ActionTrie.build(replies).nodes) == len(
        {frozenset(futures(replies, token_ids)) for token_ids in written}
    )


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ([], "at least one reply, got none"),
        ([[1, 2], []], "got an empty one"),
        ([[1, 2, 3], [1, 2]], "one reply is the beginning of another"),
        ([[1, -2, 3]], "token ids of 0 or more"),
    ],
)
def test_replies_that_make_no_trie_are_refused(replies, message):
    with pytest.raises(ValueError, match=message):
        ActionTrie.build(replies)


def test_an_id_that_no_reply_has_is_refused():
    trie = ActionTrie.build(REPLIES)
    with pytest.raises(ValueError, match=r"expected one of \[2\] next, got token 7 of \[1, 7\]"):
        trie.after([1, 7])
    with pytest.raises(ValueError, match=r"expected one of \[\] next"):
        trie.after([4, END, END])


def test_a_complete_reply_cannot_be_packed():
    trie = ActionTrie.build(REPLIES)
    with pytest.raises(ValueError, match="row 1: its reply is complete"):
        pack([None, trie.after([4, END])])


@hypothesis.given(
    strategies.lists(strategies.one_of(strategies.none(), reply_sets), min_size=4, max_size=4),
    strategies.randoms(use_true_random=False),
)
@hypothesis.settings(max_examples=60, deadline=None)
def test_rows_walk_the_packed_table_as_they_walk_their_tries(sets, random):
    positions = []
    for replies in sets:
        written = random.choice(replies) if replies else []
        begun = written[: random.randrange(len(written))] if written else []
        positions.append(ActionTrie.build(replies).after(begun) if replies else None)
    packed = pack(positions, least_nodes=256, least_choices=8)  # one shape, compiled once
    node = packed.start
    for _ in range(6):
        mask = np.asarray(_allowed(packed.token_ids, node, VOCABULARY))
        sampled = np.zeros(4, np.int32)
        for row, position in enumerate(positions):
            free = position is None or position.complete
            assert set(np.flatnonzero(mask[row])) == (set(range(VOCABULARY)) if free else set(position.choices))
            sampled[row] = random.choice(range(VOCABULARY) if free else position.choices)
            if not free:
                positions[row] = position.after([int(sampled[row])])
        node = np.asarray(_advance(packed.token_ids, packed.nodes, node, sampled))
        assert [n == -1 for n in node] == [position is None or position.complete for position in positions]


def test_equal_tries_share_their_nodes_in_a_table():
    first, same, other = ActionTrie.build(REPLIES), ActionTrie.build(REPLIES[::-1]), ActionTrie.build([[1, END]])
    packed = pack([first, None, same.after([5]), other, other])
    assert packed.start[1] == -1
    assert packed.start[0] == 0
    assert packed.start[2] == same.after([5]).node
    assert packed.start[3] == packed.start[4] == len(first.nodes)
    assert packed.token_ids.shape == (16, 4)  # 8 + 2 nodes; at most 4 choices, 0 1 4 5, at the beginning
    assert pack([first], least_nodes=33, least_choices=5).token_ids.shape == (64, 8)
    assert pack([None, None]).token_ids.shape == (1, 1)


# ---- drawing ----------------------------------------------------------------------------------------------------

TEMPERATURES = (1.0, 0.6)


def next_logits():
    """A model whose next id depends on the last one (row VOCABULARY: on nothing yet)."""
    return (1.5 * np.random.default_rng(5).normal(size=(VOCABULARY + 1, VOCABULARY))).astype(np.float32)


def decode(packed, settings, numbers):
    """Draws up to five ids per row inside one program; ids and log-probabilities, [B, 5]."""
    rows, filters = row_sampling(settings), filters_of(settings)
    table = jnp.asarray(next_logits())

    @jax.jit
    def program(token_ids, nodes, start, numbers):
        def step(carry, number):
            last, node = carry
            of = allowed(token_ids, node, VOCABULARY)
            chosen, logprob, *_ = sample_tokens(table[last], number, rows, filters, of)
            return (chosen, advance(token_ids, nodes, node, chosen)), (chosen, logprob, node)

        begin = jnp.full(len(settings), VOCABULARY, jnp.int32), start
        return jax.lax.scan(step, begin, numbers)[1]

    return (np.asarray(x).T for x in program(packed.token_ids, packed.nodes, packed.start, numbers))


def reply_logprob(reply, replies, temperature, *, top_k=0):
    """Of a reply, id by id, each renormalised over the ids with which some reply goes on."""
    table, last, total = next_logits().astype(np.float64) / temperature, VOCABULARY, 0.0
    for count, token_id in enumerate(reply):
        choices = {future[0] for future in futures(replies, reply[:count])}
        if top_k:
            choices = set(sorted(choices, key=lambda i: -table[last][i])[:top_k])
        if token_id not in choices:
            return -np.inf
        weights = {choice: np.exp(table[last][choice]) for choice in choices}
        total += np.log(weights[token_id] / sum(weights.values()))
        last = token_id
    return total


@functools.cache
def constrained_samples():
    """4000 rows of each temperature, of top-k 1 and 2, and of no constraint, in one batch."""
    kinds = [*(SamplingConfig(temperature=t) for t in TEMPERATURES), SamplingConfig(top_k=2), SamplingConfig()]
    count = 4000
    settings = kinds * count
    trie = ActionTrie.build(REPLIES)
    packed = pack([trie, trie, trie, None] * count)
    numbers = uniforms(np.arange(len(settings), dtype=np.uint64)[None], np.arange(5, dtype=np.uint64)[:, None])
    return [x.reshape(count, len(kinds), 5).swapaxes(0, 1) for x in decode(packed, settings, numbers)]


@pytest.mark.parametrize("kind", range(3), ids=["temperature 1", "temperature 0.6", "top-k 2"])
def test_constrained_draws_spell_legal_replies_as_often_as_enumeration_says(kind):
    token_ids, logprobs, nodes = (x[kind] for x in constrained_samples())
    temperature, top_k = (*TEMPERATURES, 1.0)[kind], (0, 0, 2)[kind]
    counts = dict.fromkeys(map(tuple, REPLIES), 0)
    for row, steps, places in zip(token_ids.tolist(), logprobs, nodes, strict=True):
        length = row.index(END) + 1
        reply = tuple(row[:length])
        counts[reply] += 1  # an unknown reply is a KeyError
        assert (places[:length] >= 0).all()
        assert (places[length:] == -1).all()
        expected = reply_logprob(reply, REPLIES, temperature, top_k=top_k)
        np.testing.assert_allclose(steps[:length].sum(dtype=np.float64), expected, atol=1e-5)
    wanted = np.exp([reply_logprob(reply, REPLIES, temperature, top_k=top_k) for reply in counts]) * len(token_ids)
    assert wanted.sum() == pytest.approx(len(token_ids))  # the replies are all there is
    observed = np.asarray(list(counts.values()))
    assert not observed[wanted == 0].any()
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    assert stats.chi2.sf(((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1) > 1e-4


def test_a_row_without_constraint_draws_from_all_ids_beside_constrained_ones():
    token_ids, _, nodes = (x[3] for x in constrained_samples())
    assert (nodes == -1).all()
    assert set(token_ids.ravel().tolist()) == set(range(VOCABULARY))
    p = np.exp(next_logits()[VOCABULARY].astype(np.float64))
    wanted = p / p.sum() * len(token_ids)
    observed = np.bincount(token_ids[:, 0], minlength=VOCABULARY)
    assert stats.chi2.sf(((observed - wanted) ** 2 / wanted).sum(), VOCABULARY - 1) > 1e-4


# ---- actions of games -------------------------------------------------------------------------------------------


def test_an_action_makes_one_reply_per_end_id(tokenizer):
    replies = action_replies(["[4 7]", "[4]"], tokenizer.encode_reply, (3, 1))
    assert [reply[-1] for reply in replies] == [3, 1, 3, 1]
    assert [tokenizer.decode(reply[:-1]) for reply in replies] == ["[4 7]", "[4 7]", "[4]", "[4]"]


def test_actions_that_make_no_reply_are_refused(tokenizer):
    with pytest.raises(ValueError, match="at least one end token"):
        action_replies(["[4]"], tokenizer.encode_reply, ())
    with pytest.raises(ValueError, match="action '' has no tokens"):
        action_replies(["[4]", ""], tokenizer.encode_reply, (3,))


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_any_walk_through_the_trie_of_legal_actions_is_played(game_id, tokenizer):
    generator = np.random.default_rng(0)
    game = registry.make(game_id)
    game.reset(0)
    for _ in range(8):
        if game.over:
            break
        trie = ActionTrie.build(action_replies(game.legal_actions(), tokenizer.encode_reply, tokenizer.end_token_ids))
        position, token_ids = Position(trie, 0), []
        while not position.complete:
            token_ids.append(int(generator.choice(position.choices)))
            position = position.after(token_ids[-1:])
        assert game.step(tokenizer.decode(token_ids)) is Verdict.PLAYED
