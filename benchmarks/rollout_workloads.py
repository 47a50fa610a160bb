"""What `rollouts.py` and `rollout_growth.py` share: models, conversations of fixed lengths, the baseline, the limits.

A model here is a Llama with random weights, drawn once by transformers, saved, and read by both sides. A conversation
is a list of turns (observation tokens, action tokens); the tokens are random, only their number matters, and no token
stops a reply. Ours holds it in a slot; the baseline calls `transformers`' `generate` at every turn.
"""

import dataclasses
import functools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

from dfc.config import SamplingConfig
from dfc.inference.engine import Engine
from dfc.inference.protocol import EngineReply
from dfc.models import huggingface
from dfc.models.config import DecoderConfig
from dfc.models.transformer import Params

SIZES = {  # vocabulary, width, layers, heads, key heads, feed-forward; embeddings are tied
    "0.5M": (2048, 96, 3, 3, 1, 256),
    "1M": (4096, 128, 3, 4, 2, 344),
    "5M": (8192, 256, 4, 4, 2, 688),
    "33M": (32000, 512, 6, 8, 4, 1368),
    "120M": (32000, 768, 15, 12, 4, 2048),
}
SAMPLING = SamplingConfig(temperature=1.0, min_p=0.1)
LONGEST = 16_384  # positions the rotary embedding of a saved model is declared for

Turns = Sequence[tuple[int, int]]  # of one conversation: tokens of the observation, tokens of the reply
TokenSource = Callable[[int], list[int]]


# ---- models --------------------------------------------------------------------------------------------------------


def save_random(size: str, folder: Path) -> None:
    """Writes a checkpoint with random weights and no stop tokens."""
    import torch  # noqa: PLC0415 - the baseline's library is wanted by some parts only
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - slow to import
    from transformers.utils import logging  # noqa: PLC0415 - slow to import

    logging.disable_progress_bar()
    torch.manual_seed(0)
    vocabulary, width, layers, heads, kv_heads, feed_forward = SIZES[size]
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=feed_forward,
        tie_word_embeddings=True,
        max_position_embeddings=LONGEST,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def load(folder: Path) -> tuple[DecoderConfig, Params]:
    """Returns the checkpoint as our engine takes it, float32."""
    return huggingface.load(folder, dtype="float32")


def weight_count(params: Params) -> int:
    """Returns the number of weights."""
    return sum(int(leaf.size) for leaf in jax.tree.leaves(params))


def described(config: DecoderConfig, params: Params) -> str:
    """Returns a model's shape in one line."""
    return (
        f"{weight_count(params) / 1e6:.2f}M weights: vocabulary {config.vocabulary}, width {config.width}, "
        f"{config.layers} layers, {config.heads} heads of {config.head_dim} over {config.kv_heads} key heads, "
        f"feed-forward {config.feed_forward}"
    )


# ---- ours ----------------------------------------------------------------------------------------------------------


def make_engine(
    config: DecoderConfig,
    params: Params,
    *,
    slots: int,
    max_length: int,
    sampling: SamplingConfig = SAMPLING,
    **settings: Any,  # noqa: ANN401 - the engine's own
) -> Engine:
    """Returns an engine whose replies end by their length only; its shapes are the default ones unless given."""
    return Engine(
        config, params, slots=slots, max_length=max_length, stop_token_ids=frozenset(), sampling=sampling, **settings
    )


def replies(engine: Engine, in_flight: int = 1) -> list[EngineReply]:
    """Returns the replies of the oldest call; up to `in_flight` are launched before it is waited for."""
    while engine.in_flight < in_flight and engine.launch():
        pass
    return engine.collect()


def random_tokens(vocabulary: int, seed: int) -> TokenSource:
    """Returns a function that gives so many random tokens at each call."""
    rng = np.random.default_rng(seed)
    return lambda count: rng.integers(0, vocabulary, count).tolist()


@dataclasses.dataclass
class _Talk:
    """One conversation under way."""

    turns: Turns
    done: int = 0
    history: list[int] = dataclasses.field(default_factory=list)


def converse(
    engine: Engine, talks: Iterable[Turns], token_ids: TokenSource, *, resident: bool = True, in_flight: int = 1
) -> int:
    """Holds conversations, as many at once as there are slots; returns how many tokens were sampled.

    Args:
      engine: all its slots free.
      talks: the conversations; the next one starts where a slot falls free.
      token_ids: of the observations.
      resident: False closes the slot after every reply and prefills the whole history into a new one.
      in_flight: calls launched before the oldest is waited for.
    """
    waiting = iter(enumerate(talks))
    talking: dict[int, _Talk] = {}
    generated = 0

    def listen(slot: int, talk: _Talk) -> None:
        observation, action = talk.turns[talk.done]
        observed = token_ids(observation)
        engine.append(slot, observed if resident else [*talk.history, *observed])
        talk.history += observed
        _ask(engine, slot, action)
        talking[slot] = talk

    while True:
        while engine.free and (item := next(waiting, None)) is not None:
            listen(engine.open(item[0]), _Talk(item[1]))
        if not talking:
            return generated
        for reply in replies(engine, in_flight):
            talk = talking.pop(reply.slot)
            generated += len(reply.token_ids)
            talk.done += 1
            talk.history += reply.token_ids
            over = talk.done == len(talk.turns)
            if over or not resident:
                engine.close(reply.slot)
            if not over:
                listen(reply.slot if resident else engine.open(0), talk)


def _ask(engine: Engine, slot: int, count: int) -> None:
    if not engine.ask(slot, count):
        raise SystemExit(f"no room for {count} tokens after {engine.length(slot)}: max_length is too small")


def fill(engine: Engine, rows: int, context: int, token_ids: TokenSource) -> list[int]:
    """Opens conversations of `context` tokens and one sampled token each; returns the slots.

    All but the first are forks of it: a cache of their own with the same content, without computing it again.
    """
    first = engine.open(0)
    engine.append(first, token_ids(context))
    ask_all(engine, [first], 1)
    return [first, *(engine.fork(first, row) for row in range(1, rows))]


def ask_all(engine: Engine, slots: Sequence[int], count: int) -> None:
    """Samples `count` tokens in every slot."""
    for slot in slots:
        _ask(engine, slot, count)
    left = set(slots)
    while left:
        left.difference_update(reply.slot for reply in replies(engine))


def decode_seconds(engine: Engine, slots: Sequence[int], count: int, repeats: int) -> list[float]:
    """Returns the seconds of sampling `count` tokens in every slot, again and again from where the slots are now.

    It happens once before the clock starts. Afterwards the slots are where they were.
    """
    length = engine.length(slots[0])
    seconds = []
    for repeat in range(repeats + 1):
        took = seconds_of(lambda: ask_all(engine, slots, count))
        seconds += [took] if repeat else []
        for slot in slots:
            engine.roll_back(slot, length)
    return seconds


# ---- the baseline --------------------------------------------------------------------------------------------------


class Generate:
    """The same checkpoint behind `transformers`' `generate` on torch, in float32; on a GPU where jax uses one."""

    def __init__(self, folder: Path, attention: str) -> None:
        import torch  # noqa: PLC0415 - slow to import, and not every part has a baseline
        from transformers import LlamaForCausalLM  # noqa: PLC0415 - slow to import

        torch.set_num_threads(threads())
        torch.manual_seed(0)
        self._torch = torch
        self._device = "cuda" if jax.default_backend() == "gpu" else "cpu"
        if self._device == "cuda" and not torch.cuda.is_available():
            raise SystemExit("jax runs on a GPU and torch does not: install torch with CUDA, both sides use one device")
        model: Any = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
        self._model = model.to(self._device).eval()
        self._model.generation_config.pad_token_id = 0  # no row ever ends early; silences a warning

    def __call__(
        self,
        tokens: np.ndarray,
        count: int,
        cache: Any = None,  # noqa: ANN401 - torch has its own class
        *,
        mask: np.ndarray | None = None,
        sampling: SamplingConfig = SAMPLING,
    ) -> tuple[np.ndarray, Any]:
        """Samples `count` tokens after each row of tokens [B, T]; returns all tokens [B, T + count] and the cache.

        Args:
          tokens: the whole history.
          count: tokens to sample.
          cache: of an earlier call on the beginning of the same history, or None.
          mask: 1 where a token is attended to, 0 where not, like tokens; None: everywhere.
          sampling: temperature and min-p are used.
        """
        with self._torch.inference_mode():
            token_ids = self._tensor(tokens)
            found = self._model.generate(
                token_ids,
                attention_mask=self._torch.ones_like(token_ids) if mask is None else self._tensor(mask),
                past_key_values=cache,
                use_cache=True,
                do_sample=True,
                temperature=sampling.temperature,
                top_k=0,
                top_p=1.0,
                min_p=sampling.min_p or None,
                max_new_tokens=count,
                min_new_tokens=count,
                return_dict_in_generate=True,
            )
        generated: np.ndarray = found.sequences.cpu().numpy()
        if generated.shape[1] != tokens.shape[1] + count:
            raise SystemExit(f"generate sampled {generated.shape[1] - tokens.shape[1]} tokens instead of {count}")
        return generated, found.past_key_values

    def _tensor(self, values: np.ndarray) -> Any:  # noqa: ANN401 - torch has its own class
        return self._torch.from_numpy(np.ascontiguousarray(values, np.int64)).to(self._device)

    def logprobs(self, tokens: np.ndarray) -> np.ndarray:
        """Returns the log-probability of each token [B, T] but a row's first, given those before it: [B, T - 1]."""
        with self._torch.inference_mode():
            token_ids = self._tensor(tokens)
            logits = self._model(token_ids, use_cache=False).logits[:, :-1].float()
            found = self._torch.log_softmax(logits, -1).gather(-1, token_ids[:, 1:, None])[..., 0]
        values: np.ndarray = found.cpu().numpy()
        return values

    def converse(self, talks: Sequence[Turns], token_ids: TokenSource, *, keep_cache: bool = False) -> int:
        """Holds conversations side by side, all of them one turn at a time; returns how many tokens were sampled.

        Rows are padded on the left where observations differ in length, and sample as many tokens as the longest reply
        of the turn; what is beyond a row's own reply is not attended to. A row leaves when its conversation is over.

        Args:
          talks: the conversations.
          token_ids: of the observations.
          keep_cache: hand the cache on from turn to turn; False: prefill each history again, padded again.
        """
        live, cache = list(talks), None
        history, mask = np.zeros((2, len(live), 0), np.int64)
        for turn in range(max(map(len, talks))):
            staying = np.flatnonzero([turn < len(talk) for talk in live])
            if len(staying) < len(live):
                live, history, mask = [live[row] for row in staying], history[staying], mask[staying]
                if cache is not None:
                    cache.batch_select_indices(self._tensor(staying))
            observed, replied = np.asarray([talk[turn] for talk in live]).T[:, :, None]
            new = (np.arange(observed.max()) >= observed.max() - observed).astype(np.int64)
            seen = new * np.asarray([token_ids(new.shape[1]) for _ in live], np.int64)
            mask = np.concatenate([mask, new], axis=1)
            history, made = self(np.concatenate([history, seen], axis=1), int(replied.max()), cache, mask=mask)
            mask = np.concatenate([mask, np.arange(replied.max()) < replied], axis=1, dtype=np.int64)
            cache = made if keep_cache else None
            if not keep_cache:  # what is not attended to goes to the left, and away as far as all rows have such
                order = np.argsort(mask, axis=1, kind="stable")[:, mask.shape[1] - int(mask.sum(axis=1).max()) :]
                history, mask = (np.take_along_axis(x, order, axis=1) for x in (history, mask))
        return sum(replied for talk in talks for _, replied in talk)


def require_same_weights(engine: Engine, baseline: Generate, token_ids: TokenSource) -> float:
    """Returns the largest difference of log-probabilities of one of dfc's replies; ends the program if it is large."""
    count = min(16, engine.max_length // 3)
    prompt = token_ids(count)
    slot = engine.open(1, sampling=SamplingConfig())
    engine.append(slot, prompt)
    _ask(engine, slot, count)
    found: list[EngineReply] = []
    while not found:
        found = replies(engine)
    engine.close(slot)
    theirs = baseline.logprobs(np.asarray([prompt + found[0].token_ids]))[0, len(prompt) - 1 :]
    gap = float(np.abs(theirs - np.asarray(found[0].sampled_logprobs)).max())
    if gap > 1e-3:
        raise SystemExit(f"log-probabilities of the same tokens differ by {gap:g}: not the same work")
    return gap


# ---- the limits ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Work:
    """What one decode step over `rows` conversations cannot avoid.

    Attributes:
      bytes: weights of the layers and of the output projection once, keys and values of the live positions once.
      operations: 2 per weight and row, 4 per query channel, live position and row for attention.
    """

    bytes: float
    operations: float


def decode_work(config: DecoderConfig, rows: int, live: float) -> Work:
    """Returns the work of one decode step with `live` positions in each row's cache, float32."""
    attention = config.width * config.head_dim * 2 * (config.heads + config.kv_heads)
    layer = attention + 3 * config.width * config.feed_forward
    weights = config.layers * layer + config.vocabulary * config.width
    cache = config.layers * 2 * config.kv_heads * config.head_dim * live * rows
    scores = config.layers * 4 * config.heads * config.head_dim * live * rows
    return Work(4.0 * (weights + cache), 2.0 * weights * rows + scores)


def read_rate(size: float, repeats: int = 7) -> float:
    """Returns bytes per second of reading an array of `size` bytes with all threads, the best of three ways.

    The ways: numpy's dot product of halves in threads of Python, jax's row sums, torch's sum. An array as large as a
    model's weights stays in the processor's caches if they do, so that the rate is the one that a step could have.
    """
    import torch  # noqa: PLC0415 - the baseline's library is wanted by some parts only

    torch.set_num_threads(threads())
    rows = 64 * threads()
    host = np.ones((rows, max(int(size / 4 / rows), 1)), np.float32)
    parts = np.split(host, threads())
    device, tensor = jnp.asarray(host), torch.from_numpy(host)
    sums = jax.jit(lambda x: jnp.sum(x, axis=1))
    ways: Mapping[str, Callable[[], object]] = {
        "numpy": lambda: _in_threads([functools.partial(np.vdot, part, part) for part in parts]),
        "jax": lambda: sums(device).block_until_ready(),
        "torch": tensor.sum,
    }
    passes = max(1, int(2e8 / host.nbytes))  # a small array is read often, so that starting a call counts little
    return host.nbytes / min(best_seconds(way, repeats, passes) for way in ways.values())


def product_rate(config: DecoderConfig, repeats: int = 7) -> float:
    """Returns float32 operations per second of the model's own products, the best of several row counts and shapes."""
    best = 0.0
    key = jax.random.key(0)
    wide = config.feed_forward
    product = jax.jit(jnp.dot)

    def multiply(x: jax.Array, w: jax.Array) -> None:
        product(x, w).block_until_ready()

    for rows in (32, 128, 512, 2048):
        for shape in ((config.width, wide), (wide, config.width), (config.width, config.width)):
            x, w = jax.random.normal(key, (rows, shape[0])), jax.random.normal(key, shape)
            operations = 2.0 * rows * shape[0] * shape[1]
            passes = max(1, int(2e9 / operations))
            seconds = best_seconds(functools.partial(multiply, x, w), repeats, passes)
            best = max(best, operations / seconds)
    return best


def _in_threads(works: Sequence[Callable[[], object]]) -> None:
    workers = [threading.Thread(target=work) for work in works]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


# ---- measuring -----------------------------------------------------------------------------------------------------


class Compilations:
    """Counts the programs XLA compiles."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **_: object) -> None:  # noqa: ARG002 - JAX names it
        self.count += event == "/jax/core/compile/backend_compile_duration"


def threads() -> int:
    """Returns how many cores this process may use; both sides use as many threads."""
    return len(os.sched_getaffinity(0))


CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
_CLOCK = "DFC_BENCHMARK_CLOCK"  # in the environment, so that processes of one point each have it


def use_clock(name: str) -> None:
    """Chooses what `seconds_of` counts: wall time, or processor time of this process.

    On a machine that does other work the processor time of one thread is what can be compared; with several, torch's
    spin while they wait for a core, and are counted.
    """
    if name == "cpu" and threads() > 1:
        raise SystemExit(f"--clock=cpu compares one thread a side, got {threads()} cores; run under taskset -c 0")
    os.environ[_CLOCK] = name


def seconds_of(work: Callable[[], object]) -> float:
    """Returns the seconds of one call by the chosen clock."""
    clock = CLOCKS[os.environ.get(_CLOCK, "wall")]
    begun = clock()
    work()
    return clock() - begun


def best_seconds(work: Callable[[], object], repeats: int, passes: int = 1) -> float:
    """Returns the shortest time of one call, each time the mean of `passes` calls in a row; one call goes before."""
    work()

    def some() -> None:
        for _ in range(passes):
            work()

    return min(seconds_of(some) for _ in range(repeats)) / passes


def take_turns(contestants: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Returns each contestant's seconds; all run once before the clock starts, then they take turns."""
    for work in contestants.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, work in contestants.items():
            times[name].append(seconds_of(work))
    return times


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def shown(values: Mapping[str, float], form: str = ",.0f") -> str:
    """Returns a spread as text: median (smallest..largest)."""
    return f"{values['median']:{form}} ({values['min']:{form}}..{values['max']:{form}})"
