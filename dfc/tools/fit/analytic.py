"""Memory and arithmetic of a stage by summing, without a compiler; milliseconds.

State (weights, optimizer, reference, cache) is exact. What a training step holds in between is a formula with a few
constants: within about 15 % of the compiler for the programs it was compared with (docs/fit.md), usually below it.
`MARGIN` is therefore added before anything is said to fit. What no formula sees (an array left unsplit, a buffer
copied because it could not be donated) a compile does.
"""

import dataclasses
from collections.abc import Mapping

from dfc.inference.decoding_mesh import sent_bytes
from dfc.logprobs import VOCAB_CHUNK
from dfc.models.attention import xla_queries_at_once
from dfc.models.cache import BLOCK
from dfc.models.config import DecoderConfig
from dfc.samples import MOST_CHOICES
from dfc.tools.fit.workload import Workload, adapter_parameters, parameters, split
from dfc.training.batch_logprobs import HEAD_TOKENS_PER_DEVICE

MARGIN = 0.2
MOVED, KEPT_SETS = "weights split for playing", "kept sets"

Sizes = dict[str, float]


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Attributes: bytes on one device by part, everything stored there, in each phase of a stage."""

    phases: Mapping[str, Sizes]

    @property
    def peaks(self) -> dict[str, float]:
        """Bytes of each phase."""
        return {name: sum(parts.values()) for name, parts in self.phases.items()}

    @property
    def dearest(self) -> str:
        """The phase that needs most."""
        return max(self.peaks, key=self.peaks.__getitem__)

    @property
    def peak(self) -> float:
        """Bytes of that phase."""
        return max(self.peaks.values())

    def fits(self, available: float, margin: float = MARGIN) -> bool:
        """Whether the peak, a margin added, is within the available bytes."""
        return self.peak * (1 + margin) <= available

    def culprits(self, number: int = 3) -> list[tuple[str, float]]:
        """Returns the largest parts of the phase that needs most."""
        return sorted(self.phases[self.dearest].items(), key=lambda part: -part[1])[:number]


def memory(workload: Workload) -> MemoryEstimate:
    """Sums what one device holds."""
    s = workload
    found = _training_phases(s) if s.trains else {}
    if s.plays:
        found["playing"] = _resident(s) | _caches(s) | _moved(s) | _play(s.played)
        if s.compares:
            found["playing"] |= _made(s)
        if s.past_policies:  # one of them as it plays
            found["playing"]["opponent"] = _decoding(s)
    if s.lora is not None:
        found["saving"] = _saving(s)
    return MemoryEstimate({name: {n: size for n, size in parts.items() if size} for name, parts in found.items()})


def _trained(s: Workload) -> float:
    """Numbers on one device of what is trained."""
    return float(s.parameters.local) if s.lora is None else adapter_parameters(s.model, s.lora, s.mesh)


def _master(s: Workload) -> float:
    return (4 if s.lora is not None else s.master_bytes) * _trained(s)


def _decoding(s: Workload) -> float:
    """Bytes of a trained policy as it plays, beside what is frozen."""
    return 4 * _trained(s) if s.lora is not None else s.weight_bytes * s.parameters.local


def _made(s: Workload) -> Sizes:
    """What an update allocates in addition to its inputs, or keeps of them."""
    return {"weights after the update": _master(s), "optimizer after the update": 8 * _trained(s)}


def _state(s: Workload) -> Sizes:
    """What training holds for rows of any source."""
    stacked = s.training.scan_layers
    found = {"trained weights": _master(s), "optimizer": 8 * _trained(s)}
    if s.lora is not None:
        found["frozen weights, stacked" if stacked else "initial policy"] = s.frozen
    elif s.plays and s.reference and stacked:
        found["reference policy, stacked"] = s.frozen
    return found


def _resident(s: Workload) -> Sizes:
    """What a stage holds throughout."""
    found = {"initial policy" if s.trains else "model": s.frozen} if s.plays else {}
    for other in s.others:
        found[other.name] = other.bytes * parameters(other.model, s.mesh).local
    if not s.trains:
        return found
    found |= _state(s)
    if s.plays and not s.one_layout:
        found |= {"trained weights at the start": _master(s)} if s.begins else {}
        found["weights for decoding"] = _decoding(s)
    if s.role_adapters:  # as it is trained, its optimizer, and as it plays
        found["the Challenger's adapter"] = _master(s) + 8 * _trained(s) + _decoding(s)
    if s.plays:
        found["policies of other groups"] = s.group_policies * _master(s)
        found["past policies"] = s.past_policies * _master(s)
    return found


def _training_phases(s: Workload) -> dict[str, Sizes]:
    resident, found = _resident(s), {}
    gradients = 4.0 if s.lora is not None else float(s.master_bytes)
    work, trained = _activations(s), _trained(s)
    if s.lora is not None and not s.plays:
        # The model as it is read, and as it is computed with.
        found["loading"] = {"initial policy": s.frozen} | {n: x for n, x in resident.items() if n != "optimizer"}
    if s.scores and not s.plays:
        given = {name: size for name, size in resident.items() if name != "optimizer"}
        found["reference"] = given | {name: size for name, size in work.items() if name != "residuals"}
    gradient = {"gradients": gradients * trained, "summed gradients": 4 * trained if s.micro_batches > 1 else 0.0}
    others = {"gradients of other losses": 4 * trained * (s.parts - 1)}
    gradient |= others
    # Those computed at the same time on threads of their own.
    more = (s.batch.workers - 1) * (gradients * trained + sum(work.values()))
    if s.updates > 1:
        gradient |= {"weights before the first update": _master(s), "optimizer before the first update": 8 * trained}
    found["gradient"] = resident | gradient | work | {"micro-batches side by side": more}
    # An update that may be dropped, or that starts from what others start from, is made beside what it starts from;
    # those after it are made in place, beside the same.
    found["optimizer step"] = resident | {"gradients": (4.0 if s.micro_batches > 1 else gradients) * trained} | others
    # What is added to the weights is whole before any of it is; where there are new weights it uses their memory.
    found["optimizer step"] |= _made(s) if s.keeps else {"updates": 4 * trained}
    return found


def _saving(s: Workload) -> Sizes:
    """What is in memory while a model with merged adapters is written; kernels are counted as if all had some."""
    full = s.weight_bytes * s.parameters.local
    merged = {"merged weights": full * s.parameters.products / s.parameters.total}
    if not s.plays:
        return {"trained weights": _master(s), "weights at full precision": full, **merged}
    if s.adapter.base == "full":
        return _resident(s) | _caches(s) | merged
    kept = {name: size for name, size in _resident(s).items() if name != "frozen weights, stacked"}
    return kept | {"weights at full precision": full, **merged}


def _caches(s: Workload) -> Sizes:
    others = (s.rollout.workers - 1) * cache_bytes(s)
    for other in s.others:
        if other.engines:
            others += s.rollout.workers * cache_bytes(dataclasses.replace(s, model=other.model))
    return {"cache": cache_bytes(s), "other engines' caches": others}


def _moved(s: Workload) -> Sizes:
    """Copies that engines make of weights where playing splits them otherwise than training."""
    if s.played is s:
        return {}
    adapters = 0.0 if s.lora is None else 4 * adapter_parameters(s.model, s.lora, s.played.mesh)
    one = s.played.frozen + adapters
    others = sum(other.bytes * parameters(other.model, s.played.mesh).local for other in s.others if other.plays)
    others += (s.policies - 1) * one + (s.rollout.workers - 1) * (s.policies * one + others)
    return {MOVED: one, f"others' {MOVED}": others}


def _bytes_per_position(s: Workload) -> float:
    """Bytes on one device of one conversation's keys and values at one position."""
    tensor = s.played.mesh.tensor
    return s.model.cache_bytes_per_position / (tensor if s.model.kv_heads % tensor == 0 else 1)


def cache_bytes(workload: Workload) -> float:
    """Returns the bytes of an engine's resident keys and values on one device."""
    return workload.held_here * workload.positions * _bytes_per_position(workload)


def past_bytes(workload: Workload) -> float:
    """Returns the bytes on one device of the keys and values that an engine's costliest call reads."""
    return workload.rows_here * workload.positions * _bytes_per_position(workload)


def _activations(s: Workload) -> Sizes:
    """What a forward and backward pass of one micro-batch adds, but for the gradients of what is trained."""
    model, count, size, tensor = s.model, s.parameters, s.weight_bytes, s.mesh.tensor
    row = s.batch.row_length
    tokens = s.local_rows * row  # before they are split over tensor devices
    heads, kv_heads = model.heads * model.head_dim / tensor, model.kv_heads * model.head_dim / tensor
    columns = model.feed_forward / tensor
    narrow = model.width / (tensor if row % tensor == 0 else 1)
    per_layer = {
        "layer": narrow,
        "offload": 0.0,
        "dots": narrow + 2 * heads + 2 * kv_heads + 2 * columns + narrow,
        "none": 8 * narrow + 4 * heads + 8 * kv_heads + 4 * columns,
    }[s.training.remat]
    casts = s.lora is None and s.master_bytes != size
    # One layer's activations and their gradients, and what is gathered of its weights.
    at_work = size * tokens * (4 * columns + 4 * model.width + 4 * heads + 8 * kv_heads)
    at_work += 2 * size * count.largest_layer_local
    if s.adapter.base == "nf4":
        at_work += size * count.products / model.layers / tensor
    parts = {
        "weights cast": size * count.local if casts else 0.0,
        "residuals": size * model.layers * tokens * per_layer,
        "layer at work": at_work,
    }
    if s.training.attention == "xla":
        parts["attention weights"] = 10.0 * s.local_rows * model.heads / tensor * xla_queries_at_once(row) * row
    elif s.training.attention == "cudnn":
        parts["attention mask"] = 3.0 * s.local_rows * row**2  # a flag, and what is added to the logits
    tile = min(HEAD_TOKENS_PER_DEVICE, tokens) * min(VOCAB_CHUNK, int(split(model.vocabulary, tensor)))
    # Logits, probabilities and gradient of a tile; the projection's gradient, summed in float32.
    head = 4.0 * model.vocabulary * model.width / (s.mesh.fsdp * tensor) if s.lora is None else 0.0
    # Distributions to imitate, and logits, of every token at once.
    parts["logits"] = 16.0 * tokens * model.vocabulary if s.soft else 12.0 * tile + head
    if s.kept_sets:
        # The sets, their products, logits and gradients; on several devices also the rows of the embedding in full
        # width, and the sums of their gradients.
        parts[KEPT_SETS] = 16.0 * tokens * MOST_CHOICES
        if s.devices > 1:
            parts[KEPT_SETS] += (12.0 if s.lora is None else 8.0) * split(model.vocabulary, tensor) * model.width
    return parts


def _play(s: Workload) -> Sizes:
    model, tensor = s.model, s.mesh.tensor
    heads = model.heads / tensor if model.kv_heads % tensor == 0 else model.heads
    prefill_tokens = s.rows_here * s.prefill
    return {
        "attention weights": 10.0 * prefill_tokens * heads * min(BLOCK, s.rollout.max_length),
        "layer at work": s.weight_bytes * prefill_tokens * (4 * model.feed_forward / tensor + 8 * model.width),
        "logits": 16.0 * s.rows_here * split(model.vocabulary, tensor),
        # Those of a call, of all devices, as the host reads them.
        **({KEPT_SETS: 4.0 * s.call_rows * s.steps * (1 + MOST_CHOICES)} if s.kept_sets else {}),
    }


# ---- arithmetic -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WorkEstimate:
    """Floating-point operations, and bytes of device memory, of one run of a program on one device.

    Attributes:
      flops: operations.
      bytes: read and written.
      sent: bytes that the device sends to others; 0 where no formula is known.
      span: devices, neighbours of each other, among which it sends them.
    """

    flops: float
    bytes: float
    sent: float = 0.0
    span: int = 1


def forward_flops(model: DecoderConfig, tokens: float, context: float) -> float:
    """Returns the operations of the layers for `tokens` tokens that each see `context` tokens on average."""
    count = parameters(model)
    attention = 4.0 * model.layers * model.heads * model.head_dim * tokens * context
    return 2.0 * count.products * tokens + attention


def update_work(workload: Workload) -> WorkEstimate:
    """Work of one micro-batch: reference pass, forward, backward, and what is computed again, on one device."""
    s, model = workload, workload.model
    tokens = s.batch.micro_batch_rows * s.batch.row_length
    forward = forward_flops(model, tokens, s.batch.row_length / 2)
    head = 2.0 * model.width * model.vocabulary * tokens
    again = {"none": 0.0, "dots": 0.0, "layer": 1.0, "offload": 1.0}[s.training.remat]
    backward = 2.0 if s.lora is None else 1.0  # frozen weights get no gradient of their own
    with_reference = 1.0 if s.plays and s.reference else 0.0
    passes = 1.0 + again + backward + with_reference
    # The projection to the vocabulary: forward, again, and two products backward (one if it is frozen).
    heads = 2.0 + backward + with_reference
    moved = s.frozen * passes + 2 * _activations(s)["residuals"]
    return WorkEstimate((passes * forward + heads * head) / s.devices, moved)


def score_work(workload: Workload) -> WorkEstimate:
    """Work of log-probabilities of one micro-batch, apart from updates, on one device."""
    s = workload
    tokens = s.batch.micro_batch_rows * s.batch.row_length
    flops = forward_flops(s.model, tokens, s.batch.row_length / 2) + 2.0 * s.model.width * s.model.vocabulary * tokens
    return WorkEstimate(flops / s.devices, s.frozen)


def optimizer_work(workload: Workload) -> WorkEstimate:
    """Work of the optimizer's step: everything it owns is read, and all but the gradients is written."""
    step = memory(workload).phases["optimizer step"]
    return WorkEstimate(0.0, 2 * (step["optimizer"] + step["trained weights"]) + step["gradients"])


def decode_work(workload: Workload) -> WorkEstimate:
    """Work of one call that samples `steps` tokens in each of its rows, at the longest cache.

    Weights and the rows' past are read in every step.
    """
    s, model = workload, workload.model
    tokens = float(s.call_rows * s.steps)
    flops = forward_flops(model, tokens, s.rollout.max_length) + 2.0 * model.width * model.vocabulary * tokens
    step = _weights_read(s.played) + past_bytes(s)
    sent = sent_bytes(model, s.played.mesh, s.call_rows)
    return WorkEstimate(flops / s.devices, s.steps * step, s.steps * sent, _span(s.played))


def prefill_work(workload: Workload) -> WorkEstimate:
    """Work of the engine's widest prefill call, at the longest cache; each row then samples one token."""
    s, model = workload, workload.model
    rows = float(s.call_rows)
    flops = forward_flops(model, rows * s.prefill, s.rollout.max_length) + 2.0 * model.width * model.vocabulary * rows
    return WorkEstimate(flops / s.devices, _weights_read(s.played) + past_bytes(s))


def _span(s: Workload) -> int:
    """Devices, one after another, that send each other what `sent_bytes` counts."""
    return s.mesh.tensor * s.mesh.fsdp


def _weights_read(s: Workload) -> float:
    """Bytes of weights that one step of playing reads, as they are stored, four bits included."""
    embedding = s.weight_bytes * s.model.vocabulary * s.model.width / (s.mesh.fsdp * s.mesh.tensor)
    unread = 0.0 if s.model.tied_embedding else embedding  # a few rows of the input embedding are looked up
    adapters = 0.0 if s.lora is None else 4 * adapter_parameters(s.model, s.lora, s.mesh)
    return s.frozen + adapters - unread
