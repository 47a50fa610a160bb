"""Stores the results of a call in its conversations."""

import numpy as np

from dfc.inference.checks import check_numbers
from dfc.inference.kept_sets import KeptSets
from dfc.inference.protocol import EngineCounts, EngineReply
from dfc.inference.slots import SlotState


def take_sampled(
    slot: int,
    state: SlotState,
    version: int,
    token_ids: list[int],
    logprobs: np.ndarray,
    sets: KeptSets | None,
    *,
    stops: np.ndarray,
    counts: EngineCounts,
    decoded: bool,
) -> EngineReply | None:
    """Takes over what a row sampled; returns the reply if that ended it, or one without tokens that has read all.

    `state` already counts what was processed as cached; `logprobs` [1 or 2, n] are sampled, and plain ones if they are
    computed; `sets` [n] are those that tokens were sampled among, if they are kept; `stops` bool [V] are the tokens
    that end a reply. Sampled tokens and useful steps are added to `counts`; `decoded`: a decode call sampled them.

    Raises:
      DecodingError: a log-probability is not a number.
    """
    pending_reply = state.pending_reply
    assert pending_reply is not None  # noqa: S101 - the caller has checked
    if pending_reply.want == "nothing" and not state.num_pending:
        state.pending_reply = None
        return pending_reply.reply(slot, stopped=False)
    if state.num_cached < len(state.token_ids):
        return None  # there is more to prefill first
    check_numbers(logprobs, state.policy, version)
    before = len(pending_reply.token_ids)
    pending_reply.add(token_ids[: pending_reply.fitting(token_ids)], logprobs, version, sets)
    kept = None if pending_reply.ends is None else pending_reply.ends(pending_reply.token_ids)
    if kept is not None:
        pending_reply.cut(kept)
    state.token_ids[pending_reply.start :] = pending_reply.token_ids
    state.num_cached = min(state.num_cached, len(state.token_ids) - 1)  # what follows the reply's end is not its own
    counts.generated_tokens += len(pending_reply.token_ids) - before
    counts.useful_steps += max(0, len(pending_reply.token_ids) - before) if decoded else 0
    stopped = kept is not None or pending_reply.complete or bool(stops[pending_reply.token_ids[-1]])
    if not stopped and len(pending_reply.token_ids) < pending_reply.room:
        return None
    state.pending_reply = None
    return pending_reply.reply(slot, stopped=stopped)


def take_scores(slot: int, state: SlotState, version: int, logprobs: np.ndarray) -> EngineReply | None:
    """Takes over the log-probabilities [1 or 2, n] of the tokens after those that were processed last.

    Raises:
      DecodingError: a log-probability is not a number.
    """
    pending_reply = state.pending_reply
    assert pending_reply is not None  # noqa: S101 - the caller has checked
    check_numbers(logprobs, state.policy, version)
    start = state.num_cached - logprobs.shape[1] + 1
    pending_reply.add(state.token_ids[start : state.num_cached + 1], logprobs, version)
    if state.num_pending:
        return None
    state.pending_reply = None
    return pending_reply.reply(slot, stopped=False)
