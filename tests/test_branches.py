"""Playing on from turns of recorded games: what siblings share, what is sampled anew, and how it resumes."""

import collections
import dataclasses
import itertools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
import watched_runners
from collect_runs import CONFIG, ROLLOUT, same
from collect_runs import rows as rows_of
from collect_runs import run as collected
from recipe_runs import StopsAfter
from sound_games import Partners
from trajectory_rows import PROVENANCE, played, trajectory
from watched_runners import ROLLOUT as WATCHED_ROLLOUT
from watched_runners import make

from dfc import validation
from dfc.config import Branch, MeshConfig, SamplingConfig
from dfc.episodes import PlayedReply
from dfc.games.replay import replay
from dfc.models import huggingface
from dfc.models.transformer import bind
from dfc.players.remote import FunctionPlayer
from dfc.records import branches
from dfc.records.trajectories import COLUMNS, BranchPoint
from dfc.records.trajectory_files import DatasetError, TrajectoryWriter, read_trajectories
from dfc.rollout.match import EpisodeSpec
from dfc.rollout.openings import Opening
from dfc.runs.stop_signals import Interrupted

tokenizer = watched_runners.tokenizer  # the fixture
PLAIN = SamplingConfig(temperature=1.0)
GAMES = {"Nim-v0": {}, "TowerOfHanoi-v0": {"max_turns": 3}}
PLACE = f"{__file__.replace('test_branches', 'sound_games')}:Partners"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A collection of two ids, the one for two against a scripted player."""
    config = dataclasses.replace(CONFIG, games=GAMES, tasks=2, samples_of={}, sampling=PLAIN)
    return collected(tmp_path_factory.mktemp("recorded") / "run", config)


def configured(recorded, **changes):
    config = Branch(
        name="b",
        seed=9,
        games=GAMES,
        mesh=MeshConfig(data=2),
        rollout=ROLLOUT,
        trajectories=str(recorded),
        sampling=PLAIN,
        turns="all",
        siblings=2,
        opponent="random_legal",
        episodes_per_chunk=16,
    )
    return dataclasses.replace(config, **changes)


@pytest.fixture(scope="module")
def branched(recorded, tmp_path_factory):
    return collected(tmp_path_factory.mktemp("branched") / "run", configured(recorded))


def own_turns(row):
    return [turn for turn in replay(row.record()) if turn.seat == row.seat and not turn.aside]


def groups(path):
    """Siblings by where they branch: (game, task, sample, turn)."""
    found = collections.defaultdict(list)
    for row in rows_of(path).values():
        found[row.game, row.task, *row.branch].append(row)
    return found


# ---- what comes of a run --------------------------------------------------------------------------------------------


def test_every_turn_of_every_row_has_its_siblings(recorded, branched):
    wanted = {
        (row.game, row.task, row.sample, turn): 2
        for row in rows_of(recorded).values()
        for turn, shown in enumerate(own_turns(row))
        if shown.status == "policy"
    }
    assert {place: len(rows) for place, rows in groups(branched).items()} == wanted
    assert len(wanted) > len(rows_of(recorded)) == 12


def test_siblings_share_instance_seat_and_history_and_differ_afterwards(recorded, branched):
    sources, differ = rows_of(recorded), 0
    for (game, task, sample, turn), siblings in groups(branched).items():
        source = sources[game, task, sample]
        begun = source.messages[: 2 * turn + 1]  # no system message: shown, said, ..., shown
        for row in siblings:
            assert (row.options, row.seat, row.game_seed, row.opponent) == (
                source.options, source.seat, source.game_seed, source.opponent
            )  # fmt: skip
            assert row.messages[: 2 * turn + 1] == begun
            assert list(replay(row.record()))
        differ += siblings[0].messages[2 * turn + 1] != siblings[1].messages[2 * turn + 1]
    assert differ > 5


def test_tokens_masks_and_logprobs_of_the_opening_are_those_of_the_recorded_row(recorded, branched):
    sources = rows_of(recorded)
    for (game, task, sample, turn), siblings in groups(branched).items():
        source = sources[game, task, sample]
        runs = np.flatnonzero(np.diff(np.concatenate([[0], source.mask.astype(int)])) == 1)
        end = runs[turn]  # where the reply of that turn begins
        for row in siblings:
            for name in ("token_ids", "mask", "sampled_logprobs"):
                np.testing.assert_array_equal(getattr(row, name)[:end], getattr(source, name)[:end])
            assert row.mask[end]  # the first token after it was sampled
            assert row.mask[:end].sum() == source.mask[:end].sum()


def test_sampled_tokens_have_the_log_probabilities_of_a_plain_forward_pass(branched):
    """Of opening and continuation alike: float32, temperature 1, no filter, one row at a time."""
    config, params = huggingface.load(huggingface.resolve("tiny_player"), dtype="float32")
    length = ROLLOUT.max_length

    @jax.jit
    def table(tokens):
        model = bind(config, params)
        hidden = model(tokens[None], jnp.arange(length)[None], jnp.ones((1, length), jnp.int32))[0]
        return jax.nn.log_softmax(hidden @ model.output_embedding.T, axis=-1)

    checked = 0
    for row in itertools.islice(rows_of(branched).values(), 0, None, 3):
        found = np.asarray(table(np.pad(row.token_ids, (0, length - row.tokens)).astype(np.int32)))
        for place in np.flatnonzero(row.mask):
            assert found[place - 1, row.token_ids[place]] == pytest.approx(row.sampled_logprobs[place], abs=1e-4)
            checked += 1
    assert checked > 50


def test_a_stop_changes_nothing(tmp_path, recorded, branched):
    path = tmp_path / "parts"
    with pytest.raises(Interrupted):
        collected(path, configured(recorded), StopsAfter(3))
    assert 0 < len(rows_of(path)) < len(rows_of(branched))
    same(rows_of(collected(path, configured(recorded))), rows_of(branched), atol=1e-5)


def test_other_recorded_rows_are_another_collection(tmp_path, recorded):
    source, path = tmp_path / "source", tmp_path / "run"
    rows = [row for row in read_trajectories(recorded / "trajectories") if row.game == "Nim-v0"]
    config = configured(source, games={"Nim-v0": {}}, turns="first", siblings=1)
    for kept in (rows, rows[1:]):
        shutil.rmtree(source, ignore_errors=True)
        with TrajectoryWriter(source, rows[0].provenance) as writer:
            for row in kept:
                writer.write(row)
        if kept is rows:
            collected(path, config)
            (path / "finished.json").unlink()
    with pytest.raises(DatasetError, match=r"sampling is .*branches.*but this collection has"):
        collected(path, config)


def test_collected_files_have_no_columns_of_branches(recorded, branched):
    for path, more in ((recorded, []), (branched, ["branch_sample", "branch_turn"])):
        for part in (path / "trajectories").glob("*.parquet"):
            assert pq.read_schema(part).names == [*COLUMNS, *more]


# ---- which turns ----------------------------------------------------------------------------------------------------


def plan(source, **changes):
    return branches.planned(configured(source, **changes), "none")


def test_first_turns_and_at_most_so_many_of_a_dialogue(recorded):
    counts = collections.Counter((t.game, t.task, b.branch) for t, b in plan(recorded, turns="first").items())
    assert set(counts.values()) == {2}
    assert {branch.turn for _, _, branch in counts} == {0}
    assert len(counts) == 12
    full = collections.defaultdict(set)
    for place, begin in plan(recorded).items():
        full[place.game, place.task, begin.branch.sample].add(begin.branch.turn)
    some = [collections.defaultdict(set) for _ in range(2)]
    for seed, found in enumerate(some):
        for place, begin in plan(recorded, turns_per_dialogue=2, seed=seed).items():
            found[place.game, place.task, begin.branch.sample].add(begin.branch.turn)
        assert {key: len(turns) for key, turns in found.items()} == {k: min(2, len(turns)) for k, turns in full.items()}
        assert all(turns <= full[key] for key, turns in found.items())
    assert some[0] != some[1]


def test_attempts_are_numbered_and_the_same_every_time(recorded):
    one, two = plan(recorded), plan(recorded)
    assert list(one) == list(two)
    assert branches.digest(one) == branches.digest(two) != branches.digest(plan(recorded, seed=1, turns="first"))
    numbers = collections.defaultdict(list)
    for place in one:
        numbers[place.game, place.task].append(place.sample)
    assert all(found == list(range(len(found))) for found in numbers.values())
    assert {place.game for place in plan(recorded, games={"Nim-v0": {}}, tasks=1)} == {"Nim-v0"}
    assert {place.task for place in plan(recorded, games={"Nim-v0": {}}, tasks=1)} == {0}


def test_tokens_of_other_weights_are_not_taken(recorded):
    (row,) = [row for row in read_trajectories(recorded / "trajectories") if tuple(row.key)[2::3] == (0, 0)][:1]
    own = branches.planned(configured(recorded), row.provenance.model_hash)
    assert all(begin.opening.sample is not None for begin in own.values())
    assert all(begin.opening.sample is None for begin in plan(recorded).values())


def test_rows_without_log_probabilities_are_no_samples():
    row = trajectory(played("Nim-v0", 0, rng_seed=3))
    turns = branches.turns_of(row)
    begins = np.flatnonzero(np.diff(np.concatenate([[0], row.mask.astype(int)])) == 1)
    found = branches.opening_of(dataclasses.replace(row, sampled_logprobs=None), turns[1], recorded_tokens=True)
    np.testing.assert_array_equal(found.sample.token_ids, row.token_ids[: begins[1]])
    assert not found.sample.mask.any()
    few = dataclasses.replace(row, mask=np.zeros(row.tokens, bool))
    with pytest.raises(DatasetError, match="its tokens hold 0 replies, but turn 0 is recorded; collect it again"):
        branches.opening_of(few, turns[0], recorded_tokens=True)


def test_a_folder_without_the_runs_games_or_with_both_seats_of_a_task_is_refused(tmp_path, recorded):
    with pytest.raises(DatasetError, match="no turn to play on from: no conclusive trajectory there is of LiarsDice"):
        plan(recorded, games={"LiarsDice-v0": {}})
    row = trajectory(played("Nim-v0", 0))
    with TrajectoryWriter(tmp_path, PROVENANCE) as writer:
        writer.write(row)
        writer.write(dataclasses.replace(row, seat=1, sample=1))
    with pytest.raises(DatasetError, match="Nim-v0, task 0, is recorded from seats 0 and 1"):
        plan(tmp_path, games={"Nim-v0": {}})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"turns": "first", "turns_per_dialogue": 2}, "turns_per_dialogue=2: is of turns='all'; leave it at 0"),
        ({"sampling": SamplingConfig(temperature=0.0)}, "sampling.temperature=0: must be above 0"),
        ({"opponent": "nobody here"}, "opponent: "),
        ({"games": {"twenty_questions": {}}, "split": "none"}, "split='none': twenty_questions has train, test"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, sentence):
    assert validation.problems(configured("anywhere")) == []
    config = dataclasses.replace(configured("anywhere"), **changes)
    problems = validation.problems(config) + validation.path_problems(config)
    assert any(problem.startswith(sentence) for problem in problems), problems
    assert "trajectories='anywhere': there is no such place" in " ".join(validation.path_problems(config))


# ---- in a match -----------------------------------------------------------------------------------------------------


ROOM = dataclasses.replace(WATCHED_ROLLOUT, max_length=256)


def in_engine(tokenizer, specs, opponent="policy"):
    runner, _ = make(tokenizer, opponent, rollout=ROOM)
    return runner.play(specs)


def cut(episode, turns):
    """The replies of an episode before a turn of its own seat."""
    own = [n for n, reply in enumerate(episode.replies) if reply.seat == episode.seat and not reply.aside]
    return tuple(episode.replies[: own[turns]])


@pytest.mark.parametrize("game", ["TicTacToe-v0", "Nim-v0"])
def test_a_conversation_that_the_template_writes_is_the_recorded_one(tokenizer, game):
    """With replies that end in their stop text both are the same tokens; what follows is sampled with another seed."""
    for deal in range(4):
        spec = EpisodeSpec(game, {}, deal, deal % 2, deal, 50 + deal)
        (whole,) = in_engine(tokenizer, [spec])
        for turn in range(1, whole.steps):
            opening = Opening(cut(whole, turn))
            again = dataclasses.replace(spec, seed=900 + turn, opening=opening)
            (found,) = in_engine(tokenizer, [again])
            begin = np.flatnonzero(whole.sample.begins)[turn]
            np.testing.assert_array_equal(found.sample.token_ids[:begin], whole.sample.token_ids[:begin])
            assert not found.sample.mask[:begin].any()
            assert found.sample.mask[begin]
            assert found.replies[: len(opening.replies)] == list(opening.replies)
            assert list(replay(found.record()))


def test_a_remote_player_reads_what_it_has_said_before(tokenizer):
    spec = EpisodeSpec("TicTacToe-v0", {}, 0, 0, 0, 7)
    said = PlayedReply(0, "[4]", "policy"), PlayedReply(1, "[0]", "opponent")
    chats = []

    def answer(messages):
        chats.append([(message["role"], message["content"]) for message in messages])
        return "[8]"

    in_engine(tokenizer, [dataclasses.replace(spec, opening=Opening(said))], FunctionPlayer(answer))
    roles = [role for role, _ in chats[0]]
    assert roles == ["user", "assistant", "user"]
    assert chats[0][1] == ("assistant", "[0]")


def test_what_was_asked_aside_before_leaves_no_trace(tokenizer):
    """The hearer is asked aside twice before its turn; the conversation is that of the game without asides."""
    said = (
        PlayedReply(0, "[1]", "opponent"),
        PlayedReply(1, "[2]", "policy", aside=True),
        PlayedReply(1, "[1]", "policy", aside=True),
    )
    spec = EpisodeSpec(PLACE, {}, 0, 1, 0, 7, opening=Opening(said))
    (found,) = in_engine(tokenizer, [spec])
    unasked = dataclasses.replace(spec, game=PLACE.replace("Partners", "Unasked"), opening=Opening(said[:1]))
    (plain,) = in_engine(tokenizer, [unasked])
    begin = int(np.flatnonzero(found.sample.begins)[0])
    np.testing.assert_array_equal(found.sample.token_ids[:begin], plain.sample.token_ids[:begin])
    assert [reply.aside for reply in found.replies] == [False, True, True, False]
    assert Partners.asides == 2


@pytest.mark.parametrize(
    ("replies", "why"),
    [
        ((PlayedReply(1, "[4]", "opponent"),), "reply 0 of the opening is of seat 1, but seat 0 moves"),
        ((PlayedReply(0, "[4]", "policy"),), "the opening must end before a turn of seat 0 that is no aside"),
        ((PlayedReply(0, "?", "policy"), PlayedReply(1, "[4]", "opponent")), "is of seat 1, but seat None moves"),
    ],
)
def test_an_opening_that_the_rules_contradict_fails_its_game_only(tokenizer, replies, why):
    spec = EpisodeSpec("TicTacToe-v0", {}, 0, 0, 0, 7)
    broken, fine = in_engine(tokenizer, [dataclasses.replace(spec, opening=Opening(replies)), spec])
    assert why in broken.failure
    assert fine.failure is None


def test_branches_survive_files(tmp_path):
    row = dataclasses.replace(trajectory(played("Nim-v0", 1)), branch=BranchPoint(3, 1))
    other = dataclasses.replace(row, sample=1, branch=None)
    with TrajectoryWriter(tmp_path, PROVENANCE) as writer:
        writer.write(row)
        writer.write(other)
    assert [found.branch for found in read_trajectories(tmp_path)] == [BranchPoint(3, 1), None]
