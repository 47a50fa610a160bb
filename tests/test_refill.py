"""Further groups in the place of those that teach nothing: which are played, which take a place, and what it costs."""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import io
import itertools
import random
import signal
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import rl_runs
from recipe_runs import lines, untimed
from rl_episodes import CONFIG, GAMES, episode
from self_play_runs import make_model
from stand_ins import Tape, TapeFolder, stand_ins
from test_teacher_errors import BAD, iteration
from test_turn_rewards import episode as dialogue

from dfc import validation
from dfc.config import DivideFuseConquer, Grpo, GrpoConfig, OpponentPoolConfig, RewardConfig, RolloutConfig
from dfc.errors import ConfigError, TrainingError
from dfc.games.rng import derive_seed
from dfc.methods import divide_fuse_conquer, grpo
from dfc.runs.run_folder import RunFolder
from dfc.runs.stop_signals import Interrupted, Stop
from dfc.tools.fit import iteration as fit
from dfc.tools.fit.workload import Workload
from dfc.training import game_plan, rl, teacher_errors
from dfc.training.method import Played
from dfc.training.refill import refilled, teach_nothing
from dfc.training.teacher_errors import settle

GRPO = GrpoConfig(updates_per_iteration=1)
PLACE = f"{Path(__file__)}:spread_at_odd_deals"


def spread_at_odd_deals(played):
    """A reward of which groups on even deals have no spread, and those on odd ones have one nearly always."""
    said = "|".join(reply.text for reply in played.replies).encode()
    return played.game_seed % 2 * (hashlib.blake2b(said).digest()[0] / 256)


# ---- which deals -----------------------------------------------------------------------------------------------------

COUNTS = {"TicTacToe-v0": 2, "Nim-v0": 3}


def specs(config=CONFIG, number=0, iteration=0, stage="divide g1"):
    return game_plan.rollout_specs(COUNTS, config, stage, iteration, refill=number)


def test_what_an_iteration_begins_with_has_the_seeds_of_before():
    made = {game: itertools.count() for game in COUNTS}
    index = {}
    for spec in specs(iteration=3):
        game = spec.game
        if spec.group not in index:
            index[spec.group] = next(made[game])
            copies = itertools.count()
        here = index[spec.group]
        assert spec.game_seed == derive_seed("rollout deal", 0, "divide g1", game, 3, here)
        assert spec.seed == derive_seed("rollout draws", 0, "divide g1", game, 3, here, next(copies))
        assert spec.seat == (here + 3) % 2
    assert collections.Counter(spec.game for spec in specs()) == {game: 4 * n for game, n in COUNTS.items()}


def test_every_round_has_deals_and_draws_of_its_own():
    found = [specs(number=number, iteration=when) for number in range(3) for when in range(2)]
    assert len({spec.seed for some in found for spec in some}) == 6 * 5 * 4
    assert len({spec.game_seed for some in found for spec in some}) == 6 * 5
    for some in found:
        groups = collections.Counter((spec.game, spec.group, spec.game_seed, spec.seat) for spec in some)
        assert set(groups.values()) == {4}
        assert collections.Counter(game for game, *_ in groups) == COUNTS
    assert specs(number=2) == specs(number=2)
    assert not {s.seed for s in specs(number=1)} & {s.seed for s in specs(number=1, stage="conquer g1+g2")}


def test_seats_alternate_from_round_to_round():
    seats = [[spec.seat for spec in specs(number=n) if spec.game == "Nim-v0"][::4] for n in (1, 2)]
    assert seats == [[1, 0, 1], [0, 1, 0]]


def test_the_same_seeds_each_time_and_few_tasks_hold_for_further_deals_too():
    fixed = dataclasses.replace(CONFIG, randomize_seeds=False)
    assert [s.game_seed for s in specs(fixed, 1)] == [s.game_seed for s in specs(fixed, 1, iteration=5)]
    assert not {s.seed for s in specs(fixed, 1)} & {s.seed for s in specs(fixed, 1, iteration=5)}
    assert not {s.game_seed for s in specs(fixed, 1)} & {s.game_seed for s in specs(fixed)}
    assert {s.game_seed for s in specs(dataclasses.replace(CONFIG, tasks=3), 1)} <= {0, 1, 2}


# ---- which take a place ----------------------------------------------------------------------------------------------


def teaches(values):
    """Whether a group of counted rewards, None for a game that does not count, teaches anything."""
    return len({value for value in values if value is not None}) > 1


def played_groups(groups, numbers, seats=1):
    """The games of groups, each (game, rewards of every seat), seats of one game next to each other."""
    episodes, values = [], []
    for (game, rewards), number in zip(groups, numbers, strict=True):
        for member, seat in itertools.product(range(len(rewards[0])), range(seats)):
            worth = rewards[seat][member]
            one = episode("draw" if worth is not None else "truncated", game=game, group=number, seat=seat)
            episodes.append(one)
            values.append(0.0 if worth is None else worth)
    count = collections.Counter(game for game, _ in groups)
    sources = list(range(len(episodes)))
    return Played(episodes, list(episodes), sources, [{} for _ in episodes], dict(count), "itself", {"a": 1.0}), values


@pytest.mark.parametrize("seats", [1, 2])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_groups_that_teach_take_the_places_of_those_that_do_not(rounds, seats):
    """Oracle: places and rewards alone, one round after the other."""
    seen = collections.Counter()
    for trial in range(60):
        draws = random.Random(trial)
        kinds = draws.choices(([0.0], [0.0, 1.0], [0.0, None], [None]), k=3)
        games = [("TicTacToe-v0", kinds[0]), ("Nim-v0", kinds[1]), ("GuessTheNumber-v0", kinds[2])]

        def some(game, draws=draws, games=games):
            return [draws.choices(dict(games)[game], k=2) for _ in range(seats)]

        first = [(game, some(game)) for game, _ in games * 3]
        draws.shuffle(first)
        asked, given = [], []

        def play(counts, number, asked=asked, given=given, some=some):
            assert number == len(asked) + 1
            asked.append(dict(counts))
            further = [(game, some(game)) for game, count in counts.items() for _ in range(count)]
            given.append(further)
            return played_groups(further, range(len(further)), seats)

        begun, values = played_groups(first, draws.sample(range(50), len(first)), seats)
        found, all_values = refilled(begun, values, rounds, GRPO, play)

        places, taken = list(first), []
        for further, counts in zip(given, asked, strict=True):
            dead = [place for place, (_, rewards) in enumerate(places) if not any(map(teaches, rewards))]
            assert counts == collections.Counter(places[place][0] for place in dead)
            for group in further:
                free = [place for place in dead if places[place][0] == group[0]]
                if any(map(teaches, group[1])):
                    places[free[0]] = group
                    dead.remove(free[0])
                    taken.append(group)
        left = sum(not any(map(teaches, rewards)) for _, rewards in places)
        before = sum(not any(map(teaches, rewards)) for _, rewards in first)
        assert len(asked) == rounds or not left
        assert found.metrics == {
            "a": 1.0 + len(asked),
            "refill/rounds": len(asked),
            "refill/groups": sum(map(len, given)),
            "refill/dead": before,
            "refill/left": left,
        }
        expected = played_groups(places, range(len(places)), seats)
        assert [all_values[source] for source in found.sources] == expected[1]
        assert [(e.game, e.seat, e.counted) for e in found.trained] == [
            (e.game, e.seat, e.counted) for e in expected[0].trained
        ]
        numbers = [number for number, _ in itertools.groupby(e.group for e in found.trained)]
        assert len(numbers) == len(set(numbers)) == len(places)
        assert len({e.group for e in found.episodes}) == len(first) + sum(map(len, given))
        assert [found.episodes[s].group for s in found.sources] == [e.group for e in found.trained]
        assert len(found.episodes) == len(all_values) == len(found.notes) == 2 * seats * (9 + sum(map(len, given)))
        assert sum(found.groups.values()) == 9 + sum(map(len, given))
        used = set(found.sources)
        for number, note in enumerate(found.notes):
            own = [{}] * (9 * 2 * seats) + [{"refill": n + 1} for n, f in enumerate(given) for _ in f * (2 * seats)]
            more = {} if number in used else {"replaced_by_refill" if number < 18 * seats else "unused": True}
            assert note == own[number] | more
        seen.update(rounds=len(asked), taken=len(taken), left=left)
    assert min(seen.values()) > 5


def test_where_every_group_teaches_nothing_is_played():
    begun, values = played_groups([("Nim-v0", [[0.0, 1.0]]), ("TicTacToe-v0", [[0.5, 0.25]])], (0, 1))
    found, all_values = refilled(begun, values, 3, GRPO, lambda *_: pytest.fail("a round"))
    assert found.metrics == {"a": 1.0, "refill/rounds": 0, "refill/groups": 0, "refill/dead": 0, "refill/left": 0}
    assert (found.trained, found.notes, all_values) == (begun.trained, begun.notes, values)


def test_a_group_teaches_if_any_of_its_advantages_is_not_0():
    """Turns: equal sums of different ones teach, equal ones with a different number of turns do not."""
    cases = [
        (([1.0, 0.0], [0.0, 1.0]), True),
        (([1.0, 0.0], [1.0, 0.0]), False),
        (([0.0, 1.0], [0.0, 0.0, 1.0]), False),
        (([0.0, 1.0], [1.0, 0.0, 1.0]), True),
        ((1.0, 1.0), False),
        ((1.0, [0.5, 0.5]), True),
        ((1.0, [0.0, 1.0]), False),
    ]
    episodes, values = [], []
    for group, (members, _) in enumerate(cases):
        for value in members:
            count = len(value) if isinstance(value, list) else 2
            episodes.append(dialogue(*["policy"] * count, outcome="win", group=group))
            values.append(value)
    for baseline in ("group", "leave_one_out"):
        config = GrpoConfig(baseline=baseline, normalize_std=False)
        dead = {group: "Nim-v0" for group, (_, teaching) in enumerate(cases) if not teaching}
        assert teach_nothing(episodes, values, config) == dead
        trained = rl.sequences(episodes, values, Grpo(grpo=GrpoConfig(kl_coefficient=0.0, baseline=baseline)), 0)
        assert sum(map(len, trained)) == 2 * (len(cases) - len(dead))
    assert teach_nothing([], [], GRPO) == {}


def test_a_game_that_stood_in_for_several_is_noted_by_what_is_left_of_it():
    """Game 0 stands in for game 1 of its group, and both of them for another group of which no game went well."""
    begun, _ = played_groups([("Nim-v0", [[0.0, 0.0]])] * 3, (0, 1, 2))
    again = [dataclasses.replace(begun.episodes[0], group=group) for group in (0, 0, 1, 1)]
    notes = [{"trained": 4}, {"teacher_error": "replaced"}, {"teacher_error": "group_replaced"}, {}, {}, {}]
    begun = dataclasses.replace(begun, trained=[*again, *begun.trained[4:]], sources=[0, 0, 0, 0, 4, 5], notes=notes)

    def play(counts, _):
        assert counts == {"Nim-v0": 3}
        return played_groups([("Nim-v0", [[0.0, 1.0]])] * 1 + [("Nim-v0", [[1.0, 1.0]])] * 2, range(3))

    found, _ = refilled(begun, [0.0] * 6, 1, GRPO, play)
    assert found.sources == [6, 7, 0, 0, 4, 5]
    assert [e.group for e in found.trained] == [3, 3, 1, 1, 2, 2]
    further, unused = {"refill": 1}, {"refill": 1, "unused": True}
    assert found.notes == [{"trained": 2}, *notes[1:], further, further, *[unused] * 4]
    assert notes[0] == {"trained": 4}


# ---- the other seat's errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("handling", ["replace", "leave_out", "count"])
def test_further_groups_that_the_other_seat_spoiled_are_left_out_and_stop_nothing(handling):
    spoiled = 0
    for trial in range(80):
        some, play, kinds = iteration(random.Random(trial), groups=2, size=2, weights=(3, 1, 0, 1, 1))
        first = play(some)
        found = settle(some, first, handling, replays=1, seed=5, play=play, further=True)
        if handling == "count":
            assert (found.played, found.metrics) == (first, {})
            continue
        groups = collections.defaultdict(list)
        for number, spec in enumerate(some):
            groups[spec.group].append(number)
        lost = replaced = 0
        for members in groups.values():
            mine = [found.played[found.sources[n]] for n in members]
            assert all(one.group == some[n].group for one, n in zip(mine, members, strict=True))
            bad = [kinds[one.policy_version] in BAD for one in mine]
            assert [one.left_out for one in mine] == bad
            if handling == "replace":
                assert all(bad) or not any(bad)
            lost += sum(bad)
        replaced = sum(note.get("teacher_error") == "replaced" for note in found.notes)
        assert found.metrics["teacher/left_out"] == lost
        assert found.metrics["teacher/replaced"] == replaced
        assert found.metrics["teacher/replaced_groups"] == 0
        assert sum(note.get("teacher_error") == "left_out" for note in found.notes) == lost
        spoiled += lost == len(some)
    assert (spoiled > 3) == (handling != "count")


# ---- a run -----------------------------------------------------------------------------------------------------------


def recorded(path, **changes):
    """The records and metrics of a run with stand-ins, and what its updates were made of, by iteration."""
    config = Grpo(
        games={"GuessTheNumber-v0": {"max_turns": 3}, "TicTacToe-v0": {}},
        rollout=RolloutConfig(slots=3, max_length=256, max_reply_length=6, legal_only=True),
        groups_per_game=4,
        group_size=3,
        refill=2,
        opponent="itself",
        reward=RewardConfig(function=PLACE),
        grpo=GrpoConfig(updates_per_iteration=1, kl_coefficient=0.0),
        evaluation=rl_runs.MatchesConfig(games=2),
        iterations=3,
    )
    config = dataclasses.replace(config, **changes)
    batch = dataclasses.replace(config.batch, row_length=256)
    config, seen = dataclasses.replace(config, batch=batch), []

    def sequences(episodes, values, *more):
        seen.append((episodes, values))
        return learn(episodes, values, *more)

    learn, tape = rl.sequences, Tape()
    folder = TapeFolder(tape, path, config)
    with stand_ins(tape), mock.patch.object(rl, "sequences", sequences), contextlib.redirect_stdout(io.StringIO()):
        grpo.run(config, folder, Stop())
    trained = [one for one in folder.records("episodes") if one["kind"] == "train"]
    metrics = [dict(dict(event[1])["metrics"]) for event in tape.events if event[0] == "shown"]
    return trained, metrics, seen


@pytest.mark.parametrize("both", [False, True])
def test_a_run_plays_what_its_records_ask_for(tmp_path, both):
    """Oracle: the records alone; a deal has a number of 63 bits, which tells its group from every other one."""
    records, metrics, seen = recorded(tmp_path / "run", train_both_seats=both)
    taken = left = 0
    for number, (line, (episodes, _)) in enumerate(zip(metrics, seen, strict=True), 1):
        deals = collections.defaultdict(lambda: collections.defaultdict(list))  # of a round, by game and deal
        seats = collections.defaultdict(set)
        here = [one for one in records if one["iteration"] == number]
        for one in here:
            deals[one.get("refill", 0)][one["game"], one["seed"]].append(one)
            seats[one["seed"]].add(one["seat"])

        def teaching(group):
            worth = collections.defaultdict(set)
            for one in group:
                worth[one["seat"]].add(one["reward"])
            return any(len(found) > 1 for found in worth.values())

        held = dict(deals[0])
        assert collections.Counter(game for game, _ in held) == dict.fromkeys(("GuessTheNumber-v0", "TicTacToe-v0"), 4)
        dead = first = {deal: group for deal, group in held.items() if not teaching(group)}
        for round_ in range(1, 3):
            assert collections.Counter(g for g, _ in deals[round_]) == collections.Counter(g for g, _ in dead)
            for deal, group in deals[round_].items():
                if teaching(group):
                    loser = next(lost for lost in dead if lost[0] == deal[0])
                    dead = {other: held[other] for other in dead if other != loser}
                    assert all(one.get("replaced_by_refill") for one in held.pop(loser))
                    held[deal] = group
                    taken += 1
                else:
                    assert all(one["unused"] for one in group)
        assert {(e.game, e.game_seed) for e in episodes} == set(held)
        for deal, group in held.items():
            assert not any("replaced_by_refill" in one or "unused" in one for one in group), deal
        further = sum(map(len, deals.values())) - 8
        assert [line[f"refill/{name}"] for name in ("groups", "dead", "left")] == [further, len(first), len(dead)]
        assert line["refill/rounds"] == (2 if deals[2] else 1 if deals[1] else 0)
        assert line["episodes"] == len(here)
        for game in ("GuessTheNumber-v0", "TicTacToe-v0"):
            mine = [group for some in deals.values() for (name, _), group in some.items() if name == game]
            assert line[f"games/{game}/seeds"] == len(mine)
            won = [one["outcomes"][one["seat"]] == "win" for group in mine for one in group]
            assert line[f"games/{game}/win_rate"] == pytest.approx(np.mean(won))
        assert {len(found) for deal, found in seats.items()} <= ({1, 2} if both else {1})
        left += len(dead)
    assert taken > 5
    assert left > 0
    assert recorded(tmp_path / "again", train_both_seats=both)[:2] == (records, metrics)


def test_without_it_nothing_is_added(tmp_path):
    records, metrics, _ = recorded(tmp_path / "run", refill=0)
    assert len(records) == 3 * 2 * 4 * 3
    assert not any(name.startswith("refill") for line in metrics for name in line)
    assert not any({"refill", "unused", "replaced_by_refill"} & set(one) for one in records)


def test_a_group_whose_place_nobody_takes_stays(tmp_path):
    """As the loss has a KL term, its episodes are trained on as they are without refilling."""
    equal = RewardConfig(function=f"{Path(__file__)}:nothing_to_tell")
    (records, metrics, seen), (_, _, before) = (
        recorded(tmp_path / str(refill), refill=refill, reward=equal, iterations=1, grpo=GrpoConfig())
        for refill in (2, 0)
    )
    assert [e.game_seed for e in seen[0][0]] == [e.game_seed for e in before[0][0]]
    assert [e.sample.token_ids.tolist() for e in seen[0][0]] == [e.sample.token_ids.tolist() for e in before[0][0]]
    assert [metrics[0][f"refill/{name}"] for name in ("rounds", "groups", "dead", "left")] == [2, 16, 8, 8]
    assert collections.Counter(one.get("refill") for one in records) == {None: 24, 1: 24, 2: 24}
    assert metrics[0]["updates"] > 0


def nothing_to_tell(_):
    """The same reward for everybody."""
    return 1.0


def test_the_opponent_of_a_round_is_that_of_the_iteration(tmp_path):
    pool = {"opponent": "pool", "pool": OpponentPoolConfig(every=1, choice="uniform")}
    records, _, _ = recorded(tmp_path / "run", **pool, games={"TicTacToe-v0": {}}, iterations=6)
    met = [{one["opponent"] for one in records if one["iteration"] == number} for number in range(1, 7)]
    assert [len(here) for here in met] == [1] * 6
    assert len(set.union(*met)) > 2
    assert {one["iteration"] for one in records if "refill" in one} == set(range(1, 7))


def test_further_games_are_settled_as_such_and_may_all_fail(tmp_path):
    calls = []

    def settled(some, episodes, handling, *, seed, further, **more):
        if further:
            episodes = [dataclasses.replace(one, failure="gone") for one in episodes]
        calls.append((seed, further, handling, len(some)))
        return settle(some, episodes, handling, seed=seed, further=further, **more)

    with mock.patch.object(teacher_errors, "settle", settled):
        records, metrics, _ = recorded(tmp_path / "run", teacher_errors="replace", teacher_replays=0, iterations=1)
    assert [further for _, further, *_ in calls] == [False, True, True]
    assert len({seed for seed, *_ in calls}) == 3
    assert {handling for _, _, handling, _ in calls} == {"replace"}
    assert metrics[0]["refill/left"] == metrics[0]["refill/dead"] > 0
    (_, _, _, first), *rounds = calls
    assert metrics[0]["teacher/left_out"] == sum("left_out" in one.values() for one in records) > 0
    assert metrics[0]["refill/groups"] == sum(count for *_, count in rounds) / 3
    assert first == 24


def settings(**more):
    few = {"groups_per_game": 4, "group_size": 2, "refill": 2}
    game = {"GuessTheNumber-v0": {"max_number": 9}}
    return rl_runs.plain(games=game, **few, reward=RewardConfig(function=PLACE), **more)


class StopsInRound(Stop):
    """Asks for a stop in a round of an iteration, once its games are under way."""

    def __init__(self, number, iteration):
        super().__init__()
        self.when, self.now = (number, iteration), None

    def planned(self, seeds, config, stage, when, *, refill=0):
        self.now = (refill, when)
        return PLANNED(seeds, config, stage, when, refill=refill)

    def check_stop(self):
        if self.now == self.when:
            self._noted = signal.SIGTERM
        super().check_stop()


PLANNED = game_plan.rollout_specs


def test_a_run_stopped_in_a_round_ends_like_one_that_was_not(tmp_path):
    make_model()
    config = settings()
    whole = rl_runs.run(tmp_path / "whole", config)
    for when in ((2, 0), (1, 1)):
        stop = StopsInRound(*when)
        with mock.patch.object(game_plan, "rollout_specs", stop.planned), pytest.raises(Interrupted):
            rl_runs.run(tmp_path / "parts", config, stop)
    parts = rl_runs.run(tmp_path / "parts", config)
    assert untimed(parts) == untimed(whole)
    assert lines(parts, "episodes") == lines(whole, "episodes")
    weights = [(path / "policy" / "model.safetensors").read_bytes() for path in (parts, whole)]
    assert weights[0] == weights[1]
    assert [line["metrics"]["refill/rounds"] for line in lines(whole)] == [2, 2]


# ---- what is refused, and what is told -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"grpo": GrpoConfig(baseline="role")}, "refill=3: must be 0 with grpo.baseline='role', which compares all"),
        ({"deals": "epochs", "tasks": 40}, "refill=3: must be 0 with deals='epochs', which has every task once"),
        ({"refill": -1}, "refill=-1: must be at least 0"),
    ],
)
def test_settings_that_it_contradicts_are_refused(changes, says):
    base = Grpo(games={"Nim-v0": {}}, refill=3)
    assert validation.problems(base) == []
    (problem,) = validation.problems(dataclasses.replace(base, **changes))
    assert problem.startswith(says)
    if "refill" not in changes:
        assert validation.problems(dataclasses.replace(base, **changes, refill=0)) == []


def test_imitation_has_no_use_for_it():
    config = DivideFuseConquer(games=GAMES, method="imitate_wins", refill=1)
    (problem,) = validation.problems(config)
    assert problem.startswith("refill=1: must be 0 with method='imitate_wins'")
    assert validation.problems(dataclasses.replace(config, method="naive_single")) == []
    assert divide_fuse_conquer.method_of(config).refill is None


def test_a_method_without_it_is_refused_before_the_model_is_loaded(tmp_path):
    config = settings(model=dataclasses.replace(rl_runs.SHAPES["model"], path="nowhere"))
    method = dataclasses.replace(rl.grpo(config), refill=None)
    with RunFolder.open(tmp_path / "run", config, command="test") as folder, pytest.raises(ConfigError) as error:
        grpo.learn(method, config, folder, Stop())
    assert error.value.problems == ("refill=2: must be 0, as this method plays no further groups",)


def test_a_method_that_plays_in_its_own_way_needs_its_own(tmp_path):
    """Further games of GRPO's policy and opponent among others would be learned from like these."""
    config = Grpo(games={"Nim-v0": {}}, refill=2)
    method = dataclasses.replace(rl.grpo(config), play=functools.partial(rl.play_games, initial=True))
    folder = TapeFolder(Tape(), tmp_path / "run", config)
    with stand_ins(Tape()), contextlib.redirect_stdout(io.StringIO()), pytest.raises(ConfigError, match="no `refill`"):
        grpo.learn(method, config, folder, Stop())


def test_a_reward_of_turns_is_refused_of_further_games_too():
    method = dataclasses.replace(rl.grpo(CONFIG), reads_turns=False, reward=lambda _, episodes: [[1.0]] * len(episodes))
    with pytest.raises(TrainingError, match="one number for each turn"):
        rl.rewarded(method, mock.Mock(config=CONFIG), played_groups([("Nim-v0", [[0.0]])], (0,))[0])


def test_the_forecast_has_the_most_games_that_may_be_played():
    for refill in (0, 2):
        config = dataclasses.replace(CONFIG, refill=refill)
        assert game_plan.games_played(config, 10)[0] == 10 * 6 * 4 * (1 + refill)
        lengths, work = fit.Lengths(100, 0.5), mock.Mock(Workload, plays=True, trains=False, call_rows=8)
        work.configure_mock(steps=5, prefill=10)
        found = fit.runs(Grpo(games=GAMES, groups_per_game=6, group_size=4, refill=refill), lengths, work)
        assert (found.episodes, found.further) == (72, 72 * refill)
        assert (found.decode, found.prefill) == (9 * (1 + refill) * 10, 9 * (1 + refill) * 5)
        assert found.describe(lengths).endswith(", and up to 144 of further groups (refill)") == (refill > 0)
