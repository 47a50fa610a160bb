"""Decodes many conversations at once; each keeps its cache from its first token to its last.

A slot belongs to one conversation. `append` adds tokens it has not seen (an observation), `ask` requests a reply to
all of them. `launch` sends one call to the device, for the rows that need the same thing: prefill of what they have not
seen, or decoding. `collect` waits for a call and returns the replies it finished; `step` does both. While a call runs,
others can be launched for other rows, and the host can do its own work.

A conversation never prefills a token twice, and the prefix that a new one shares with one in a slot, or with one that
was in a slot now free, is copied (`dfc.inference.prefixes`). A slot that waits costs nothing: a call reads and writes
its slots in place, rounded up to the next number of rows that a program has. The reply of a slot depends
on its seed, its tokens and the weights; not on the others, on which slot it has or on when it was admitted.
That is up to rounding: sums of another shape are taken in another order, and a token may differ where its random
number is that close to a boundary.

Several policies answer from one engine: by name, as full weights, or as adapters of one pool within one call.

On several devices slots are split over the mesh's data and fsdp axes. The mesh need not be the one that weights were
trained on (`dfc.inference.decoding_mesh`): weights placed otherwise on the same devices are moved before the next call.
With `hosts="same"` every host makes the same
calls with the same tokens. With `hosts="own"` each host has its own conversations, in the slots of its own devices;
the hosts agree on shapes and the lengths of loops before each call, so hosts may have different numbers of them.
"""

import collections
import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh

from dfc import multihost
from dfc.config import SamplingConfig
from dfc.inference import buckets, constraints, prefixes
from dfc.inference.cache_rows import CacheRows
from dfc.inference.call_arrays import DeviceCall, Filled, fill
from dfc.inference.checks import check_seed, check_token_ids
from dfc.inference.kept_sets import KeptSets
from dfc.inference.policies import Policies
from dfc.inference.prefixes import Copy
from dfc.inference.programs import EngineWeights, Shape, pool_size, programs
from dfc.inference.protocol import Ends, EngineCounts, EngineReply
from dfc.inference.resident_weights import ResidentWeights, place_beside
from dfc.inference.results import take_sampled, take_scores
from dfc.inference.sampling import Filters, filters_of
from dfc.inference.scheduler import DECODE, PATIENCE, PREFILL, SCORE, Plan, Planner
from dfc.inference.slots import Parked, PendingReply, SlotAllocator, SlotState
from dfc.models.cache import Cache
from dfc.models.config import DecoderConfig
from dfc.models.execution import platform_of
from dfc.models.transformer import Adapters, Params

_DONE = 8  # a decode call returns when one in eight of its rows has finished, so that others take their rows


class Engine:
    """Slots with resident caches.

    Attributes:
      counts: what was done so far.
      max_length: positions of one conversation.
    """

    def __init__(
        self,
        config: DecoderConfig,
        params: Params,
        *,
        slots: int,
        max_length: int,
        stop_token_ids: frozenset[int],
        sampling: SamplingConfig,
        rows: int | None = None,
        prefill_buckets: Sequence[int] | None = None,
        decode_steps: int = 32,
        ends: Ends | None = None,
        mesh: Mesh | None = None,
        hosts: Literal["same", "own"] = "same",
        other_sampling: Sequence[SamplingConfig] = (),
        plain_logprobs: bool = False,
        kept_sets: bool = False,
    ) -> None:
        """Allocates the cache.

        Args:
          config: of the model.
          params: weights of the policy named ``policy``.
          slots: conversations at once, of all hosts; rounded up to a multiple of the mesh's data x fsdp.
          max_length: positions of one conversation.
          stop_token_ids: a reply ends with the first of these.
          sampling: how tokens are sampled where a conversation has no setting of its own.
          rows: conversations computed in one call at most; None: all. Fewer than `slots` keep every call full while
            the others' games advance.
          prefill_buckets: tokens prefilled per row and call, ascending; each is a program for every number of rows.
          decode_steps: tokens sampled per row and call at most.
          ends: for stop strings, of replies without their own.
          mesh: the devices of all hosts, with axes data, fsdp and tensor; None, or one device: this one.
          hosts: whether all hosts make the same calls, or each has its own conversations.
          other_sampling: settings that conversations will bring, so that all calls run the same programs from the first
            one on: those that hold the filters of these settings too.
          plain_logprobs: compute those of the untruncated distribution too, a second sum over the vocabulary.
          kept_sets: return the set of tokens that filters left for each token sampled (`EngineReply.choices`), as a
            trainer needs it. A set has 512 tokens at most: where more survive, a token is sampled among the likeliest;
            `score` takes its log-probability among all that survive.

        Raises:
          ValueError: the numbers do not fit each other.
        """
        platform = platform_of(mesh)
        mesh = None if mesh is None or mesh.size == 1 else mesh
        self._programs = programs(config, mesh, platform)
        self._resident = ResidentWeights(config, mesh)
        self._own = hosts == "own" and jax.process_count() > 1
        self._config, self._sampling, self._ends = config, sampling, ends
        self._plain, self._kept_sets = plain_logprobs, kept_sets
        self.max_length, self._steps = max_length, decode_steps
        self.slot_allocator = SlotAllocator(slots, self._programs.shards, mesh if self._own else None)
        most = (
            self.slot_allocator.per_shard
            if rows is None
            else min(self.slot_allocator.per_shard, -(-rows // self._programs.shards))
        )
        self._shapes = buckets.Shapes(
            buckets.default_rows(most),
            tuple(prefill_buckets or buckets.default_prefill_buckets(max_length)),
        )
        if min(most, decode_steps, *self._shapes.prefill_buckets) < 1:
            raise ValueError(
                f"rows {rows}, prefill_buckets {prefill_buckets} and decode_steps {decode_steps} must be 1 or more"
            )
        positions = buckets.cache_positions(max_length, platform)
        self._empty = functools.partial(self._programs.empty, config, self.slot_allocator.total, positions)
        self._cache: Cache | None = None
        self._stops = np.zeros(config.vocabulary, bool)
        self._stops[sorted(stop_token_ids)] = True
        self._slots: dict[int, SlotState] = {}
        self._policies = Policies()
        self._filters = filters_of([sampling, *other_sampling])  # of every setting met: the programs hold all of them
        self._flight: collections.deque[DeviceCall] = collections.deque()
        self._planner = Planner(
            self._shapes, self.slot_allocator, decode_steps, buckets.default_costs(config, platform), self._own
        )
        self._rows = CacheRows(self._programs, self.slot_allocator, self._shapes)
        self.counts = EngineCounts()
        self._left: dict[int, SlotState] = {}  # closed conversations whose cache still exists
        self.set_params(params, 0)
        self._present()

    # ---- policies ---------------------------------------------------------------------------------------------------

    def set_params(
        self, params: Params, version: int, adapters: Adapters | None = None, *, policy: str = "policy"
    ) -> None:
        """Takes over weights, new or under a new name; conversations in flight keep their caches.

        The next call uses them, also for replies under way; each token carries the version it was sampled under. Caches
        keep the keys and values that the old weights computed for earlier tokens. To have new weights between replies
        only, call this when no slot is answering. The engine holds a reference, no copy: the old ones are freed when
        the caller releases them. Weights not placed as the mesh requires are moved at the next call that uses them;
        copies of those that no policy has any more are freed immediately.

        Args:
          params: the weights, unrolled.
          version: names them.
          adapters: corrections of the weights, unrolled; a pool of several (`dfc.models.lora.pool`) serves each
            conversation with the one it was opened with. `rows` is set by the engine.
          policy: what conversations are opened with. Policies of the same weights share calls.

        Raises:
          ValueError: a conversation in flight uses an adapter that would be removed.
        """
        pool = pool_size(adapters)
        here = [state for state in self._slots.values() if state.policy == policy]
        beyond = sorted({state.adapter for state in here if state.adapter >= (pool or 1)})
        if beyond:
            raise ValueError(f"conversations in flight use adapters {beyond}, but only {pool or 1} would be there")
        self._policies.set(policy, EngineWeights(params, adapters), version, pool)
        self._resident.keep(self._policies.weights())
        self._left.clear()  # a run that resumes begins here with none

    def forget_copies(self) -> None:
        """Frees copies of weights that had to be moved, and the cache if there is no conversation, until needed."""
        self._resident.keep(())
        if not self._slots:
            self._left.clear()
            self._cache = None

    def version(self, policy: str = "policy") -> int:
        """Returns the version of a policy's weights."""
        return self._policies[policy].version

    # ---- conversations ----------------------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Number of slots no conversation owns."""
        return self.slot_allocator.free

    @property
    def busy(self) -> bool:
        """Whether any slot waits for a reply."""
        return any(state.pending_reply is not None for state in self._slots.values())

    def open(
        self, seed: int, *, policy: str = "policy", adapter: int = 0, sampling: SamplingConfig | None = None
    ) -> int:
        """Gives a new conversation a slot.

        `seed` decides what it samples; `adapter` is its place in the policy's pool of adapters. `sampling` None: as the
        engine does. A setting with a filter (top-k, top-p) that no conversation had before compiles the programs again.

        Raises:
          ValueError: no slot is free, or there is no such policy or adapter.
        """
        self._policies.check(policy, adapter)
        check_seed(seed)
        self._admit(sampling)
        slot = self.slot_allocator.allocate()
        self._slots[slot] = SlotState(seed, policy, adapter, sampling or self._sampling, since=self.counts.calls)
        return slot

    def close(self, slot: int) -> None:
        """Ends a conversation; the slot is free immediately, also in the middle of a reply."""
        state = self._state(slot)  # a slot freed twice would be given to two conversations
        state.pending_reply = None
        if state.num_cached and not state.in_flight:
            self._left[slot] = state
        del self._slots[slot]
        self.slot_allocator.release(slot)

    def length(self, slot: int) -> int:
        """Tokens of the conversation so far, in the cache or not."""
        return len(self._state(slot).token_ids)

    def token_ids(self, slot: int) -> list[int]:
        """Tokens of the conversation so far."""
        return list(self._state(slot).token_ids)

    def append(self, slot: int, token_ids: Sequence[int]) -> None:
        """Adds tokens the conversation has not seen; they are prefilled when a reply is asked for.

        Raises:
          ValueError: the slot is free or answering, or a token is not of the vocabulary.
        """
        check_token_ids(token_ids, self._config.vocabulary)
        self._quiet(slot).token_ids.extend(token_ids)

    def ask(
        self,
        slot: int,
        max_reply_length: int,
        actions: constraints.ActionTrie | None = None,
        *,
        ends: Ends | None = None,
        sampling: SamplingConfig | None = None,
    ) -> bool:
        """Asks for a reply; returns False, and does nothing, if no room is left for a single token.

        A reply is cut at `max_reply_length` tokens, or where the conversation reaches `max_length`. `actions` are the
        replies allowed (None: all); log-probabilities are those of the restricted distribution. `ends` is of this
        reply's stop strings (`dfc.inference.stop_strings`; None: the engine's), `sampling` of this reply (None: as the
        conversation was opened; about filters see `open`).

        Raises:
          ValueError: the slot is free, is answering already, or has nothing to reply to.
        """
        state = self._quiet(slot)
        self._admit(sampling)
        if not state.num_pending:
            raise ValueError(f"slot {slot} was asked for a reply without anything new to reply to; append tokens first")
        room = min(max_reply_length, self.max_length - len(state.token_ids))
        if room <= 0:
            return False
        state.pending_reply = PendingReply(
            len(state.token_ids),
            room,
            sampling=sampling,
            ends=ends or self._ends,
            position=None if actions is None else actions.after([]),
        )
        return True

    def read(self, slot: int) -> bool:
        """Asks for all tokens but the last to be prefilled, without a reply; returns False if they are already.

        It can be forked then, and conversations that begin alike copy it. An `EngineReply` without tokens ends it.

        Raises:
          ValueError: the slot is free or answering already.
        """
        state = self._quiet(slot)
        if len(state.token_ids) - state.num_cached <= 1:
            return False
        state.pending_reply = PendingReply(len(state.token_ids), 0, want="nothing")
        return True

    def so_far(self, slot: int) -> EngineReply:
        """Returns the reply under way as far as it is; a stop string may take back some. Without one, no tokens."""
        return (self._state(slot).pending_reply or PendingReply(0, 0)).so_far(slot)

    def score(self, slot: int, token_ids: Sequence[int]) -> None:
        """Appends tokens and asks for their log-probabilities, which come back as an `EngineReply` of these tokens.

        Raises:
          ValueError: the slot is free, is answering, has nothing before the first token, or no room for the last.
        """
        check_token_ids(token_ids, self._config.vocabulary)
        state = self._quiet(slot)
        if not state.token_ids or not token_ids:
            raise ValueError(f"slot {slot}: scoring needs a token before the first one scored, and one to score")
        if len(state.token_ids) + len(token_ids) > self.max_length:
            raise ValueError(
                f"slot {slot} has {len(state.token_ids)} of {self.max_length} tokens; {len(token_ids)} more do not fit"
            )
        state.pending_reply = PendingReply(len(state.token_ids), len(token_ids), want="scores")
        state.token_ids.extend(token_ids)

    def roll_back(self, slot: int, length: int, seed: int | None = None) -> None:
        """Drops everything after the first `length` tokens of a conversation.

        Asked again, it samples the same reply, unless it is given another seed or other tokens.

        Raises:
          ValueError: the slot is free or answering, or has fewer tokens.
        """
        state = self._quiet(slot)
        check_seed(0 if seed is None else seed)
        if not 0 <= length <= len(state.token_ids):
            raise ValueError(f"slot {slot} has {len(state.token_ids)} tokens; it cannot be rolled back to {length}")
        del state.token_ids[length:]
        state.num_cached = min(state.num_cached, max(length - 1, 0))  # one is processed again, for a reply
        state.seed = state.seed if seed is None else seed

    def fork(self, slot: int, seed: int) -> int:
        """Returns a new slot with the same conversation so far, which continues with another seed.

        Raises:
          ValueError: no slot is free, the conversation is answering, or each host has its own.
        """
        self._alone("forked")
        check_seed(seed)
        state = self._quiet(slot)
        beside = self.slot_allocator.allocate(like=slot)
        self._left.pop(beside, None)
        if self.slot_allocator.shard(beside) == self.slot_allocator.shard(slot):
            self._cache = self._rows.copied(self._present(), [Copy(slot, beside, state.num_cached)])
        else:  # through host memory
            held = self._rows.to_host(self._present(), slot, state.num_cached)
            self._cache = self._rows.from_host(self._present(), beside, held)
        self._slots[beside] = dataclasses.replace(state, seed=seed, token_ids=list(state.token_ids))
        return beside

    def park(self, slot: int) -> Parked:
        """Moves a conversation to host memory and frees its slot.

        Raises:
          ValueError: the slot is free or answering.
        """
        state = self._quiet(slot)
        self._alone("parked or moved")
        parked = Parked(state, self._rows.to_host(self._present(), slot, state.num_cached))
        self.close(slot)
        return parked

    def unpark(self, parked: Parked) -> int:
        """Takes a parked conversation back; returns its new slot.

        Raises:
          ValueError: no slot is free, or the policy or its adapter was removed.
        """
        state = parked.state
        self._policies.check(state.policy, state.adapter)
        slot = self.slot_allocator.allocate()
        self._left.pop(slot, None)
        self._cache = self._rows.from_host(self._present(), slot, parked.arrays)
        self._slots[slot] = dataclasses.replace(state, token_ids=list(state.token_ids))
        return slot

    def _present(self) -> Cache:
        """Returns the cache, allocated again if freed: where hosts share calls, at the same one on all of them."""
        if self._cache is None:
            self._cache = self._empty()
            if self._programs.cache is None:  # as programs return it, so that each is compiled only once
                self._cache = jax.device_put(self._cache, place_beside(self._policies.numbered(0).weights.params))
        return self._cache

    # ---- calls ------------------------------------------------------------------------------------------------------

    def step(self) -> list[EngineReply]:
        """Launches a call if none is in flight, and waits for the oldest; returns the replies it finished."""
        if not self._flight:
            self.launch()
        return self.collect()

    def launch(self) -> bool:
        """Sends a call for rows that are ready to the device, without waiting; returns False if there are none.

        With hosts of their own, every host has to come here as often as the others; see `dfc.multihost`.
        """
        ready = {slot: state for slot, state in self._slots.items() if state.ready}
        for slot in () if self._own else self._share(ready):
            del ready[slot]
        plan, chosen = self._planner.next(ready, self._policies.number)
        if plan.stage < 0:
            return False
        self._flight.append(self._run(plan, chosen))
        return True

    def _share(self, ready: Mapping[int, SlotState]) -> Collection[int]:
        """Copies the prefixes that new conversations share with others; returns the slots that wait for such a copy."""
        new = [s for s, state in ready.items() if not state.num_cached and state.stage == "prefill"]
        new.sort(key=lambda slot: ready[slot].since)
        copies, waiting = prefixes.shared(
            new,
            self._slots,
            self._left,
            self.slot_allocator.shard,
            self._policies.serial,
        )
        if between := [copy for copy in copies if copy.source != copy.target]:
            self._cache = self._rows.copied(self._present(), between)
        for copy in copies:
            state = self._slots[copy.target]
            state.share(copy.tokens, self._policies.serial(state))
            self._left.pop(copy.target, None)
            self.counts.shared_tokens += copy.tokens
        for reader in waiting.values():  # the planner does not know how many wait for it
            self._slots[reader].since = min(self._slots[reader].since, self.counts.calls - PATIENCE)
        return waiting

    def anyone(self, flag: bool) -> bool:
        """Returns whether it is true on any host that shares this engine's calls; all of them have to ask."""
        return any(value for (value,) in multihost.all_gather_numbers((int(flag),))) if self._own else flag

    @property
    def in_flight(self) -> int:
        """Calls that were launched and not collected."""
        return len(self._flight)

    def collect(self) -> list[EngineReply]:
        """Waits for the oldest call in flight; returns the replies it finished, none if there is no call."""
        if not self._flight:
            return []
        call = self._flight.popleft()
        results = jax.tree.map(np.asarray, call.results)
        token_ids, logprobs = results[0], results[0 if call.stage == SCORE else 1]
        sets: KeptSets | None = None if call.stage == SCORE else results[-1]
        if call.decodes:
            steps = int(results[3])
            self.counts.steps += steps
            self.counts.row_steps += steps * call.size
            self.counts.computed += steps * call.size
        finished: list[EngineReply] = []
        for row, (slot, state, read, version) in call.rows.items():
            state.in_flight = False
            if self._slots.get(slot) is not state or state.pending_reply is None:
                continue  # closed in the meantime
            processed = int(results[2][row]) if call.decodes else read
            self.counts.prompt_tokens += state.of_prompt(processed)
            state.num_cached += processed
            self.counts.processed_tokens += processed
            if call.stage == SCORE:
                reply = take_scores(slot, state, version, logprobs[:, row, :processed])
            else:
                found = token_ids[row, :processed].tolist() if call.decodes else [int(token_ids[row])]
                its = logprobs[:, row, :processed] if call.decodes else logprobs[:, row, None]
                own = None if sets is None else sets.of_row(row)
                reply = take_sampled(
                    slot, state, version, found, its, own, stops=self._stops, counts=self.counts, decoded=call.decodes
                )
            finished += [] if reply is None else [reply]
        return finished

    def warm_up(self, *, score: bool = False, actions: bool = False) -> int:
        """Compiles the programs that prefill, decode and copy, for all policies; returns how many.

        On request also those that score and those with constraints; a trie larger than most games need is still a new
        program.
        """
        plans = [plan for rows in self._shapes.rows for plan in self._plans(rows, score=score, actions=actions)]
        for plan in plans:
            self._run(plan, [])
        if not self._own:
            idle = self.slot_allocator.rows({}, self._shapes.rows[0])
            self._cache = self._programs.copy(self._present(), idle, idle, np.int32(0))
        for leaf in jax.tree.leaves(self._cache):
            leaf.block_until_ready()
        return len(plans) + (not self._own)

    def warm_up_rows(self) -> Iterator[int]:
        """Does what `warm_up` does, for one number of rows after another; yields each.

        Calls have no more rows than are compiled so far. After the first number this may go on in another thread than
        the one that makes calls, on one host, while policies and filters stay as they are.
        """
        shapes = self._shapes
        shape_of: Any = jax.ShapeDtypeStruct  # jax leaves it untyped
        cache = jax.tree.map(lambda x: shape_of(x.shape, x.dtype, sharding=x.sharding), self._present())
        for count, rows in enumerate(shapes.rows, 1):
            for plan in self._plans(rows) if count > 1 else ():  # the cache is in use by now
                program, shape, _, (weights, *more) = self._prepared(plan, {})
                program.lower(weights, cache, *more, shape=shape).compile()
            self._shapes = dataclasses.replace(shapes, rows=shapes.rows[:count])
            self._planner = dataclasses.replace(self._planner, shapes=self._shapes)
            if count == 1:
                self.warm_up()
            yield rows

    def _plans(self, rows: int, *, score: bool = False, actions: bool = False) -> Iterator[Plan]:
        """Yields the calls of so many rows that are programs of their own."""
        for policy in self._policies.of_each_shape():
            yield from self._planner.kinds(policy, rows, score=score, actions=actions)

    # ---- running ----------------------------------------------------------------------------------------------------

    def _run(self, plan: Plan, chosen: list[int]) -> DeviceCall:
        """Sends a call off."""
        policy = self._policies.numbered(plan.policy)
        slot_allocator = self.slot_allocator
        # Rows of similar lengths are adjacent: those that are computed together read as far as the longest.
        chosen = sorted(chosen, key=lambda slot: self._slots[slot].num_cached)
        at = slot_allocator.assign(chosen, plan.rows)  # row -> slot
        program, shape, given, (weights, *more) = self._prepared(plan, at)
        *results, self._cache = program(weights, self._present(), *more, shape=shape)
        if plan.stage != DECODE:
            self.counts.computed += given.tokens.size
        self.counts.calls += 1
        for result in jax.tree.leaves(results):
            result.copy_to_host_async()
        offset = slot_allocator.first * plan.rows  # results are those of all hosts
        taking_part = {}
        for row, slot in at.items():
            state = self._slots[slot]
            if not state.num_cached:
                state.weights = policy.serial
            state.weights = policy.serial if state.weights == policy.serial else -1
            self._left.pop(slot, None)
            state.in_flight, state.since = True, self.counts.calls
            version = self._policies[state.policy].version  # policies of the same weights may have other versions
            taking_part[offset + row] = slot, state, int(given.rows.count[row]), version
        return DeviceCall(plan.stage, taking_part, tuple(results), slot_allocator.shards * plan.rows)

    def _prepared(self, plan: Plan, at: Mapping[int, int]) -> tuple[Any, Shape, Filled, tuple[Any, ...]]:
        """Returns a call's program, its shape, the call's arrays, and the program's arguments without the cache."""
        policy, programs = self._policies.numbered(plan.policy), self._programs
        given = fill(plan, self.slot_allocator, at, self._slots, self._sampling, apart=self._own)
        shape = Shape(self._config, self._filters, policy.pool is not None, self._plain, self._kept_sets)
        common = self._resident.of(policy.weights), self._placed(given.rows)
        if plan.stage == SCORE:
            return programs.score, shape, given, (*common, self._placed(given.tokens), self._placed(given.targets))
        numbers = self._placed(given.numbers)
        if plan.stage == PREFILL:
            return programs.prefill, shape, given, (*common, self._placed(given.tokens), numbers, given.trie)
        # A share of the rows of all hosts: the same number everywhere.
        limits = np.int32(plan.limit), np.int32(plan.writing - max(1, plan.writing // _DONE) + 1)
        tokens = self._placed(given.tokens[:, 0])
        return programs.decode, shape, given, (*common, tokens, numbers, self._stops, given.trie, *limits)

    def _placed(self, arrays: Any) -> Any:  # noqa: ANN401 - a pytree of arrays either side of jit
        return jax.tree.map(self._place, arrays)

    def _place(self, x: np.ndarray) -> Any:  # noqa: ANN401 - an array either side of jit
        """Returns a program's argument: this host's rows as a part of all hosts' rows."""
        if not self._own or self._programs.rows is None:
            return x
        return jax.make_array_from_process_local_data(self._programs.rows, x)  # type: ignore[no-untyped-call]  # jax leaves it untyped

    # ---- refusals ---------------------------------------------------------------------------------------------------

    def _admit(self, sampling: SamplingConfig | None) -> None:
        """Records how a reply will be sampled; refuses what only this host would compile."""
        if sampling is None:
            return
        wanted = filters_of([sampling])
        filters = Filters(self._filters.top_k or wanted.top_k, self._filters.top_p or wanted.top_p)
        if self._own and filters != self._filters:
            raise ValueError(
                f"{sampling}: where hosts have conversations of their own, every filter (top-k, top-p) has to be on in "
                "the engine's own sampling: all hosts run the same program"
            )
        self._filters = filters

    def _alone(self, what: str) -> None:
        if self._own:
            raise ValueError(f"conversations cannot be {what} where each host has its own: all devices take part in it")

    def _state(self, slot: int) -> SlotState:
        state = self._slots.get(slot)
        if state is None:
            raise ValueError(f"slot {slot} is free; open a conversation first")
        return state

    def _quiet(self, slot: int) -> SlotState:
        """Returns a slot's state where no reply is under way: tokens added now would land inside it."""
        state = self._state(slot)
        if state.pending_reply is not None:
            raise ValueError(f"slot {slot} is answering; call step() until its reply is there")
        return state
