"""Games that the other seat's error ended: played again, replaced, left out, and never the learner's fault."""

import collections
import contextlib
import dataclasses
import io
import random
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from rl_episodes import CONFIG, episode
from stand_ins import Tape, TapeFolder, stand_ins

from dfc import validation
from dfc.config import AcceptanceConfig, BatchConfig, Grpo, GrpoConfig, MatchesConfig, RolloutConfig
from dfc.episodes import from_bytes, to_bytes
from dfc.errors import TrainingError
from dfc.evaluation import matches
from dfc.games.replay import replay
from dfc.methods import grpo
from dfc.rollout.match import EpisodeSpec
from dfc.rollout.sequential_match import play_episode
from dfc.rows.dialogues import perspective
from dfc.runs.stop_signals import Stop
from dfc.scoring.episode_rewards import rewards_of
from dfc.training import game_plan, rl
from dfc.training.teacher_errors import error_of, settle

PLACE = f"{Path(__file__).parent / 'sound_games.py'}:Unasked"
WHY = "three is nobody's number"
PLAIN = dataclasses.replace(CONFIG, half_negative=False, grpo=GrpoConfig(normalize_std=False, updates_per_iteration=1))

# ---- what is the other seat's error ---------------------------------------------------------------------------------


class Says:
    """Says what it is told to, then the same again."""

    def __init__(self, *texts):
        self.texts = list(texts)

    def act(self, game, rng):
        del game, rng
        return self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]


def taboo(seat, describer, guesser, **options):
    spec = EpisodeSpec("clem_taboo", options, 0, seat, 0, 0)
    return play_episode(spec, [describer, guesser], RolloutConfig(), opponent="teacher")


def test_only_what_the_other_seat_did_wrong_is_its_error():
    target = taboo(1, Says("CLUE: thing"), Says("GUESS: ?"))
    assert (target.outcome, error_of(target)) == ("loss", None)  # three wrong guesses
    word = next(line for line in perspective(target.record(), 0)[0].context[0].content.splitlines() if "word: " in line)
    word = word.rpartition(" ")[2]
    spoiled = [taboo(seat, Says(f"CLUE: {word}"), Says("GUESS: ?")) for seat in (0, 1)]
    assert [one.outcome for one in spoiled] == ["loss", "loss"]
    assert [error_of(one) for one in spoiled] == [None, "The clue holds the word or a taboo word."]
    mute = [taboo(seat, Says("no tag"), Says("GUESS: ?")) for seat in (0, 1)]
    assert error_of(mute[0]) is None
    assert error_of(mute[1]).startswith("No action could be read.")
    own = [taboo(seat, Says("CLUE: thing"), Says("no tag")) for seat in (0, 1)]
    assert error_of(own[1]) is None
    assert error_of(own[0]) is not None
    assert error_of(taboo(1, Says("CLUE: thing"), Says(f"GUESS: {word}"))) is None


def test_an_image_that_was_described_badly_is_no_error_of_its_giver():
    spec = EpisodeSpec("clem_imagegame", {}, 0, 1, 0, 0)
    drawn = "\n".join(["Z Z Z Z Z"] * 5)
    found = play_episode(spec, [Says("Command: all Z", "Command: DONE"), Says(drawn)], RolloutConfig(), opponent="t")
    assert (found.outcome, found.replies[-1].seat, error_of(found)) == ("loss", 0, None)


def test_opponents_limits_and_failures():
    assert error_of(episode("win")) is None
    assert error_of(dataclasses.replace(episode("win"), forfeited_by=1)) is None  # of an opponent it is a win
    assert error_of(episode("truncated", by=0)) is None
    assert error_of(episode("truncated")) is None
    assert error_of(episode("truncated", by=1)) == "the other seat's context was full"
    assert error_of(dataclasses.replace(episode(), failure="opponent far raised")) == "failed: opponent far raised"
    team = dataclasses.replace(episode("invalid"), outcomes=("invalid",) * 2, team=True, abort_reason="too long")
    assert error_of(team) is None
    assert error_of(dataclasses.replace(team, forfeited_by=None)) is None
    assert error_of(dataclasses.replace(team, forfeited_by=1)) == "too long"
    # Any game of a team can say whose reply lost it; who says nothing has nobody to blame.
    lost = dataclasses.replace(team, outcomes=("loss",) * 2, abort_reason=None)
    assert [error_of(dataclasses.replace(lost, lost_by=by, loss_reason="said it")) for by in (None, 0, 1)] == [
        None,
        None,
        "said it",
    ]


# ---- what stands in -------------------------------------------------------------------------------------------------


def of_team(kind, spec):
    """A game of a team as it ended: one that the teacher spoiled, or failed, or the learner's."""
    outcome = {"teacher": "invalid", "failed": "truncated", "own": "invalid"}.get(kind, kind)
    found = dataclasses.replace(
        episode(outcome, group=spec.group, game=spec.game, generated_tokens=1 + spec.seed % 7),
        seat=0,
        team=True,
        outcomes=(outcome, outcome),
        forfeited_by={"teacher": 1, "own": 0}.get(kind),
        abort_reason={"teacher": f"rule {spec.seed % 2}", "own": "mine"}.get(kind),
        failure="the server is gone" if kind == "failed" else None,
    )
    found.policy_version = spec.seed  # tells it from all others
    return found


BAD = ("teacher", "failed")


def iteration(draws, groups=4, size=3, weights=(2, 1, 2, 2, 2)):
    """Specs, and what comes of each of them every time that it is played; the teacher's errors are frequent."""
    specs = [EpisodeSpec("Nim-v0", {}, g, 0, g, 1000 + g * size + m) for m in range(size) for g in range(groups)]
    kinds = ("teacher", "failed", "own", "win", "loss")
    played = {}

    def play(some):
        found = []
        for spec in some:
            kind = draws.choices(kinds, weights)[0]
            played[spec.seed] = kind
            found.append(of_team(kind, spec))
        return found

    return specs, play, played


def worth(one):
    return {"win": 1.0, "loss": -1.0, "invalid": -2.0}.get(one.outcome, 0.0)


def settled_with(draws, handling="replace", replays=1, **more):
    specs, play, kinds = iteration(draws, **more)
    again = []

    def play_again(some):
        again.append(list(some))
        return play(some)

    first = play(specs)
    return specs, first, again, kinds, settle(specs, first, handling, replays=replays, seed=7, play=play_again)


@pytest.mark.parametrize("replays", [0, 1, 3])
def test_every_place_is_taken_by_a_good_game_of_its_group_or_of_another_group(replays):
    """Oracle: the rule, said for one place at a time, over all that was played."""
    stops = 0
    for trial in range(150):
        draws = random.Random(trial)
        try:
            specs, _, again, kinds, found = settled_with(draws, replays=replays)
        except TrainingError:
            stops += 1
            continue
        assert len(again) <= replays
        by_place = {number: [number] for number in range(len(specs))}  # the games of each place, in order
        count = len(specs)
        for attempt, some in enumerate(again, 1):
            wanted = [n for n in by_place if kinds[found.played[by_place[n][-1]].policy_version] in BAD]
            assert len(some) == len(wanted)
            for number, spec in zip(wanted, some, strict=True):
                assert dataclasses.replace(spec, seed=0) == dataclasses.replace(specs[number], seed=0)
                assert found.notes[count].get("replay") == attempt
                by_place[number].append(count)
                count += 1
        assert count == len(found.played) == len({one.policy_version for one in found.played})
        last = {number: games[-1] for number, games in by_place.items()}
        good = {number for number, game in last.items() if kinds[found.played[game].policy_version] not in BAD}
        good_groups = {specs[number].group for number in good}
        for number, spec in enumerate(specs):
            source = found.sources[number]
            here = {last[n] for n in good if specs[n].group == spec.group}
            if number in good:
                assert source == last[number]
            elif here:
                assert source in here
            else:
                (other,) = {g for g in good_groups if source in {last[n] for n in good if specs[n].group == g}}
                mine = [found.sources[n] for n, s in enumerate(specs) if s.group == spec.group]
                assert mine == [found.sources[n] for n, s in enumerate(specs) if s.group == other]
            assert found.trained[number].group == spec.group
            assert found.trained[number].policy_version == found.played[source].policy_version
        empty = len({spec.group for spec in specs}) - len(good_groups)
        first_bad = sum(kinds[found.played[n].policy_version] in BAD for n in range(len(specs)))
        assert found.metrics == {
            "teacher/errors": first_bad,
            "teacher/replayed": sum(map(len, again)),
            "teacher/replaced": len(specs) - len(good),
            "teacher/replaced_groups": empty,
            "teacher/left_out": 0,
        }
    assert stops < 20


def test_the_notes_say_of_every_game_once_what_became_of_it():
    for trial in range(60):
        specs, _, again, kinds, found = settled_with(random.Random(trial), weights=(1, 1, 2, 3, 3))
        trained = collections.Counter(found.sources)
        for number, (one, note) in enumerate(zip(found.played, found.notes, strict=True)):
            bad = kinds[one.policy_version] in BAD
            assert one.left_out == bad
            assert ("teacher_error" in note) == bad
            assert note.get("trained", min(1, trained[number])) == trained[number]
            assert ("replay" in note) == (number >= len(specs))
            if bad and number < len(specs):
                assert note["teacher_error"] == "replayed"
            elif bad:
                group = [found.sources[n] for n, spec in enumerate(specs) if spec.group == one.group]
                own = {found.played[source].group for source in group} == {one.group}
                assert note["teacher_error"] == ("replaced" if own else "group_replaced")
        assert all(spec.seed not in {s.seed for s in specs} for some in again for spec in some)


def test_the_learner_is_never_punished_for_the_teachers_error():
    """Whatever the teacher's errors: no token of their games is trained on, and nobody's advantage knows of them."""
    for trial in range(80):
        for handling in ("replace", "leave_out"):
            try:
                specs, first, _, kinds, found = settled_with(random.Random(trial), handling)
            except TrainingError:
                continue
            values = [worth(one) for one in found.trained]
            shares = rl.sequences(found.trained, values, PLAIN, 0)
            groups = collections.defaultdict(list)  # what each group is compared with: its games without an error
            for one, value in zip(found.trained, values, strict=True):
                if kinds[one.policy_version] not in BAD:
                    groups[one.group].append(value)
            expected = []
            for one, value in zip(found.trained, values, strict=True):
                if kinds[one.policy_version] in BAD:
                    assert handling == "leave_out"
                    continue
                advantage = np.float32(value) - np.mean(groups[one.group], dtype=np.float32)
                if len(groups[one.group]) < 2:  # nobody to be compared with
                    advantage = 0.0
                expected.append((one.sample.token_ids.tolist(), round(float(advantage), 4) + 0.0))
            trained = [(s.token_ids.tolist(), round(float(s.advantage), 4) + 0.0) for share in shares for s in share]
            assert sorted(trained) == sorted(expected)
            rates = matches.by_game(matches.tally(found.played))
            counted = [kinds[one.policy_version] for one in found.played if kinds[one.policy_version] not in BAD]
            assert sum(record.games for record in rates.values()) == len(counted)
            assert len(first) == len(specs)


def test_the_learners_own_violations_cost_it_something():
    specs, _, _, kinds, found = settled_with(random.Random(3), weights=(0, 0, 1, 1, 0))
    assert set(kinds.values()) == {"own", "win"}
    assert [one.policy_version for one in found.trained] == [spec.seed for spec in specs]
    (share,) = rl.sequences(found.trained, [worth(one) for one in found.trained], PLAIN, 0)
    assert any(s.advantage < 0 for s in share)


def test_counted_errors_change_nothing():
    specs, play, _ = iteration(random.Random(0))
    first = play(specs)
    found = settle(specs, first, "count", replays=3, seed=0, play=lambda _: pytest.fail("nothing is played again"))
    assert all(one is other for one, other in zip(found.played, first, strict=True))
    assert all(one is other for one, other in zip(found.trained, first, strict=True))
    assert (found.notes, found.metrics) == ([{}] * len(first), {})
    assert found.sources == list(range(len(first)))


def test_the_same_seed_chooses_the_same_and_another_one_another():
    chosen = [settled_with(random.Random(5), replays=0)[-1].sources for _ in range(2)]
    assert chosen[0] == chosen[1]
    others = set()
    for seed in range(8):
        specs, play, _ = iteration(random.Random(5))
        found = settle(specs, play(specs), "replace", replays=0, seed=seed, play=lambda _: [])
        others.add(tuple(found.sources))
    assert len(others) > 1


@pytest.mark.parametrize("handling", ["replace", "leave_out"])
def test_a_run_without_any_good_game_stops_and_names_the_broken_rules(handling):
    with pytest.raises(TrainingError) as error:
        settled_with(random.Random(0), handling, weights=(1, 0, 0, 0, 0))
    text = str(error.value)
    total = 24 if handling == "replace" else 12
    assert text.startswith(f"all {total} games of an iteration ended by an error of the other seat (itself), so there ")
    counts = {f"rule {n}": text.count(f": rule {n}") for n in (0, 1)}
    assert counts == {"rule 0": 1, "rule 1": 1}
    assert "Nim-v0, " in text


def test_a_left_out_episode_goes_to_other_hosts_as_it_is():
    (again,) = from_bytes(to_bytes([dataclasses.replace(episode(), left_out=True)]))
    assert again.left_out
    assert not again.counted


def test_processes_agree_on_what_is_an_error():
    """The first process decides, whatever another one sees."""
    specs, play, _ = iteration(random.Random(1), weights=(0, 0, 1, 1, 1))
    told = []

    def broadcast(value):
        told.append(value)
        return ["the first process sees this", *value[1:]]

    with mock.patch("dfc.training.teacher_errors.multihost.broadcast", broadcast):
        found = settle(specs, play(specs), "leave_out", replays=1, seed=0, play=play)
    assert told == [[None] * len(specs)]
    assert [one.left_out for one in found.played] == [True] + [False] * (len(specs) - 1)


# ---- configurations and a run ---------------------------------------------------------------------------------------


def test_settings_that_contradict_each_other_are_refused():
    base = Grpo(games={"clem_taboo": {}})
    assert validation.problems(dataclasses.replace(base, teacher_errors="replace")) == []
    (problem,) = validation.problems(dataclasses.replace(base, teacher_errors="replace", teacher_replays=-1))
    assert problem.startswith("teacher_replays=-1: must be at least 0")
    both = dataclasses.replace(base, opponent="itself", train_both_seats=True, teacher_errors="leave_out")
    (problem,) = validation.problems(both)
    assert problem.startswith("teacher_errors='leave_out': must be 'count' with train_both_seats")


class Spoils:
    """A teacher that breaks off about half of its games."""

    name = "spoils"

    def act(self, game, rng):
        return "[3]" if not game.aside and rng.uniform() < 0.5 else "[1]"


def recorded(path, **changes):
    """What a run writes down, with stand-ins for engine and trainer: episodes, and the metrics shown."""
    config = Grpo(
        games={PLACE: {}, "GuessTheNumber-v0": {"max_turns": 3}},
        rollout=RolloutConfig(slots=3, max_length=256, max_reply_length=6, legal_only=True),
        batch=BatchConfig(row_length=256, micro_batch_rows=8),
        groups_per_game=3,
        group_size=3,
        random_action_rate=0.0,
        opponent="simple",
        learner_roles={PLACE: "teller"},
        acceptance=AcceptanceConfig(rule="always", games=2),
        grpo=GrpoConfig(updates_per_iteration=1),
        evaluation=MatchesConfig(games=2),
        iterations=3,
    )
    config = dataclasses.replace(config, **changes)
    tape = Tape()
    folder = TapeFolder(tape, path, config)
    choose = mock.patch.object(game_plan, "choose_opponent", return_value=(Spoils(), "spoils"))
    seat = mock.patch("dfc.rollout.workers.RolloutWorkers.seat", return_value={})
    with stand_ins(tape), choose, seat, contextlib.redirect_stdout(io.StringIO()):
        grpo.run(config, folder, Stop())
    episodes = folder.records("episodes")
    shown = [dict(dict(event[1])["metrics"]) for event in tape.events if event[0] == "shown"]
    return [one for one in episodes if one["kind"] == "train"], shown


@pytest.mark.parametrize("handling", ["replace", "leave_out", "count"])
def test_a_run_records_every_game_once_and_counts_what_it_did(tmp_path, handling):
    episodes, shown = recorded(tmp_path / "run", teacher_errors=handling)
    for one in episodes:
        assert list(replay(one)) is not None  # a record as any other
        spoiled = one.get("abort_reason") == WHY
        assert ("teacher_error" in one) == (spoiled and handling != "count")
        if "teacher_error" in one:
            assert one["reward"] == 0.0
    marks = collections.Counter(one.get("teacher_error") for one in episodes)
    names = ("errors", "replayed", "replaced", "replaced_groups", "left_out")
    found = {name: sum(line.get(f"teacher/{name}", 0.0) for line in shown) for name in names}
    assert sum(line["episodes"] for line in shown) == len(episodes)
    if handling == "count":
        assert not any(found.values())
        assert not any(name.startswith("teacher/") for line in shown for name in line)
        assert len(episodes) == 3 * 2 * 3 * 3
    elif handling == "leave_out":
        assert marks["left_out"] == found["left_out"] == found["errors"] > 0
        assert len(episodes) == 3 * 2 * 3 * 3
    else:
        assert marks["replayed"] == found["replayed"] == found["errors"] > 0
        assert marks["replaced"] + marks["group_replaced"] == found["replaced"] > 0
        assert len(episodes) == 3 * 2 * 3 * 3 + found["replayed"]
        assert sum("replay" in one for one in episodes) == found["replayed"]
        assert recorded(tmp_path / "again", teacher_errors=handling) == (episodes, shown)


def test_a_run_whose_teacher_spoils_every_game_stops(tmp_path):
    mute = mock.patch.object(Spoils, "act", return_value="?")
    with mute, pytest.raises(TrainingError, match=r"of the other seat \(spoils\).* 18 times: No action could be read"):
        recorded(tmp_path / "run", games={PLACE: {}}, learner_roles={PLACE: "hearer"}, teacher_errors="replace")


def test_what_stands_in_is_paid_its_own_reward(tmp_path):
    seen = []

    def sequences(episodes, values, config, seed):
        seen.extend(zip(values, rewards_of(episodes, config.reward), strict=True))
        return learn(episodes, values, config, seed)

    learn = rl.sequences
    with mock.patch.object(rl, "sequences", sequences):
        episodes, _ = recorded(tmp_path / "run", teacher_errors="replace")
    assert any(one.get("trained", 1) > 1 for one in episodes)
    assert [value for value, _ in seen] == [own for _, own in seen]
    assert len({value for value, _ in seen}) > 1
