"""Stand-ins for what is slow in a run; each writes down on a tape how the run uses it, and the run itself is dfc's own.

An engine that answers without a model, a trainer whose programs are Python (`stand_in_trainer`), weights of three
numbers, a run folder whose streams stay in memory.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import random
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import thinking_models
from jax.sharding import Mesh
from stand_in_trainer import (
    ScriptedCheckpointer,
    ScriptedTrainer,
    after_three_updates,
    made_optimizer,
    make_grpo_loss,
    make_rows_loss,
    make_self_play_losses,
)

from dfc.inference.protocol import EngineCounts, EngineReply
from dfc.models import families, huggingface, model_folders
from dfc.models.chat import ChatTokenizer
from dfc.runs.run_folder import RunFolder, json_line
from dfc.samples import Choices
from dfc.scoring.scorer import scores_of

BUNDLED = Path(huggingface.resolve("tiny_player"))
SAID = ("[4]", "[0]", "[7]", "[2 1]", "[0 1]", "[5]", "?", "[8", "[1 3] [2]")  # legal, illegal and unreadable replies


class Tape:
    """What a run has done, in its order."""

    def __init__(self):
        self.events = []

    def add(self, what, *values):
        self.events.append((what, *map(plain, values)))


def plain(value):
    """A value as what two runs can be compared by: an array as its numbers, a path as its name, code as nothing."""
    found = None if callable(value) else value
    match value:
        case np.ndarray() | np.generic() | jax.Array():
            array = np.asarray(value)
            found = (array.shape, str(array.dtype), array.tobytes())
        case Mesh():
            found = tuple(value.shape.items())
        case Mapping():
            found = tuple((key, plain(item)) for key, item in value.items())
        case list() | tuple():
            found = tuple(map(plain, value))
        case frozenset():
            found = tuple(sorted(value))
        case Path():
            found = value.name
        case _ if dataclasses.is_dataclass(value):
            found = (type(value).__name__, plain(vars(value)))
    return found


# ---- games -----------------------------------------------------------------------------------------------------------


_load_tokenizer = ChatTokenizer.load  # which a run finds `load_tokenizer` in the place of
_bundled_tokenizer = functools.cache(functools.partial(_load_tokenizer, BUNDLED))


def tokenizer():
    return _bundled_tokenizer()


@functools.cache
def _thinking_tokenizer(**given):
    """The bundled one, with a template that ends its prompt with a sign where it is told not to think."""
    with tempfile.TemporaryDirectory() as folder:
        return _load_tokenizer(thinking_models.write(Path(folder)), **given)


def load_tokenizer(folder, *, enable_thinking=None):
    """That of the bundled model once for all runs; hundreds of them load it."""
    if Path(folder) != BUNDLED:
        return _load_tokenizer(folder, enable_thinking=enable_thinking)
    return _bundled_tokenizer() if enable_thinking is None else _thinking_tokenizer(enable_thinking=enable_thinking)


@functools.cache
def bundled_shape(dtype):
    shape = families.from_config_json(model_folders.read_json(BUNDLED / model_folders.CONFIG))
    return dataclasses.replace(shape, layers=1, feed_forward=32, dtype=dtype)


class ScriptedEngine:
    """Says at random, by the seed of the conversation, what is allowed, or one of `SAID`, which a token may end."""

    def __init__(
        self, tape, config, params, *, slots, max_length, stop_token_ids, ends=None, rows=None, ended=False, **programs
    ):
        tape.add("engine", config.dtype, slots, max_length, stop_token_ids, ends is None, rows, programs)
        self.max_length, self.counts, self.free = max_length, EngineCounts(), slots
        self._tape, self._stops, self._ends, self._rows = tape, stop_token_ids, ends, rows
        self._ended, self._keeps_sets = ended, programs.get("kept_sets", False)
        self._versions, self._talks, self._asked, self._calls = {}, {}, [], collections.deque()
        self.set_params(params, 0)

    def set_params(self, params, version, adapters=None, *, policy="policy"):
        self._tape.add("weights of", policy, params, getattr(adapters, "scale", None))
        self._versions[policy] = version

    def forget_copies(self):
        """There are none."""

    def version(self, policy="policy"):
        return self._versions[policy]

    def open(self, seed, *, policy="policy", sampling=None):
        self._tape.add("conversation", policy, sampling)
        slot = next(n for n in range(1 << 20) if n not in self._talks)
        agrees = sampling is not None and sampling.temperature == 0  # a simulator, which has to say yes or no
        self._talks[slot], self.free = [policy, None if agrees else seed], self.free - 1
        return slot

    def close(self, slot):
        del self._talks[slot]
        self.free += 1

    def append(self, slot, token_ids):
        self._talks[slot] += token_ids

    def ask(self, slot, max_reply_length, actions=None):
        talk = self._talks[slot]
        self._tape.add("ask", hash(tuple(talk[2:])), max_reply_length, actions is None)
        self._asked.append((slot, min(max_reply_length, self.max_length - len(talk) + 2), actions))
        return True

    def launch(self):
        call, self._asked = self._asked[: self._rows], self._asked[self._rows :]
        if call:
            self._calls.append(call)
            self._tape.add("call", len(call))
        return bool(call)

    @property
    def in_flight(self):
        return len(self._calls)

    def collect(self):
        return [self._reply(*asked) for asked in self._calls.popleft()]

    def step(self):
        self.launch()
        return self.collect()

    def anyone(self, flag):
        return flag

    def _reply(self, slot, room, actions):
        policy, seed, *talk = self._talks[slot]
        draws, said, stopped = random.Random((seed or 0) * 1000 + len(talk)), [], False
        whole, node = [], 0
        if actions is None:
            asked = tokenizer().decode(talk) if seed is None else ""
            agreed = "<VALID>" if "<NOTVALID>" in asked else "Yes"
            whole = tokenizer().encode_reply(agreed if seed is None else draws.choice(SAID))
        if policy == "reference":  # a judge, whose marks can be read
            points = draws.choices((0, 1), k=7)
            summed = f"{'+'.join(map(str, points))}={sum(points)}"
            whole = tokenizer().encode_reply(f"<calculation>{summed}</calculation><score>{sum(points)}</score>")
        while actions is not None and node >= 0:
            token_id, node = draws.choice(actions.nodes[node])
            whole.append(token_id)
        if self._ended:
            whole.append(tokenizer().end_token_ids[0])
        for token_id in whole[:room]:
            said.append(token_id)
            stopped = token_id in self._stops or (self._ends is not None and self._ends(said) is not None)
            if stopped:
                break
        self._talks[slot] += said
        self.counts.generated_tokens += len(said)
        count, version = len(said), self._versions[policy]
        choices = Choices.of([[token_id] for token_id in said]) if self._keeps_sets else None
        return EngineReply(slot, said, [-0.5] * count, [-0.75] * count, [version] * count, stopped, choices=choices)


class Asked(Exception):  # noqa: N818 - the end of a tape, no error
    """An endpoint is about to be made: how it is asked is all there is to see."""


def load(tape, folder, *, mesh=None, dtype, nf4=False):
    tape.add("load", Path(str(folder)), mesh, dtype, nf4)
    return bundled_shape(dtype), {"w": jnp.ones(3)}


# ---- folders and reports ---------------------------------------------------------------------------------------------


class TapeFolder(RunFolder):
    """A run folder whose streams are on the tape; what else is written lies on the disk."""

    def __init__(self, tape, path, config):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        super().__init__(path, config, existed=False, lock=None)
        self.writes, self._tape, self._kept = True, tape, collections.defaultdict(list)

    def append(self, stream, records):
        for record in records:
            kept = json.loads(json_line(record))
            self._kept[stream].append(kept)
            self._tape.add(stream, {name: value for name, value in kept.items() if name != "clock"})

    def records(self, stream):
        return list(self._kept[stream])

    def positions(self):
        return {}

    sizes = positions

    def rewind(self, positions):
        """There is nothing after a checkpoint."""

    def flush(self):
        """Nothing waits to be written."""

    mend = flush

    def note_device(self, text):
        """The tape is of any device."""


class Shown:
    """What a person would see of every iteration."""

    def __init__(self, tape, _, total, start, shorter):
        del shorter  # for words
        tape.add("watched", total, start)
        self._tape = tape

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def show(self, found):
        self._tape.add("shown", {name: value for name, value in vars(found).items() if name != "clock"})


def write_tables(tape, tables):
    tape.add("tables", [table for table in tables if "seconds" not in table.header])


class Scored:
    """What scores answers, by their lengths."""

    def __init__(self, tape, references, limits=None, workers=0, check_stop=None, **more):
        del check_stop  # a stop's, no setting
        tape.add("scorer", references, limits, workers, more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __call__(self, queries, answers):
        del queries
        return scores_of((float(len(answer) % 2), "right" if len(answer) % 2 else "wrong") for answer in answers)


def endpoint(tape, *given, **more):
    tape.add("endpoint", given, more)
    raise Asked


def update_of_imitation(tape, model, transformation, most):
    """Stands in for `dfc.tools.small_models.imitation.make_update`."""
    tape.add("update", model, after_three_updates(transformation), most)

    def update(params, state, batches, bounds):
        tape.add("step", [tuple(batch) for batch in batches], bounds)
        return params, state, 1.0

    return update


def build_tokenizer(tape, messages, folder, *, size):
    tape.add("tokenizer", size, hash(tuple(messages)))
    shutil.copytree(BUNDLED, folder)


def save_tiny_player(tape, folder, model, _, *, copy_from):
    tape.add("save", folder, model)
    shutil.copytree(copy_from, folder, dirs_exist_ok=True)


class Inline:
    """An executor without threads."""

    def __init__(self, tape, workers):
        tape.add("threads", workers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, function, *items):
        return map(function, *items)


# ---- all of them -----------------------------------------------------------------------------------------------------

_MADE = {
    "dfc.rollout.host.Engine": ScriptedEngine,
    "dfc.players.endpoint.Endpoint.__init__": endpoint,
    "dfc.models.huggingface.load": load,
    "dfc.models.huggingface.save": save_tiny_player,
    "dfc.rollout.workers.ThreadPoolExecutor": Inline,
    "dfc.training.trainer.ThreadPoolExecutor": Inline,
    "dfc.training.online_trainer.Trainer": ScriptedTrainer,
    "dfc.training.games_run.Checkpointer": ScriptedCheckpointer,
    "dfc.methods.language_self_play.self_play_run.Checkpointer": ScriptedCheckpointer,
    "dfc.stages.offline.Trainer": ScriptedTrainer,
    "dfc.stages.offline.Checkpointer": ScriptedCheckpointer,
    "dfc.training.held_out.Checkpointer": ScriptedCheckpointer,
    "dfc.tools.small_models.imitation_run.Checkpointer": ScriptedCheckpointer,
    "dfc.tools.small_models.tiny_player.make_update": update_of_imitation,
    "dfc.tools.small_models.self_play_base.make_update": update_of_imitation,
    "dfc.tools.small_models.build_tokenizer.build": build_tokenizer,
    "dfc.report.watched.Watched": Shown,
    "dfc.stages.collect.Watched": Shown,
    "dfc.training.export.save_policy": lambda tape, *given, **more: tape.add("policy", given[:2], more["lora"]),
    "dfc.report.page.publish": lambda tape, _, results, **__: write_tables(tape, results.tables),
    "dfc.scoring.references.Mathematics": Scored,
    "dfc.scoring.references.Programs": Scored,
    "dfc.methods.language_self_play.rewards.PreferenceModel": Scored,
}
_NOTHING = ("dfc.report.watched.finish", "dfc.report.run_page.build", "dfc.runs.progress.Progress.update")
_SHARED = {
    "dfc.training.online_trainer.make_optimizer": made_optimizer,
    "dfc.stages.offline.make_optimizer": made_optimizer,
    "dfc.tools.small_models.tiny_player.make_optimizer": made_optimizer,
    "dfc.tools.small_models.self_play_base.make_optimizer": made_optimizer,
    "dfc.stages.offline.make_loss": make_rows_loss,
    "dfc.training.rl.make_loss": make_grpo_loss,
    "dfc.methods.language_self_play.update.make_losses": make_self_play_losses,
    "dfc.models.chat.ChatTokenizer.load": load_tokenizer,
    "dfc.tools.small_models.tiny_player.initialize": lambda *_: {"w": jnp.ones(3)},
    "dfc.tools.small_models.self_play_base.initialize": lambda *_: {"w": jnp.ones(3)},
    "dfc.models.model_folders.weights_hash": lambda _: "hash",
    "dfc.records.collection.git_commit": lambda: "commit",
}


@contextlib.contextmanager
def stand_ins(tape, *, ended=False):
    """Puts them in the place of what they stand for; replies end by themselves or not."""
    replaced = {target: functools.partial(made, tape) for target, made in _MADE.items()}
    replaced["dfc.rollout.host.Engine"] = functools.partial(ScriptedEngine, tape, ended=ended)
    replaced |= {target: lambda *_, **__: None for target in _NOTHING} | _SHARED
    with contextlib.ExitStack() as stack:
        for target, stand_in in replaced.items():
            stack.enter_context(mock.patch(target, stand_in))
        yield
