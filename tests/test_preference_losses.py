"""The family of pair losses against loops in PyTorch at float64, packed and not, and what links its members."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from dfc import losses
from dfc.logprobs import token_logprobs

# ---- pairs of trajectories with several action spans, and their layout in rows --------------------------------------


@dataclasses.dataclass(frozen=True)
class Side:
    """One trajectory; `mask` is a picture, # at action ids."""

    mask: str
    logp: np.ndarray
    ref: np.ndarray


def side(rng, mask):
    logp = rng.uniform(-4, -0.05, len(mask))
    return Side(mask, logp, logp + rng.uniform(-0.6, 0.6, len(mask)))


def spans(rng, turns):
    """Observations and replies by turns, of random lengths."""
    return "".join("." * rng.integers(1, 4) + "#" * rng.integers(1, 5) for _ in range(turns))


def random_pairs(seed, count):
    rng = np.random.default_rng(seed)
    return [tuple(side(rng, spans(rng, rng.integers(1, 4))) for _ in range(2)) for _ in range(count)]


PAIRS = random_pairs(0, 7)
ROWS = [[0, 1, 2], [3], [], [4, 5, 6]]  # which pairs lie in which row


def packed(pairs, rows, length=120, dtype=np.float32):
    """Arrays [rows, length], and at which (row, time) every pair's two sides begin; outside them is garbage."""
    logp, ref = (np.full((len(rows), length), filler, dtype) for filler in (np.nan, -np.inf))
    mask, segments = np.ones((len(rows), length), bool), np.zeros((len(rows), length), np.int32)
    starts = {}
    for row, members in enumerate(rows):
        at = 0
        for place, number in enumerate(members):
            for which, s in enumerate(pairs[number]):
                here = (row, slice(at, at + len(s.mask)))
                logp[here], ref[here], segments[here] = s.logp, s.ref, 2 * place + 1 + which
                mask[here] = [c == "#" for c in s.mask]
                starts[number, which] = row, at
                at += len(s.mask)
    return logp, mask, ref, segments, starts


def unpacked(pairs, which, extra=0):
    """logp, mask, ref [pairs, time] of the chosen (0) or rejected (1) sides, with padding of ones behind."""
    length = max(len(pair[which].mask) for pair in pairs) + extra
    logp, mask, ref = np.ones((3, len(pairs), length), np.float32)
    for row, pair in enumerate(pairs):
        s = pair[which]
        logp[row, : len(s.mask)], ref[row, : len(s.mask)] = s.logp, s.ref
        mask[row] = [c == "#" for c in s.mask.ljust(length, ".")]
    return logp, mask, ref


# ---- the oracle: the formulas, pair by pair and id by id ------------------------------------------------------------


def oracle(pairs, *, beta=0.1, alpha=1.0, weight=1.0, normalize=False, margin=0.0, reference=True):
    """Total, number of pairs, and the gradient at every id of every side."""
    leaves = [[torch.tensor(s.logp, requires_grad=True) for s in pair] for pair in pairs]
    total, count = torch.zeros((), dtype=torch.float64), 0
    for pair, tensors in zip(pairs, leaves, strict=True):
        actions = [[t for t, c in enumerate(s.mask) if c == "#"] for s in pair]
        if not all(actions):
            continue
        rewards = []
        for s, tensor, positions in zip(pair, tensors, actions, strict=True):
            ratio = sum(tensor[t] - (s.ref[t] if reference else 0.0) for t in positions)
            rewards.append(beta * ratio / (len(positions) if normalize else 1))
        preference = -torch.log(torch.sigmoid(rewards[0] - rewards[1] - margin))
        likelihood = -sum(tensors[0][t] for t in actions[0]) / len(actions[0])
        total = total + weight * preference + alpha * likelihood
        count += 1
    total.backward()
    zeros = [[np.zeros(len(s.mask)) for s in pair] for pair in pairs]
    grads = [
        [z if t.grad is None else t.grad.numpy() for z, t in zip(*both, strict=True)]
        for both in zip(zeros, leaves, strict=True)
    ]
    return total.item(), count, grads


def ours(pairs, rows, options, num_segments=6, dtype=np.float32, reference=True):
    """The same from packed rows."""
    logp, mask, ref, segments, starts = packed(pairs, rows, dtype=dtype)

    def total(x):
        result = losses.packed_preference_loss(
            x, mask, ref if reference else None, segments=segments, num_segments=num_segments, **options
        )
        return result.total, result

    grad, result = jax.jit(jax.grad(total, has_aux=True))(logp)
    grad, cut = np.array(grad), {}
    for (number, which), (row, at) in starts.items():
        here = (row, slice(at, at + len(pairs[number][which].mask)))
        cut[number, which] = grad[here].copy()
        grad[here] = 0
    assert not grad.any()  # nothing in padding
    return result, [[cut[n, 0], cut[n, 1]] for n in range(len(pairs))]


FORMS = {
    "rpo": ({"beta": 0.3, "alpha": 0.7}, {}),
    "dpo": ({"alpha": 0.0}, {}),
    "normalized_rpo": ({"beta": 2.0, "alpha": 1.0, "normalize_length": True}, {"normalize": True}),
    "sft": ({"preference_weight": 0.0}, {"weight": 0.0}),
    "weighted": ({"preference_weight": 0.4, "alpha": 0.2, "margin": 0.3}, {"weight": 0.4}),
    "simpo": (
        {"beta": 2.0, "alpha": 0.0, "normalize_length": True, "margin": 0.5},
        {"normalize": True, "reference": False},
    ),
}
every_form = pytest.mark.parametrize(("options", "renamed"), FORMS.values(), ids=FORMS)


def oracle_options(options, renamed):
    same = {name: value for name, value in options.items() if name not in ("preference_weight", "normalize_length")}
    return same | renamed


@every_form
@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
def test_packed_rows_agree_with_a_loop_over_pairs(options, renamed, wide):
    total, count, grads = oracle(PAIRS, **oracle_options(options, renamed))
    tolerance = {"rtol": 1e-12, "atol": 1e-14} if wide else {"rtol": 1e-5, "atol": 1e-6}
    with jax.enable_x64(wide):
        dtype = np.float64 if wide else np.float32
        result, our_grads = ours(PAIRS, ROWS, options, dtype=dtype, reference=renamed.get("reference", True))
        assert result.total.dtype == dtype
        np.testing.assert_allclose(result.total, total, rtol=tolerance["rtol"])
    assert float(result.weight) == count == len(PAIRS)
    for one, other in zip(itertools.chain(*our_grads), itertools.chain(*grads), strict=True):
        np.testing.assert_allclose(one, other, **tolerance)


@every_form
def test_the_layout_in_rows_does_not_matter(options, renamed):
    reference = renamed.get("reference", True)
    whole, grads = ours(PAIRS, ROWS, options, reference=reference)
    for rows, num_segments in (([[5, 3, 0], [2, 6, 1, 4]], 8), ([[n] for n in range(7)], 2)):
        result, other_grads = ours(PAIRS, rows, options, num_segments=num_segments, reference=reference)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), whole, result)
        for one, other in zip(itertools.chain(*grads), itertools.chain(*other_grads), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_rows_split_over_devices_give_the_same():
    logp, mask, ref, segments, _ = packed(PAIRS, [*ROWS, *[[]] * 4])
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    loss = jax.jit(lambda a, m, r, s: losses.packed_preference_loss(a, m, r, segments=s, num_segments=6))
    arrays = (logp, mask, ref, segments)
    one, split = loss(*arrays), loss(*jax.device_put(arrays, spread))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, split)


# ---- pairs that do not count, ids out of range ----------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"normalize_length": True}, {"preference_weight": 0.0}])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_pair_with_one_side_masked_counts_nothing(options, lost):
    gone = dataclasses.replace(PAIRS[1][lost], mask="." * len(PAIRS[1][lost].mask))
    torn = [PAIRS[0], (gone, PAIRS[1][1]) if lost == 0 else (PAIRS[1][0], gone), *PAIRS[2:]]
    result, grads = ours(torn, ROWS, options)
    rest, rest_grads = ours([PAIRS[0], *PAIRS[2:]], [[0, 1], [2], [], [3, 4, 5]], options)
    assert float(result.weight) == 6
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), result, rest)
    assert not any(g.any() for g in grads.pop(1))
    for one, other in zip(itertools.chain(*grads), itertools.chain(*rest_grads), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_segment_without_its_partner_counts_nothing():
    logp, mask, ref, segments, _ = packed(PAIRS, [[0]])
    segments[segments == 2] = 0
    loss = losses.packed_preference_loss(logp, mask, ref, segments=segments, num_segments=2)
    assert float(loss.total) == float(loss.weight) == 0
    assert all(float(x) == 0 for x in loss.metrics.values())


def test_all_masked_rows_give_zero_and_a_zero_gradient():
    logp, _, ref, segments, _ = packed(PAIRS, ROWS)
    none = np.zeros_like(segments)

    def mean(x):
        return losses.packed_preference_loss(x, none, ref, segments=segments, num_segments=6).mean

    value, grad = jax.jit(jax.value_and_grad(mean))(logp)
    assert float(value) == 0
    assert not np.asarray(grad).any()


@pytest.mark.parametrize("bad", [-1, 7])
def test_a_segment_id_out_of_range_makes_the_total_nan(bad):
    logp, mask, ref, segments, _ = packed(PAIRS, ROWS)
    segments[2, 5] = bad
    mask[2, 5] = False
    assert np.isnan(losses.packed_preference_loss(logp, mask, ref, segments=segments, num_segments=6).total)


# ---- the public forms are members of the family ---------------------------------------------------------------------


def both_sides(pairs, extra=0):
    """The policy's arrays and the reference's, by their names."""
    policy, references = {}, {}
    for which, name in enumerate(("chosen", "rejected")):
        logp, mask, ref = unpacked(pairs, which, extra)
        policy |= {f"{name}_logprobs": logp, f"{name}_mask": mask}
        references[f"{name}_reference_logprobs"] = ref
    return policy, references


def assert_same(one, other):
    """Total, weight and the metrics that both have."""
    np.testing.assert_allclose([one.total, one.weight], [other.total, other.weight], rtol=1e-5)
    for name in one.metrics.keys() & other.metrics.keys():
        np.testing.assert_allclose(one.metrics[name], other.metrics[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normalize_length", [False, True])
def test_dpo_is_alpha_0_and_rpo_any_other(normalize_length):
    policy, references = both_sides(PAIRS, extra=3)
    options = {"beta": 0.4, "normalize_length": normalize_length}
    assert_same(losses.dpo_loss(**policy, **references, **options), ours(PAIRS, ROWS, options | {"alpha": 0.0})[0])
    rpo = losses.rpo_loss(**policy, **references, **options, alpha=0.6)
    assert_same(rpo, ours(PAIRS, ROWS, options | {"alpha": 0.6})[0])
    assert rpo.metrics.keys() == {"accuracy", "margin", "chosen_reward", "rejected_reward", "dpo", "sft"}


def test_preference_weight_0_is_supervised_training_on_the_chosen_sides():
    chosen, chosen_mask, _ = unpacked(PAIRS, 0)
    sft = losses.sft_loss(chosen, chosen_mask)
    result, grads = ours(PAIRS, ROWS, {"preference_weight": 0.0})
    np.testing.assert_allclose([result.total, result.weight], [sft.total, sft.weight], rtol=1e-6)
    grad = np.asarray(jax.grad(lambda x: losses.sft_loss(x, chosen_mask).total)(chosen))
    for row, (of_chosen, of_rejected) in enumerate(grads):
        np.testing.assert_allclose(of_chosen, grad[row, : len(of_chosen)], rtol=1e-6)
        assert not of_rejected.any()


def test_preference_weight_0_ignores_an_infinite_reference():
    pairs = [(w, dataclasses.replace(r, ref=np.full(len(r.mask), -np.inf))) for w, r in PAIRS]
    result, grads = ours(pairs, ROWS, {"preference_weight": 0.0})
    np.testing.assert_allclose(result.total, ours(PAIRS, ROWS, {"preference_weight": 0.0})[0].total)
    assert all(np.isfinite(g).all() for g in itertools.chain(*grads))


def test_simpo_is_length_normalized_without_reference():
    policy, references = both_sides(PAIRS)
    options = {"alpha": 0.0, "normalize_length": True}
    packed_form, _ = ours(PAIRS, ROWS, options | {"beta": 2.5, "margin": 0.7}, reference=False)
    assert_same(losses.simpo_loss(**policy, beta=2.5, margin=0.7), packed_form)
    # Without a margin it is DPO with a reference that gives every id probability 1.
    certain = {name: np.zeros_like(array) for name, array in references.items()}
    plain = losses.dpo_loss(**policy, **certain, beta=2.5, normalize_length=True)
    assert_same(losses.simpo_loss(**policy, beta=2.5, margin=0.0), plain)


def test_simpo_takes_the_margin_that_its_authors_give_as_a_ratio_to_beta():
    rng = np.random.default_rng(3)
    pairs = [tuple(side(rng, "#" * n) for n in lengths) for lengths in ((3, 5), (6, 2), (4, 4))]
    policy, _ = both_sides(pairs)
    beta, ratio = 2.0, 0.4
    means = torch.tensor([[s.logp.mean() for s in pair] for pair in pairs])
    expected = -torch.nn.functional.logsigmoid(beta * (means[:, 0] - means[:, 1] - ratio)).mean()
    np.testing.assert_allclose(losses.simpo_loss(**policy, beta=beta, margin=ratio * beta).mean, expected, rtol=1e-5)


def test_a_reference_equal_to_the_policy_costs_log_two_whatever_beta():
    pairs = [tuple(dataclasses.replace(s, ref=s.logp) for s in pair) for pair in PAIRS]
    for beta in (1e-3, 0.1, 50.0):
        result, _ = ours(pairs, ROWS, {"alpha": 0.0, "beta": beta})
        np.testing.assert_allclose(result.mean, np.log(2), rtol=1e-5)


def test_a_large_beta_charges_the_pairs_in_the_wrong_order_their_gap():
    beta = 1e4
    result, _ = ours(PAIRS, ROWS, {"alpha": 0.0, "beta": beta})
    gaps = []
    for pair in PAIRS:
        chosen, rejected = (((s.logp - s.ref) * [c == "#" for c in s.mask]).sum() for s in pair)
        gaps.append(chosen - rejected)
    assert min(gaps) < 0 < max(gaps)  # else this shows nothing
    np.testing.assert_allclose(result.total / beta, sum(max(0.0, -gap) for gap in gaps), rtol=1e-4)
    assert float(result.metrics["accuracy"]) == sum(gap > 0 for gap in gaps)


def test_the_mean_over_one_id_is_its_sum():
    rng = np.random.default_rng(5)
    pairs = [(side(rng, "..#."), side(rng, ".#")) for _ in range(7)]
    plain, normalized = (ours(pairs, ROWS, {"normalize_length": n}) for n in (False, True))
    jax.tree.map(np.testing.assert_array_equal, plain, normalized)


def test_length_normalization_divides_by_the_number_of_action_ids():
    rng = np.random.default_rng(6)
    pairs = [(side(rng, ".##..###"), side(rng, "#.####")) for _ in range(7)]  # five ids on every side
    assert_same(
        ours(pairs, ROWS, {"beta": 5.0, "normalize_length": True})[0],
        ours(pairs, ROWS, {"beta": 1.0})[0],
    )


def test_the_margin_shifts_the_loss_and_no_metric():
    plain, _ = ours(PAIRS, ROWS, {"alpha": 0.0, "beta": 1.0})
    shifted, _ = ours(PAIRS, ROWS, {"alpha": 0.0, "beta": 1.0, "margin": 2.0})
    for name in ("accuracy", "margin", "chosen_reward", "rejected_reward"):
        assert float(plain.metrics[name]) == float(shifted.metrics[name])
    assert float(plain.total) < float(shifted.total) < float(plain.total) + 2.0 * len(PAIRS)


# ---- other people's formula, from logits ----------------------------------------------------------------------------


def test_one_turn_gives_the_sigmoid_loss_on_summed_completion_logprobs():
    """As in TRL's DPOTrainer: logits shifted by one, completions gathered and summed, log ratios, -logsigmoid."""
    rng = np.random.default_rng(8)
    vocabulary, width, length, prompt, beta = 11, 6, 12, 4, 0.25
    ends = np.asarray([[12, 9], [7, 10], [8, 5]])  # of chosen and rejected; the prompt is theirs in common
    token_ids = rng.integers(0, vocabulary, (3, 2, length))
    token_ids[:, 1, :prompt] = token_ids[:, 0, :prompt]
    hidden = {name: rng.normal(size=(3, 2, length, width)).astype(np.float32) for name in ("policy", "reference")}
    embedding = rng.normal(size=(vocabulary, width)).astype(np.float32)

    sums = {}
    for name, array in hidden.items():
        logits = torch.tensor(array, dtype=torch.float64) @ torch.tensor(embedding, dtype=torch.float64).T
        labels = torch.tensor(token_ids)[:, :, 1:]
        per_token = torch.gather(logits[:, :, :-1].log_softmax(-1), 3, labels[..., None]).squeeze(3)
        places = torch.arange(1, length)
        completion = (places >= prompt) & (places < torch.tensor(ends)[..., None])
        sums[name] = (per_token * completion).sum(-1)
    ratios = sums["policy"] - sums["reference"]
    expected = -torch.nn.functional.logsigmoid(beta * (ratios[:, 0] - ratios[:, 1])).mean()

    def logprobs_per_token(array):
        """Both sides one behind the other, [3, 2 (length - 1)]."""
        flat = array[:, :, :-1].reshape(-1, width)
        return token_logprobs(
            jnp.asarray(flat), jnp.asarray(embedding), jnp.asarray(token_ids[:, :, 1:].ravel())
        ).reshape(3, -1)

    places = np.arange(1, length)
    mask = ((places >= prompt) & (places < ends[..., None])).reshape(3, -1)
    segments = np.broadcast_to(np.repeat([1, 2], length - 1), mask.shape)
    loss = losses.packed_preference_loss(
        logprobs_per_token(hidden["policy"]),
        mask,
        logprobs_per_token(hidden["reference"]),
        segments=segments,
        num_segments=2,
        beta=beta,
        alpha=0.0,
    )
    np.testing.assert_allclose(loss.mean, expected, rtol=1e-5)
    np.testing.assert_allclose(loss.metric_means["chosen_reward"], beta * ratios[:, 0].mean(), rtol=1e-5)
    np.testing.assert_allclose(loss.metric_means["rejected_reward"], beta * ratios[:, 1].mean(), rtol=1e-5)
