"""Whether games are the same in every process: sets and hashes of text have an order of their own in each.

Games are played in fresh interpreters with different PYTHONHASHSEED, and what was seen is compared. This module is also
the program that runs there: names and seeds as JSON on the standard input, what was seen on the standard output.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from dfc.games import registry, scripted
from dfc.games.conformance.protocol import MIDGAME, Subject, everyone
from dfc.games.rng import GameRng, derive_seed

_HASH_SEEDS = ("0", "1", "2", "3")  # two texts of a set have the same order in all four by one chance in eight
_SECONDS = 600.0  # by the clock, of one process
_PARTS = {  # what is compared, in this order -> what is wrong where it differs
    "legal": "`legal_actions` differs between processes",
    "shown": "`observation` differs between processes",
    "state": "`_state` differs between processes",
}
_HINT = "; use no order of a set and no `hash` of text: sort, or keep a list"


def differences(names: Sequence[str], seeds: Sequence[int]) -> dict[str, str]:
    """Returns by name what differs between processes; names that are alike in all of them are missing.

    `names` are as for `dfc.games.registry.make`, of games that keep the other properties; each seed is played for some
    replies.
    """
    if not names:
        return {}
    seen = []
    for hash_seed in _HASH_SEEDS:
        try:
            seen.append(_other_process(names, seeds, hash_seed))
        except (ValueError, subprocess.SubprocessError) as error:
            return dict.fromkeys(names, f"a process of its own with PYTHONHASHSEED={hash_seed} failed: {error}")
    first, *others = seen
    found = {}
    for name in names:
        told = [told for other in others if (told := _difference(first[name], other[name]))]
        if told:
            found[name] = told[0]
    return found


def _difference(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> str:
    for here, there in zip(one, other, strict=False):
        for part, sentence in _PARTS.items():
            if here[part] != there[part]:
                lists = f": {here['first']} and {there['first']}" if here["first"] != there["first"] else ""
                return f"seed {here['seed']}, reply {here['reply']}: {sentence}{lists}{_HINT}"
    return ""


def _other_process(names: Sequence[str], seeds: Sequence[int], hash_seed: str) -> dict[str, list[dict[str, Any]]]:
    path = os.pathsep.join(entry or str(pathlib.Path.cwd()) for entry in sys.path)
    # The command is this interpreter with this module.
    done = subprocess.run(
        [sys.executable, "-m", "dfc.games.conformance.processes"],
        input=json.dumps([list(names), list(seeds)]),
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
    )
    if done.returncode:
        raise ValueError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    seen: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return seen


def _seen(name: str, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Plays games as every process does; returns what is seen before each reply, long parts as hashes."""
    subject = Subject(functools.partial(registry.make, name), seeds, scripted.simulators(name))
    found = []
    for seed in seeds:
        game = subject.started(seed)
        rng = GameRng(derive_seed("processes", seed))
        for reply in range(1, MIDGAME + 1):
            legal = game.legal_actions()
            found.append(
                {
                    "seed": seed,
                    "reply": reply,
                    "first": legal[:3],
                    "legal": _hashed(legal),
                    "shown": _hashed([game.observation(seat) for seat in everyone(game)]),
                    "state": _hashed(game.to_json()),
                }
            )
            if game.over:
                break
            game.step(subject.reply(game, rng))
    return found


def _hashed(value: object) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


def main() -> None:
    """Reads what is to be played, writes what was seen."""
    names, seeds = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # what games print
        seen = {name: _seen(name, seeds) for name in names}
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
