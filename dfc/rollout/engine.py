"""Decodes many conversations at once; each keeps its cache from its first id to its last.

A slot belongs to one conversation. `append` adds ids it has not seen (an observation), `ask` wants a reply to all of
them. `launch` sends one call to the device, for the rows that need the same thing: reading what they have not seen, or
writing. `collect` waits for a call and returns the replies it finished; `step` does both. While a call runs, others can
be launched for other rows, and the host can do its own work.

Nothing is ever fed twice, and a slot that waits costs next to nothing: a call takes the rows it is for out of the
resident cache, rounded up to the next number of rows that a program has. What a slot answers depends on its seed, its
ids and the weights; not on the others, on which slot it has or on when it was admitted. That is up to rounding: sums of
another shape add up in another order, and an id may differ where its random number lies that close to a boundary.

Several policies answer from one engine: by name, as full weights, or as adapters of one pool within one call.

On several devices slots are split over the mesh's data and fsdp axes. With `hosts="same"` every host makes the same
calls with the same ids. With `hosts="own"` each host has its own conversations, in the slots of its own devices; what
decides a shape or the length of a loop is agreed before each call, so hosts may have different numbers of them.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from dfc import agreement
from dfc.config import SamplingConfig
from dfc.errors import DecodingError
from dfc.models.decoder_config import DecoderConfig
from dfc.models.transformer import Adapters, Params
from dfc.rollout import constraints, shapes
from dfc.rollout.filling import fill
from dfc.rollout.planning import DECODE, FEED, SCORE, Plan, Planner
from dfc.rollout.programs import Shape, Weights, programs
from dfc.rollout.sampling import filters_of
from dfc.rollout.slots import Answer, Conversation, EngineCounts, Parked, Places, Reply

_DONE = 8  # a decode call returns when one in eight of its rows has finished, so that others take their place


@dataclasses.dataclass
class _Policy:
    """Weights under a name."""

    number: int
    weights: Weights
    version: int
    pool: int | None  # adapters of a pool


@dataclasses.dataclass
class _Call:
    """A call in flight: its results on their way, and which conversation each row is."""

    stage: int
    rows: dict[int, tuple[int, Conversation, int, int]]  # row -> slot, who had it, ids fed, version of the weights
    results: tuple[jax.Array, ...]
    size: int  # rows, idle ones included, of this host

    @property
    def decodes(self) -> bool:
        """Whether it writes."""
        return self.stage == DECODE


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
        stop_ids: frozenset[int],
        sampling: SamplingConfig,
        rows: int | None = None,
        widths: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
        decode_steps: int = 32,
        ends: Callable[[list[int]], int | None] | None = None,
        mesh: Mesh | None = None,
        hosts: Literal["same", "own"] = "same",
    ) -> None:
        """Allocates the cache.

        Args:
          config: of the model.
          params: weights of the policy named ``policy``.
          slots: conversations at once, of all hosts; on several devices rounded up to a multiple of the mesh's data x
            fsdp.
          max_length: positions of one conversation.
          stop_ids: a reply ends with the first of these.
          sampling: how ids are drawn where a conversation does not say otherwise.
          rows: conversations computed in one call at most; None: all. Fewer than `slots` keep every call full while
            the others' games move on.
          widths: ids fed per row and call, ascending; each is one compiled program per rows and length.
          lengths: cache lengths that calls read, ascending; `max_length` is always the last. By default
            those of `dfc.rollout.shapes.default_lengths`.
          decode_steps: ids drawn per row and call at most.
          ends: for stop strings: given a reply's ids so far, how many of them to keep if it is over, else None.
          mesh: the devices of all hosts, with axes data, fsdp and tensor; None, or one device: this one.
          hosts: whether all hosts make the same calls, or each has its own conversations.

        Raises:
          ValueError: the numbers do not fit each other.
        """
        mesh = None if mesh is None or mesh.size == 1 else mesh
        self._programs = programs(config, mesh)
        self._own = hosts == "own" and jax.process_count() > 1
        self._config, self._sampling, self._ends = config, sampling, ends
        self.max_length, self._steps = max_length, decode_steps
        self.places = Places(slots, self._programs.shards, mesh if self._own else None)
        most = self.places.per_shard if rows is None else min(self.places.per_shard, -(-rows // self._programs.shards))
        self._shapes = shapes.Shapes(
            shapes.default_rows(most),
            tuple(widths or shapes.default_widths(max_length)),
            (*(n for n in lengths or shapes.default_lengths(max_length) if n < max_length), max_length),
        )
        if min(most, decode_steps, *self._shapes.widths) < 1:
            raise ValueError(f"rows {rows}, widths {widths} and decode_steps {decode_steps} must be 1 or more")
        spare = max(*self._shapes.widths, decode_steps)  # windows are written whole, also behind the last position
        self._cache = self._programs.empty(config, self.places.total, max_length + spare)
        self._stops = np.zeros(config.vocabulary, bool)
        self._stops[sorted(stop_ids)] = True
        self._slots: dict[int, Conversation] = {}
        self._policies: dict[str, _Policy] = {}
        self._settings = {sampling}  # every setting met; the programs hold the filters that any of them needs
        self._flight: collections.deque[_Call] = collections.deque()
        self._planner = Planner(self._shapes, self.places, decode_steps, shapes.default_costs(config), self._own)
        self.counts = EngineCounts()
        self.set_params(params, 0)

    # ---- policies ---------------------------------------------------------------------------------------------------

    def set_params(
        self, params: Params, version: int, adapters: Adapters | None = None, *, policy: str = "policy"
    ) -> None:
        """Takes over weights, new or under a new name; conversations in flight keep their caches.

        The next call uses them, also for replies under way; each id carries the version it was drawn under. Caches keep
        what the old weights made of earlier ids. To have new weights between replies only, call this when no slot is
        answering. The engine holds a reference, no copy: the old ones are gone when the caller lets go of them.

        Args:
          params: the weights, unrolled.
          version: names them.
          adapters: corrections of the weights, unrolled; a pool of several (`dfc.models.lora.pool`) serves each
            conversation with the one it was opened with. `rows` is the engine's own business.
          policy: what conversations are opened with. Policies of the same weights share calls.

        Raises:
          ValueError: a conversation in flight uses an adapter that would be gone.
        """
        pool = _pool_size(adapters)
        here = [state for state in self._slots.values() if state.policy == policy]
        beyond = sorted({state.adapter for state in here if state.adapter >= (pool or 1)})
        if beyond:
            raise ValueError(f"conversations in flight use adapters {beyond}, but only {pool or 1} would be there")
        known = self._policies.get(policy)
        number = len(self._policies) if known is None else known.number
        self._policies[policy] = _Policy(number, Weights(params, adapters), version, pool)

    def version(self, policy: str = "policy") -> int:
        """Returns the version of a policy's weights."""
        return self._policies[policy].version

    # ---- conversations ----------------------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Number of slots no conversation owns."""
        return self.places.free

    @property
    def busy(self) -> bool:
        """Whether any slot waits for a reply."""
        return any(state.answer is not None for state in self._slots.values())

    def open(
        self, seed: int, *, policy: str = "policy", adapter: int = 0, sampling: SamplingConfig | None = None
    ) -> int:
        """Gives a new conversation a slot.

        Args:
          seed: of what it draws.
          policy: who answers.
          adapter: its place in the policy's pool of adapters.
          sampling: how it draws; None: as the engine does. A setting with a filter (top-k, top-p) that no
            conversation had before compiles the programs anew.

        Raises:
          ValueError: no slot is free, or there is no such policy or adapter.
        """
        self._check(policy, adapter)
        _check_seed(seed)
        sampling = sampling or self._sampling
        if self._own and filters_of([sampling, *self._settings]) != filters_of(list(self._settings)):
            raise ValueError(
                f"{sampling}: where hosts have conversations of their own, every filter (top-k, top-p) has to be on in "
                "the engine's own sampling: all hosts run the same program"
            )
        slot = self.places.take()
        self._settings.add(sampling)
        self._slots[slot] = Conversation(seed, policy, adapter, sampling, since=self.counts.calls)
        return slot

    def close(self, slot: int) -> None:
        """Ends a conversation; the slot is free at once, also in the middle of a reply."""
        state = self._state(slot)  # a slot given back twice would be given to two conversations
        state.answer = None
        del self._slots[slot]
        self.places.give(slot)

    def length(self, slot: int) -> int:
        """Ids of the conversation so far, fed or not."""
        return len(self._state(slot).ids)

    def ids(self, slot: int) -> list[int]:
        """Ids of the conversation so far."""
        return list(self._state(slot).ids)

    def append(self, slot: int, ids: Sequence[int]) -> None:
        """Adds ids the conversation has not seen; they are fed when a reply is asked for.

        Raises:
          ValueError: the slot is free or answering, or an id is not of the vocabulary.
        """
        self._check_ids(ids)
        self._quiet(slot).ids.extend(ids)

    def ask(self, slot: int, max_reply_length: int, actions: constraints.ActionTrie | None = None) -> bool:
        """Asks for a reply; returns False, and does nothing, if no room is left for a single id.

        A reply is cut at `max_reply_length` ids, or where the conversation reaches `max_length`.

        Args:
          slot: of the conversation.
          max_reply_length: ids.
          actions: the replies allowed; None: all. Log-probabilities are those of the restricted distribution.

        Raises:
          ValueError: the slot is free, is answering already, or has nothing to reply to.
        """
        state = self._quiet(slot)
        if not state.unread:
            raise ValueError(f"slot {slot} was asked for a reply without anything new to reply to; append ids first")
        room = min(max_reply_length, self.max_length - len(state.ids))
        if room <= 0:
            return False
        state.answer = Answer(len(state.ids), room, position=None if actions is None else actions.after([]))
        return True

    def score(self, slot: int, ids: Sequence[int]) -> None:
        """Appends ids and asks for their log-probabilities, which come back as a `Reply` of these ids.

        Raises:
          ValueError: the slot is free, is answering, has nothing before the first id, or no room for the last.
        """
        self._check_ids(ids)
        state = self._quiet(slot)
        if not state.ids or not ids:
            raise ValueError(f"slot {slot}: scoring needs an id before the first one scored, and one to score")
        if len(state.ids) + len(ids) > self.max_length:
            raise ValueError(f"slot {slot} has {len(state.ids)} of {self.max_length} ids; {len(ids)} more do not fit")
        state.answer = Answer(len(state.ids), len(ids), scored=True)
        state.ids.extend(ids)

    def roll_back(self, slot: int, length: int, seed: int | None = None) -> None:
        """Makes a conversation forget everything behind its first `length` ids.

        Asked again, it says the same again, unless it is given another seed or other ids.

        Raises:
          ValueError: the slot is free or answering, or has fewer ids.
        """
        state = self._quiet(slot)
        _check_seed(0 if seed is None else seed)
        if not 0 <= length <= len(state.ids):
            raise ValueError(f"slot {slot} has {len(state.ids)} ids; it cannot be rolled back to {length}")
        del state.ids[length:]
        state.fed = min(state.fed, max(length - 1, 0))  # one id is fed again: a reply is drawn behind it
        state.seed = state.seed if seed is None else seed

    def fork(self, slot: int, seed: int) -> int:
        """Returns a new slot with the same conversation so far, which goes on by another seed.

        Raises:
          ValueError: no slot is free, the conversation is answering, or each host has its own.
        """
        self._alone("forked")
        _check_seed(seed)
        state = self._quiet(slot)
        beside = self.places.take(like=slot)
        if self.places.shard(beside) == self.places.shard(slot):
            length = self._shapes.length_for(state.fed)
            target = self.places.single(beside)
            taken = self._programs.take(self._cache, self.places.single(slot), length)
            self._cache = self._programs.put(self._cache, target, np.zeros_like(target), taken)
        else:  # through host memory
            self._restore(beside, self._held(slot))
        self._slots[beside] = dataclasses.replace(state, seed=seed, ids=list(state.ids))
        return beside

    def park(self, slot: int) -> Parked:
        """Moves a conversation to host memory and frees its slot.

        Raises:
          ValueError: the slot is free or answering.
        """
        state = self._quiet(slot)
        parked = Parked(state, self._held(slot))
        self.close(slot)
        return parked

    def unpark(self, parked: Parked) -> int:
        """Takes a parked conversation back; returns its new slot.

        Raises:
          ValueError: no slot is free, or the policy or its adapter is gone.
        """
        state = parked.conversation
        self._check(state.policy, state.adapter)
        slot = self.places.take()
        self._restore(slot, parked.arrays)
        self._slots[slot] = dataclasses.replace(state, ids=list(state.ids))
        return slot

    def _check(self, policy: str, adapter: int) -> None:
        known = self._policies.get(policy)
        if known is None:
            raise ValueError(f"policy {policy!r} is not known; set_params gave {', '.join(self._policies)}")
        if not 0 <= adapter < (known.pool or 1):
            raise ValueError(f"adapter {adapter}: expected one of 0 to {(known.pool or 1) - 1}, the adapters given")

    # ---- calls ------------------------------------------------------------------------------------------------------

    def step(self) -> list[Reply]:
        """Launches a call if none is in flight, and waits for the oldest; returns the replies it finished."""
        if not self._flight:
            self.launch()
        return self.collect()

    def launch(self) -> bool:
        """Sends a call for rows that are ready to the device, without waiting; returns False if there are none.

        With hosts of their own, every host has to come here as often as the others; see `dfc.agreement`.
        """
        ready = {slot: state for slot, state in self._slots.items() if state.ready}
        plan, chosen = self._planner.next(ready, self._number)
        if plan.stage < 0:
            return False
        self._flight.append(self._run(plan, chosen))
        return True

    def anyone(self, flag: bool) -> bool:
        """Returns whether any host that shares this engine's calls says yes; all of them have to ask."""
        return any(value for (value,) in agreement.gathered((int(flag),))) if self._own else flag

    @property
    def in_flight(self) -> int:
        """Calls that were launched and not collected."""
        return len(self._flight)

    def collect(self) -> list[Reply]:
        """Waits for the oldest call in flight; returns the replies it finished, none if there is no call."""
        if not self._flight:
            return []
        call = self._flight.popleft()
        results = [np.asarray(x) for x in call.results]
        ids, logprobs = results[0], results[0 if call.stage == SCORE else 1]
        if call.decodes:
            steps = int(results[3])
            self.counts.steps += steps
            self.counts.row_steps += steps * call.size
            self.counts.computed += steps * call.size
        finished: list[Reply] = []
        for row, (slot, state, read, version) in call.rows.items():
            state.in_flight = False
            if self._slots.get(slot) is not state or state.answer is None:
                continue  # closed in the meantime
            fed = int(results[2][row]) if call.decodes else read
            state.fed += fed
            self.counts.fed += fed
            if call.stage == SCORE:
                reply = self._scored(slot, state, version, logprobs[:, row, :fed])
            elif call.decodes:
                found = ids[row, :fed].tolist()
                reply = self._wrote(slot, state, version, found, logprobs[:, row, :fed], decoded=True)
            else:
                reply = self._wrote(slot, state, version, [int(ids[row])], logprobs[:, row, None], decoded=False)
            finished += [] if reply is None else [reply]
        return finished

    def warm_up(self, *, score: bool = False, actions: bool = False) -> int:
        """Compiles the programs that read and write, for all policies; returns how many.

        Args:
          score: compile those that score, too.
          actions: compile those with constraints, too; a table larger than most games need is still a new program.
        """
        sizes, count = self._shapes, 0
        tables = [(0, 0), *([self._planner.table_of([])] if actions else [])]
        # Weights of the same shapes share programs.
        kinds = {str(jax.tree.map(jnp.shape, known.weights)): known.number for known in self._policies.values()}
        for policy in kinds.values():
            for rows in sizes.rows:
                for length in sizes.lengths:
                    plans = [Plan(FEED, policy, rows, width, length) for width in sizes.widths]
                    plans += [Plan(SCORE, policy, rows, width, length) for width in sizes.widths] if score else []
                    plans += [Plan(DECODE, policy, rows, self._steps, length)] if length else []
                    for plan in plans:
                        for nodes, branches in tables if plan.stage != SCORE else [(0, 0)]:
                            self._run(dataclasses.replace(plan, nodes=nodes, branches=branches), [])
                            count += 1
        for leaf in jax.tree.leaves(self._cache):
            leaf.block_until_ready()
        return count

    def _number(self, state: Conversation) -> int:
        """Returns the first policy that has the same weights as a conversation's: both share calls."""
        mine = self._policies[state.policy].weights
        return next(
            known.number
            for known in self._policies.values()
            if known.weights.params is mine.params and known.weights.adapters is mine.adapters
        )

    # ---- running ----------------------------------------------------------------------------------------------------

    def _run(self, plan: Plan, chosen: list[int]) -> _Call:
        """Sends a call off."""
        policy = next(known for known in self._policies.values() if known.number == plan.policy)
        places = self.places
        whole = plan.rows == places.per_shard and plan.length == self._shapes.lengths[-1] and not self._own
        at = places.assign(chosen, plan.rows, whole=whole)  # row -> slot
        given = fill(plan, places, at, self._slots, self._sampling, apart=self._own)
        filters = filters_of(list(self._settings))
        shape = Shape(self._config, filters, plan.length, whole, policy.pool is not None)
        common = policy.weights, self._cache
        rows = self._placed(given.rows)
        if plan.stage == DECODE:
            # A share of the rows of all hosts: the same number everywhere.
            least = plan.writing - max(1, plan.writing // _DONE) + 1
            *results, self._cache = self._programs.decode(
                *common,
                rows,
                self._placed(given.tokens[:, 0]),
                self._placed(given.numbers),
                self._stops,
                given.table,
                np.int32(plan.limit),
                np.int32(least),
                shape=shape,
            )
        else:
            tokens = self._placed(given.tokens)
            self.counts.computed += given.tokens.size
            if plan.stage == SCORE:
                targets = self._placed(given.targets)
                *results, self._cache = self._programs.score(*common, rows, tokens, targets, shape=shape)
            else:
                numbers = self._placed(given.numbers)
                *results, self._cache = self._programs.feed(*common, rows, tokens, numbers, given.table, shape=shape)
        self.counts.calls += 1
        for result in results:
            result.copy_to_host_async()
        offset = places.first * plan.rows  # results are those of all hosts
        taking_part = {}
        for row, slot in at.items():
            state = self._slots[slot]
            state.in_flight, state.since = True, self.counts.calls
            version = self._policies[state.policy].version  # policies of the same weights may have other versions
            taking_part[offset + row] = slot, state, int(given.rows.count[row]), version
        return _Call(plan.stage, taking_part, tuple(results), places.shards * plan.rows)

    def _placed(self, arrays: Any) -> Any:  # noqa: ANN401 - a pytree of arrays either side of jit
        return jax.tree.map(self._place, arrays)

    def _place(self, x: np.ndarray) -> Any:  # noqa: ANN401 - an array either side of jit
        """Returns what a program is given: this host's rows as a part of all hosts' rows."""
        if not self._own or self._programs.rows is None:
            return x
        return jax.make_array_from_process_local_data(self._programs.rows, x)  # type: ignore[no-untyped-call]  # jax leaves it untyped

    # ---- taking results over ----------------------------------------------------------------------------------------

    def _wrote(
        self, slot: int, state: Conversation, version: int, ids: list[int], logprobs: np.ndarray, *, decoded: bool
    ) -> Reply | None:
        """Takes over what a row drew; returns the reply if that ended it."""
        answer = state.answer
        assert answer is not None  # noqa: S101 - the caller has looked
        if answer.scored or state.fed < len(state.ids):
            return None  # there is more to read first
        self._check_numbers(state, logprobs)
        before = len(answer.ids)
        answer.add(ids[: answer.fitting(ids)], logprobs, version)
        kept = None if self._ends is None else self._ends(answer.ids)
        if kept is not None:
            answer.cut(kept)
        state.ids[answer.begin :] = answer.ids
        state.fed = min(state.fed, len(state.ids) - 1)  # what lies behind the reply's end is not its own
        self.counts.drawn += len(answer.ids) - before
        self.counts.useful_steps += max(0, len(answer.ids) - before) if decoded else 0
        stopped = kept is not None or answer.complete or bool(self._stops[answer.ids[-1]])
        if not stopped and len(answer.ids) < answer.room:
            return None
        state.answer = None
        return answer.reply(slot, stopped=stopped)

    def _scored(self, slot: int, state: Conversation, version: int, logprobs: np.ndarray) -> Reply | None:
        """Takes over the log-probabilities [2, n] of the ids behind those that were fed last."""
        answer = state.answer
        assert answer is not None  # noqa: S101 - the caller has looked
        self._check_numbers(state, logprobs)
        begin = state.fed - logprobs.shape[1] + 1
        answer.add(state.ids[begin : state.fed + 1], logprobs, version)
        if state.unread:
            return None
        state.answer = None
        return answer.reply(slot, stopped=False)

    # ---- host memory ------------------------------------------------------------------------------------------------

    def _held(self, slot: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns a slot's keys and values [K, held, H] per layer, in host memory."""
        self._alone("parked or moved")
        fed, shard = self._state(slot).fed, self.places.shard(slot)
        rows = self.places.single(slot)
        taken = self._programs.take(self._cache, rows, self._shapes.length_for(fed))
        return [
            (agreement.on_host(keys)[shard, :, :fed], agreement.on_host(values)[shard, :, :fed])
            for keys, values in taken
        ]

    def _restore(self, slot: int, arrays: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Writes a slot's keys and values."""
        rows, shard = self.places.single(slot), self.places.shard(slot)

        def row(x: np.ndarray) -> np.ndarray:
            heads, held, dim = x.shape
            wide = np.zeros((len(rows), heads, self._shapes.length_for(held), dim), x.dtype)
            wide[shard, :, :held] = x
            return wide

        new = tuple((row(keys), row(values)) for keys, values in arrays)
        self._cache = self._programs.put(self._cache, rows, np.zeros_like(rows), new)

    def _alone(self, what: str) -> None:
        if self._own:
            raise ValueError(f"conversations cannot be {what} where each host has its own: all devices take part in it")

    def _check_ids(self, ids: Sequence[int]) -> None:
        if len(ids) and not 0 <= min(ids) <= max(ids) < self._config.vocabulary:
            wrong = next(id_ for id_ in ids if not 0 <= id_ < self._config.vocabulary)
            raise ValueError(f"id {wrong}: expected one of the model's vocabulary, 0 to {self._config.vocabulary - 1}")

    def _check_numbers(self, state: Conversation, logprobs: np.ndarray) -> None:
        """Stops at a model that diverged: what it wrote into the cache would spoil later conversations there, too."""
        if np.isnan(logprobs).any():
            raise DecodingError(
                f"policy {state.policy!r}, version {self.version(state.policy)}: its probabilities are not numbers, so "
                "its weights are not either, or are far too large: training has diverged, or the model's files are "
                "damaged; train again with a lower optimizer.learning_rate in another --workdir, or get the files again"
            )

    def _state(self, slot: int) -> Conversation:
        state = self._slots.get(slot)
        if state is None:
            raise ValueError(f"slot {slot} is free; open a conversation first")
        return state

    def _quiet(self, slot: int) -> Conversation:
        """Returns a slot's state where no reply is under way: ids added now would land in the middle of it."""
        state = self._state(slot)
        if state.answer is not None:
            raise ValueError(f"slot {slot} is answering; call step() until its reply is there")
        return state


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed {seed}: expected a number from 0 to 2 ** 64 - 1")


def _pool_size(adapters: Adapters | None) -> int | None:
    """Returns how many adapters there are in a pool; None if it is none: [P, D, R] instead of [D, R]."""
    leaves = [] if adapters is None else jax.tree.leaves(adapters.weights)
    return int(leaves[0].shape[0]) if leaves and leaves[0].ndim > 2 else None
