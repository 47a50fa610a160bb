"""Runs the study of kept sets: GRPO that samples with min-p, beside plain sampling, and refilled groups.

    python benchmarks/kept_sets_study.py [--out=runs/kept_sets] [--data=docs/results/data/kept_sets.json]
        [--only=TEXT] [--smollm2=FOLDER] [--list] [--report]

Part A: `configs/quickstart.py`, seeds 3 to 5, in two arms: `none` samples as the file says (temperature 1, no filter),
`min_p` at temperature 1.3 with min-p 0.1. A third arm, `uncorrected`, seed 3 only, samples as `min_p`, and its update
normalises over the whole vocabulary as if no filter had been on: the sets that were kept are dropped from what is
trained on. That recipe takes no custom method, so this script puts another one in the place of
`divide_fuse_conquer.method_of`, in the process of that run alone.
Part B: SmolLM2-135M at Nim by `configs/smollm2.py`, one seed, plain and with the same sampling.
Part C: what further groups in the place of those that teach nothing cost and bring (`refill`): the recipe `grpo` from
where `none` of seed 3 ended (`refill`), and from the bundled model (`refill_start`), at the same games against the
bundled model, with three settings one after the other in one process.
Every policy is measured after its run by games on deals that no training used, against the initial policy: all under
one plain sampling (temperature 1, no filter), and under its arm's own; both seats sample alike.

Each run is a process of its own, resumed if it was stopped; its figures go to `--data` when it ends, and what is there
is not run again. `--list` prints the runs and the minutes each has taken, `--report` the tables and verdicts.
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from study_command import seconds
from study_tables import Row, claims_table, table

from dfc.evaluation.claims import Claim

ROOT = Path(__file__).resolve().parents[1]
SEEDS, SMOLLM2_SEED = (3, 4, 5), 1
PLAIN: dict[str, Any] = {"temperature": 1.0, "min_p": 0.0}
MIN_P: dict[str, Any] = {"temperature": 1.3, "min_p": 0.1}
ARMS = {"none": PLAIN, "min_p": MIN_P, "uncorrected": MIN_P}
# Half of the file's iterations in all arms, so that seven runs fit into an hour; matches inside a run sample as the arm
# does and compare nothing, so that they are few.
QUICKSTART = {"divide_iterations": 12, "conquer_iterations": 16, "evaluation.games": 20, "evaluation.stage_games": 4}
SMOLLM2 = {"games": {"Nim-v0": {}}, "iterations": 5, "acceptance.games": 2, "evaluation.games": 2}
ALONE = ("GuessTheNumber-v0", "TowerOfHanoi-v0")
REFILLS, REFILL_ITERATIONS = (0, 1, 3), 8
PURPOSE, AGAIN = "kept sets", "kept sets again"  # of the deals that measure, and of further games on them
# Part -> games of each game id that measure a policy, how many of its deals are played REPLAYS times in all.
MEASURED = {"A": (200, 20), "B": (100, 2), "C": (200, 20)}
REPLAYS = 8
OVER_RUN = ("ratio", "clip_fraction", "gradient_norm", "kept_tokens/mean", "kept_tokens/max", "kept_tokens/cut", "loss")
OF_FIRST_UPDATE = ("sampler_gap/mean", "sampler_gap/max", "sampler_gap/kl")


@dataclasses.dataclass(frozen=True)
class Run:
    """A run with what measures it: its part, arm and seed."""

    part: str
    arm: str
    seed: int

    @property
    def name(self) -> str:
        """In the data, and of its folder."""
        return f"{self.part}/{self.arm}/{self.seed}"


RUNS = (
    *(Run("A", arm, 3) for arm in ("none", "min_p", "uncorrected")),
    *(Run("A", arm, 4) for arm in ("min_p", "none")),
    *(Run("A", arm, 5) for arm in ("min_p", "none")),
    *(Run("B", arm, SMOLLM2_SEED) for arm in ("none", "min_p")),
    *(Run("C", arm, 3) for arm in ("refill", "refill_start")),
)


# ---- claims ----------------------------------------------------------------------------------------------------------


def differences(data: Mapping[str, Any], figure: str) -> list[float]:
    """Returns min_p less none of a figure under plain sampling, by seed."""
    pairs = [(data.get(f"A/min_p/{seed}"), data.get(f"A/none/{seed}")) for seed in SEEDS]
    return [a["plain"][figure] - b["plain"][figure] for a, b in pairs if a is not None and b is not None]


CLAIMS = (
    Row(
        Claim("min_p plays no worse than none: score in two-player games", margin=-0.05, foreseen=0.07),
        lambda data: differences(data, "score"),
        unit="",
        digits=3,
    ),
    Row(
        Claim("min_p stays more diverse than none: nats of a sampled token", foreseen=0.1),
        lambda data: differences(data, "nats"),
        unit="nats",
        digits=3,
    ),
)


# ---- running ---------------------------------------------------------------------------------------------------------


def config_of(run: Run, smollm2: str) -> Any:  # noqa: ANN401 - one of two recipes
    """Returns a run's configuration."""
    import dfc  # noqa: PLC0415 - `--list` needs none

    changes = {**SMOLLM2, "model.path": smollm2} if run.part == "B" else QUICKSTART
    sampling = {f"sampling.{name}": value for name, value in ARMS.get(run.arm, PLAIN).items()}
    file = "configs/smollm2.py" if run.part == "B" else "configs/quickstart.py"
    return dfc.load_config(file, {**changes, **sampling, "seed": run.seed})


def without_sets(config: Any) -> Any:  # noqa: ANN401 - as `method_of`
    """Returns the method whose update knows nothing of filters: it trains on the same tokens without their sets."""
    from dfc.training import rl  # noqa: PLC0415 - as above

    def advantages(*given: Any) -> Any:  # noqa: ANN401 - as `rl.group_advantages`
        shares = rl.group_advantages(*given)
        return [[dataclasses.replace(one, choices=None) for one in share] for share in shares]

    return dataclasses.replace(rl.grpo(config), advantages=advantages)


def carry_out(run: Run, out: Path, smollm2: str) -> dict[str, Any]:
    """Runs or resumes a run in this process, and measures what it made; returns its figures."""
    import dfc  # noqa: PLC0415 - as above
    from dfc.methods import divide_fuse_conquer  # noqa: PLC0415 - as above

    config, folder = config_of(run, smollm2), out / run.name
    if run.part == "C":
        return {str(number): refill(run, config, out, number) for number in REFILLS}
    method = without_sets if run.arm == "uncorrected" else divide_fuse_conquer.method_of
    with mock.patch.object(divide_fuse_conquer, "method_of", method):
        dfc.run(config, folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {"minutes": seconds(folder) / 60, "training": training(rows), **measured(run, config, folder)}


def refill(run: Run, quickstart: Any, out: Path, number: int) -> dict[str, Any]:  # noqa: ANN401 - a configuration
    """Runs `grpo` with so many rounds of further groups; returns figures by iteration."""
    import dfc  # noqa: PLC0415 - as above
    from dfc.config import AcceptanceConfig, Grpo, MatchesConfig  # noqa: PLC0415 - as above

    path = "tiny_player" if run.arm == "refill_start" else str(out / "A/none/3/policy")
    names = [one.name for one in dataclasses.fields(Grpo) if hasattr(quickstart, one.name)]
    changes = {
        "model": dataclasses.replace(quickstart.model, path=path),
        "opponent": "tiny_player",
        "acceptance": AcceptanceConfig(rule="always", games=2),
        "evaluation": MatchesConfig(games=2),
        "iterations": REFILL_ITERATIONS,
        "refill": number,
    }
    folder = out / run.name / str(number)
    dfc.run(Grpo(**{**{name: getattr(quickstart, name) for name in names}, **changes}), folder)
    found: dict[str, Any] = defaultdict(list)
    for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        metrics, clock = row["metrics"], row["clock"]
        groups = quickstart.groups_per_game * len(quickstart.games)
        dead = metrics.get("refill/dead", round(dead_groups(metrics) * groups))
        left, games = metrics.get("refill/left", dead), metrics["episodes"]
        live = groups - left
        of_live = {"live_groups_per_update": live / metrics["updates"], "games_per_live_group": games / live}
        times = {name: clock[name] for name in ("seconds", "rollout_seconds", "training_seconds")}
        for name, value in {"dead": dead, "left": left, "games": games, **of_live, **times}.items():
            found[name].append(value)
    return {**found, **measured(run, quickstart, folder)}


def training(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what the records of a run say of its updates: of the first and the last iteration, and over all."""
    found: dict[str, Any] = {}
    for place, row in (("first", rows[0]), ("last", rows[-1])):
        metrics = row["metrics"]
        found[place] = {name: metrics[name] for name in (*OVER_RUN, *OF_FIRST_UPDATE) if name in metrics}
        found[place]["dead_groups"] = dead_groups(metrics)
    for name in (*OVER_RUN, *OF_FIRST_UPDATE):
        if values := [row["metrics"][name] for row in rows if name in row["metrics"]]:
            found[name] = {"mean": statistics.fmean(values), "max": max(values)}
    found["dead_groups"] = statistics.fmean(dead_groups(row["metrics"]) for row in rows)
    found["accepted"] = statistics.fmean(row["metrics"]["accepted"] for row in rows)
    found["iterations"] = len(rows)
    return found


def dead_groups(metrics: Mapping[str, float]) -> float:
    """Returns the share of an iteration's groups whose rewards are all equal."""
    games = [name.split("/")[1] for name in metrics if name.endswith("/dead_groups")]
    groups = [metrics[f"games/{game}/seeds"] for game in games]
    dead = [metrics[f"games/{game}/dead_groups"] for game in games]
    return sum(g * d for g, d in zip(groups, dead, strict=True)) / sum(groups)


def measured(run: Run, config: Any, folder: Path) -> dict[str, Any]:  # noqa: ANN401 - one of two recipes
    """Returns figures of a run's final policy, and of the initial one where the run is the part's first of its seed."""
    from dfc.config import SamplingConfig  # noqa: PLC0415 - as above
    from dfc.players import player_specs  # noqa: PLC0415 - as above
    from dfc.rollout.host import PolicyWeights  # noqa: PLC0415 - as above
    from dfc.rollout.workers import RolloutWorkers  # noqa: PLC0415 - as above

    workers = RolloutWorkers(dataclasses.replace(config, sampling=SamplingConfig()), sampling=SamplingConfig())
    trained = workers.weights_of(player_specs.parse(f"trained={folder}"))
    plain, own = SamplingConfig(**PLAIN), SamplingConfig(**ARMS.get(run.arm, PLAIN))
    found = {"plain": figures(run, config, workers, trained, plain)}
    if own != plain:
        found["own"] = figures(run, config, workers, trained, own)
    elif run.part != "C" and run.seed in (SEEDS[0], SMOLLM2_SEED):
        initial = PolicyWeights(workers.initial_params)
        found["initial_plain"] = figures(run, config, workers, initial, plain)
        if run.part == "A":
            found["initial_min_p"] = figures(run, config, workers, initial, SamplingConfig(**MIN_P))
    workers.close()
    return found


def figures(run: Run, config: Any, workers: Any, weights: Any, sampling: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Returns what games of a policy against the initial one show, all of them on deals that no training used.

    ``score``: won and half of drawn over all two-player games, with its interval over games; ``games``: each game's,
    for one player the share solved; ``nats``: minus the log-probability of a sampled token, the mean of a game's
    tokens, then over games; ``distinct``: of REPLAYS games on one deal with other random numbers, how many differ in a
    reply, as a share, the mean over deals and games.
    """
    from dfc.evaluation import matches  # noqa: PLC0415 - as above
    from dfc.evaluation import statistics as counts  # noqa: PLC0415 - as above
    from dfc.games.rng import derive_seed  # noqa: PLC0415 - as above

    games, deals = MEASURED[run.part]
    specs = matches.match_specs(config.games, games, run.seed, PURPOSE)
    again = [
        dataclasses.replace(spec, seed=derive_seed(AGAIN, spec.seed, number))
        for spec in specs
        if spec.group < deals
        for number in range(1, REPLAYS)
    ]
    begun = time.perf_counter()
    episodes = workers.play([*specs, *again], weights, "initial", sampling=sampling)
    once = episodes[: len(specs)]
    records = matches.by_game(matches.tally(once))
    alone = {game: workers.info[game].seats == 1 for game in records}
    said: dict[str, list[float]] = defaultdict(list)
    replayed: dict[tuple[str, int], set[tuple[tuple[int, str], ...]]] = defaultdict(set)
    for episode in once:
        said[episode.game] += (-episode.sample.sampled_logprobs[episode.sample.mask]).tolist()
    for episode in episodes:
        if episode.group < deals:
            replies = tuple((reply.seat, reply.text) for reply in episode.replies)
            replayed[episode.game, episode.group].add(replies)
    nats = {game: statistics.fmean(values) for game, values in said.items()}
    distinct = {game: [len(v) / REPLAYS for (g, _), v in replayed.items() if g == game] for game in records}
    pooled = counts.pooled_score(record for game, record in records.items() if not alone[game])
    return {
        "score": pooled.estimate,
        "score_interval": [pooled.low, pooled.high],
        "games": {game: list(record.measured(alone=alone[game])) for game, record in records.items()},
        "illegal": {game: record.illegal_share + record.malformed_share for game, record in records.items()},
        "nats": statistics.fmean(nats.values()),
        "nats_by_game": nats,
        "distinct": statistics.fmean(statistics.fmean(shares) for shares in distinct.values()),
        "distinct_by_game": {game: statistics.fmean(shares) for game, shares in distinct.items()},
        "seconds": time.perf_counter() - begun,
    }


def report(data: Mapping[str, Any]) -> str:
    """Returns the tables of what has run."""
    lines: list[list[str]] = []
    for name, found in data.items():
        for measure in ("initial_plain", "initial_min_p", "plain", "own"):
            if (one := found.get(measure)) is None:
                continue
            low, high = one["score_interval"]
            solved = [f"{one['games'][game][0]:.3f}" for game in ALONE if game in one["games"]]
            score = f"{one['score']:.3f} [{low:.3f}, {high:.3f}]"
            lines.append([name, measure, score, *(solved or ["", ""]), f"{one['nats']:.3f}", f"{one['distinct']:.3f}"])
    head: tuple[str, ...] = ("run", "sampling", "score", "GuessTheNumber", "TowerOfHanoi", "nats a token", "distinct")
    updates = []
    for name, found in data.items():
        for place in ("first", "last"):
            if (of := found.get("training", {}).get(place)) is not None:
                names = ("sampler_gap/mean", "sampler_gap/max", "ratio", "clip_fraction", "kept_tokens/mean")
                shown = [f"{of[key]:.3g}" if key in of else "" for key in (*names, "gradient_norm", "dead_groups")]
                updates.append([name, place, *shown])
    columns = ("gap mean", "gap max", "ratio", "clipped", "kept tokens", "gradient norm", "dead groups")
    first = table(("run", "iteration", *columns), updates)
    figured = ("dead", "left", "games", "live_groups_per_update", "games_per_live_group", "seconds", "rollout_seconds")
    filled = []
    for arm in ("refill", "refill_start"):
        for number, one in data.get(f"C/{arm}/3", {}).items():
            means = [f"{statistics.fmean(one[name][1:]):.2f}" for name in figured]  # the first iteration compiles
            tower = f"{one['plain']['games'][ALONE[1]][0]:.3f}"
            filled.append([arm, number, *means, f"{one['plain']['score']:.3f}", tower])
    rest = table(("arm", "refill", *figured, "score", ALONE[1]), filled)
    return f"{table(head, lines)}\n{first}\n{claims_table(CLAIMS, data)}\n{rest}"


def read(path: Path) -> dict[str, Any]:
    """Returns the figures of what has run, by name."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def rounded(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the same as JSON has it, with five digits of every number that is not whole."""
    read_back: dict[str, Any] = json.loads(json.dumps(found), parse_float=lambda text: float(f"{float(text):.5g}"))
    return read_back


def main() -> None:
    """Carries out, lists or reports; exits with 1 where a run does not finish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/kept_sets"))
    parser.add_argument("--data", type=Path, default=ROOT / "docs" / "results" / "data" / "kept_sets.json")
    parser.add_argument("--only", default="", help="runs whose PART/ARM/SEED holds this text")
    parser.add_argument("--smollm2", default="smollm2-135m", help="the folder of SmolLM2-135M-Instruct")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--here", default="", help="one run, in this process")
    options = parser.parse_args()
    if options.report:
        print(report(read(options.data)))
    for run in () if options.report else RUNS:
        if options.list:
            done = "finished" if run.name in read(options.data) else ""
            print(f"{run.name:24}{done:10}{seconds(options.out / run.name) / 60:8.1f} min")
        elif options.here == run.name:
            found = rounded(carry_out(run, options.out, options.smollm2))
            options.data.parent.mkdir(parents=True, exist_ok=True)
            options.data.write_text(json.dumps({**read(options.data), run.name: found}, indent=1) + "\n")
        elif not options.here and options.only in run.name and run.name not in read(options.data):
            words = [f"--{name}={getattr(options, name)}" for name in ("out", "data", "smollm2")]
            command = [sys.executable, __file__, *words, f"--here={run.name}"]
            code = subprocess.run(command, env=os.environ, check=False).returncode  # noqa: S603 - this file
            print(f"{run.name}: {f'exit code {code}' if code else 'finished'}", flush=True)
            if code:
                raise SystemExit(1)


if __name__ == "__main__":
    main()
