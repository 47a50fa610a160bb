"""Runs of the recipe `evaluate_answers` in tests, stops at a given moment, files of answers and judges of them."""

import json
import re

import recipe_runs
from chat_server import completion
from recipe_runs import lines

from dfc import validation
from dfc.config import AnswersRolloutConfig, EndpointConfig, EvaluateAnswers, PairwiseConfig, SamplingConfig
from dfc.errors import Interrupted
from dfc.evaluation import pairwise
from dfc.runs.stop_signals import Stop


def run(config, path, stop=None):
    """Returns the records of a run."""
    assert validation.problems(config) == []
    return lines(recipe_runs.run(path, config, stop), "episodes")


class StopAt(Stop):
    """Asks for a stop when it has been looked at so often."""

    def __init__(self, checks):
        super().__init__()
        self._left = checks

    def check(self):
        self._left -= 1
        if self._left < 0:
            raise Interrupted(15)


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)) if path.suffix == ".jsonl" else json.dumps(rows))
    return path


def parts(body):
    """(query, answer A, answer B) as a judge is shown them."""
    text = body["messages"][-1]["content"]
    mark = re.search(r"begin with (#\w+)", text)[1]
    return [part.split("\n", 1)[1].removesuffix("\n") for part in text.split(mark)[2:5]]


def judging(decide):
    """What a server says that decides by a function of the query and the two answers."""

    def act(handler, body):
        handler.send(200, json.dumps(completion(decide(*parts(body)))).encode())

    return act


def longer(_, first, second):
    return f"Length.\nVerdict: {'tie' if len(first) == len(second) else 'A' if len(first) > len(second) else 'B'}"


def outputs(path, texts):
    return str(write(path, [{"instruction": f"Say {n}.", "output": text} for n, text in enumerate(texts)]))


def config_of(file, server, **changes):
    own = {
        "instructions": str(file),
        "baseline": "initial",
        "judge": f"{server.url}#m" if hasattr(server, "url") else server,
        "endpoint": EndpointConfig(backoff=0.0, retries=2),
    }
    own |= changes.pop("pairwise", {})
    settings = {
        "name": "answers",
        "policies": ("initial", "again=tiny_player"),
        "sampling": SamplingConfig(temperature=1.0),
        "rollout": AnswersRolloutConfig(slots=2, max_length=256, max_reply_length=8),
        "pairwise": PairwiseConfig(**own),
    }
    return EvaluateAnswers(**settings | changes)


def pairs_of(records):
    return [one for one in records if pairwise.is_comparison(one)]


def many(tmp_path, count=150):
    rows = [{"instruction": f"Say {n}."} for n in range(count)]
    files = {
        name: outputs(tmp_path / f"{name}.json", [f"{name} {n}" for n in range(count)]) for name in ("mine", "theirs")
    }
    return write(tmp_path / "many.json", rows), files
