"""All dialogue games at once: sizes and splits, equal games of one seed, a partner's early error, what does not pay."""

import itertools

import pytest

from dfc.games import registry, scripted
from dfc.games.dialogue import grids, guess_what, image_game, match_it, private_shared, reference_game, taboo, wordle
from dfc.games.dialogue.grids import EMPTY
from dfc.games.dialogue.maps import STEPS
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng
from dfc.games.task import FRESH

# As Playpen's appendix E.3 has them (train, 686 together) and clembench 2.0 (test, 817).
TRAIN = {"clem_taboo": 90, "clem_wordle": 60, "clem_wordle_withclue": 60, "clem_wordle_withcritic": 60}
TRAIN |= {"clem_referencegame": 256, "clem_imagegame": 80, "clem_privateshared": 80}
TEST = {"clem_taboo": 60, "clem_privateshared": 50, "clem_imagegame": 59, "clem_referencegame": 90, "clem_wordle": 30}
TEST |= {"clem_wordle_withclue": 30, "clem_wordle_withcritic": 30, "clem_codenames": 130, "clem_adventuregame": 128}
TEST |= {"clem_guesswhat": 60, "clem_matchit_ascii": 40, "clem_textmapworld": 50}
TEST |= {"clem_textmapworld_specificroom": 30, "clem_textmapworld_graphreasoning": 30}
SPLITS = ("train", "validation", "test")
TEAMS = [game for game in TEST if registry.make(game).team]


def seen_from_the_start(found):
    """Returns the passages of a map by where their ends lie, the start at (0, 0), and where the room to be found is."""
    cells, queue = {found.start: (0, 0)}, [found.start]
    for room in queue:
        for way, behind in found.exits[room].items():
            if behind not in cells:
                cells[behind] = tuple(a + b for a, b in zip(cells[room], STEPS[way], strict=True))
                queue.append(behind)
    passages = frozenset(frozenset((cells[a], cells[b])) for a in cells for b in found.exits[a].values())
    return passages, cells.get(found.target)


def goals_and_ways(world):
    told = world.adventure
    goals = frozenset((told.things[thing], told.places[place].name) for thing, place in told.goals)
    ways = (frozenset((told.rooms[a], told.rooms[b])) for a, beside in enumerate(told.exits) for b in beside)
    return goals, frozenset(ways)


# By game, what a player must find out, of a game that has begun.
HIDDEN = {
    "clem_taboo": lambda game: game.target,
    "clem_privateshared": lambda game: frozenset(game.form.values),
    "clem_imagegame": lambda game: game.target,
    "clem_referencegame": lambda game: game.grids[0],
    "clem_wordle": lambda game: game.target,
    "clem_wordle_withclue": lambda game: game.target,
    "clem_wordle_withcritic": lambda game: game.target,
    "clem_codenames": lambda game: frozenset(game.kinds),
    "clem_adventuregame": lambda game: goals_and_ways(game.world),
    "clem_guesswhat": lambda game: game.instance.target,
    "clem_matchit_ascii": lambda game: game.grids[0],
    "clem_textmapworld": lambda game: seen_from_the_start(game.map),
    "clem_textmapworld_specificroom": lambda game: seen_from_the_start(game.map),
    "clem_textmapworld_graphreasoning": lambda game: seen_from_the_start(game.map),
}
SETTINGS = 4  # tasks of the adventure that have one map: whether plans are wanted, and what can be carried


def hidden(game_id, split):
    game, found = registry.make(game_id, split=split), []
    for task in range(game.number_of_tasks):
        game.reset(task)
        found.append(HIDDEN[game_id](game))
    return found


def test_splits_have_at_least_the_sizes_of_paper_and_benchmark():
    splits = {game: registry.make(game).info.splits for game in TEST}
    assert {game for game in TEST if not registry.make(game).evaluation_only} == set(TRAIN)
    assert {game: sizes["train"] for game, sizes in splits.items() if game in TRAIN} == TRAIN
    assert sum(TRAIN.values()) == 686
    assert sum(splits[game]["validation"] for game in TRAIN) >= 420
    assert {game: sizes["test"] for game, sizes in splits.items()} == TEST
    assert sum(TEST.values()) == 817


@pytest.mark.parametrize("game_id", TEST)
def test_no_two_tasks_of_any_split_hide_the_same(game_id):
    found = {split: hidden(game_id, split) for split in SPLITS}
    for first, second in itertools.combinations(SPLITS, 2):
        assert not set(found[first]) & set(found[second])
    for secrets in found.values():
        assert len(set(secrets)) * (SETTINGS if game_id == "clem_adventuregame" else 1) == len(secrets)


@pytest.mark.parametrize("game_id", TEST)
def test_a_fresh_task_is_dealt_by_its_seed_and_is_in_no_split(game_id):
    """Of taboo the words beside the target are new, of guess what the candidates: their words come from one table."""
    secret = {
        "clem_taboo": lambda game: (game.target, frozenset(game.taboo)),
        "clem_guesswhat": lambda game: frozenset(game.instance.candidates),
    }.get(game_id, HIDDEN[game_id])
    game, dealt = registry.make(game_id, split=FRESH), []
    assert game.info.splits == {}
    for seed in (*range(40), 0, 1 << 40):
        game.reset(seed)
        dealt.append(secret(game))
        twin = registry.make(game_id, split=FRESH)
        twin.from_json(game.to_json())
        assert secret(twin) == dealt[-1]
    # Letters with the same shape, and maps of four rooms that look alike, are few: most are different, not all.
    assert len(set(dealt)) * (SETTINGS if game_id == "clem_adventuregame" else 1) > 30
    assert dealt[0] == dealt[40]
    for split in SPLITS:
        numbered = registry.make(game_id, split=split)
        for task in range(numbered.number_of_tasks):
            numbered.reset(task)
            assert secret(numbered) not in dealt


def test_fresh_grids_are_of_no_grid_that_is_measured():
    for game_id in ("clem_imagegame", "clem_matchit_ascii", "clem_referencegame"):
        game = registry.make(game_id, split=FRESH)
        for seed in range(20):
            game.reset(seed)
            shown = (game.target,) if game_id == "clem_imagegame" else game.grids
            assert {grids.split_of(grid) for grid in shown} == {"train"}


def test_only_games_that_draw_fresh_tasks_have_that_split():
    with pytest.raises(ValueError, match=r"split must be one of train, test, got 'fresh'"):
        registry.make("bandit", split=FRESH)


def test_what_one_game_trains_on_is_tested_by_no_game_of_its_kind():
    words = {split: set(hidden("clem_wordle", split)) for split in SPLITS}
    for game in ("clem_wordle_withclue", "clem_wordle_withcritic"):
        assert {split: set(hidden(game, split)) for split in SPLITS} == words
    grids = {split: set(hidden("clem_imagegame", split)) for split in SPLITS}
    for split in SPLITS:
        grids[split] |= {grid for pair in match_it.pairs()[split] for grid in pair}
        grids[split] |= {grid for triple in reference_game.triples()[split] for grid in triple.grids}
    for first, second in itertools.combinations(SPLITS, 2):
        assert not grids[first] & grids[second]


@pytest.mark.parametrize("game_id", TEST)
def test_two_games_of_one_seed_are_equal_to_the_end(game_id):
    """clemcore's environment takes a seed and ignores it."""
    first, second = registry.make(game_id), registry.make(game_id)
    for seed in (3, 1 << 40):
        for game in (first, second):
            game.reset(seed)
        rng, steps = GameRng(seed), 0
        while not first.over and steps < 60:
            assert [first.observation(s) for s in range(first.seats)] == [
                second.observation(s) for s in range(first.seats)
            ]
            reply = scripted.player(first, "random_legal").act(first, rng)
            assert first.step(reply) is second.step(reply)
            steps += 1
        assert first.to_json() == second.to_json()


@pytest.mark.parametrize("game_id", TEAMS)
def test_an_error_of_a_partner_before_ones_first_turn_is_an_abort_and_no_exception(game_id):
    """clemcore's environment returns a placeholder, and the next step raises."""
    game = registry.make(game_id)
    game.reset(0)
    partner = game.to_move
    reply = "" if game_id == "clem_matchit_ascii" else "nothing of the kind"  # where what is said in no form is a loss
    assert game.step(reply) is Verdict.FORFEIT_MALFORMED
    assert game.outcomes == (Outcome.INVALID, Outcome.INVALID)
    assert game.forfeited_by == partner
    assert "quality" not in game.measures()
    assert game.observation(1 - partner)
    assert game.abort_reason


# ---- quality without the skill ---------------------------------------------------------------------------------------


FULL, BLANK = ("\n".join([" ".join(cell * 5)] * 5) for cell in ("X", EMPTY))


def truly(game):
    """Returns the true reply to an aside."""
    return f"ASIDE: {'yes' if game.shared_from[game.probe[0]] < len(game.filled) else 'no'}"


ALL_WORDS = ", ".join(entry.target for entry in taboo.table())
BY_ALPHABET = sorted(wordle.allowed())
LAZY = {
    # (game, role): what is said instead of playing -> the most quality that it may be worth, strong players beside it.
    ("clem_taboo", "guesser", "lists the table"): (f"GUESS: {ALL_WORDS}", 0.0),
    ("clem_taboo", "guesser", "repeats the clue"): (lambda game: f"GUESS: {game.clues[-1]}", 0.0),
    ("clem_taboo", "describer", "spells the word"): (lambda game: f"CLUE: {' '.join(game.target)}", 0.0),
    ("clem_taboo", "describer", "spells it with points"): (lambda game: f"CLUE: {'. '.join(game.target)}", 0.0),
    ("clem_taboo", "describer", "stalls"): ("CLUE: you know it", 2.0),
    ("clem_privateshared", "answerer", "says the form"): (
        lambda game: truly(game) if game.aside else f"ANSWER: {', '.join(game.form.values)}",
        0.0,
    ),
    ("clem_privateshared", "answerer", "never knows"): (
        lambda game: "ASIDE: no" if game.aside else f"ANSWER: {game.form.values[len(game.filled)]}",
        0.0,
    ),
    ("clem_privateshared", "answerer", "repeats the question"): (
        lambda game: truly(game) if game.aside else f"ANSWER: {game.form.questions[len(game.filled)]}",
        0.0,
    ),
    ("clem_imagegame", "giver", "is done at once"): (image_game.DONE, 0.0),
    ("clem_imagegame", "giver", "stalls"): ("Command: wait", 0.0),
    ("clem_imagegame", "follower", "draws nothing"): (BLANK, 0.0),
    ("clem_imagegame", "follower", "fills the grid"): (FULL, 5.0),
    ("clem_referencegame", "follower", "says first"): ("Answer: first", 40.0),
    ("clem_referencegame", "giver", "says first"): ("Expression: the first grid", 40.0),
    ("clem_wordle", "guesser", "repeats a word"): ("explanation: x\nguess: crane", 0.0),
    ("clem_wordle", "guesser", "goes by alphabet"): (
        lambda game: f"explanation: x\nguess: {BY_ALPHABET[len(game.turns)]}",
        0.0,
    ),
    ("clem_wordle_withclue", "guesser", "repeats a word"): ("explanation: x\nguess: crane", 0.0),
    ("clem_wordle_withcritic", "guesser", "repeats a word"): ("explanation: x\nguess: crane", 0.0),
}


@pytest.mark.parametrize(("game_id", "role", "how"), LAZY)
def test_quality_without_the_skill_does_not_pay(game_id, role, how):
    say, most = LAZY[game_id, role, how]
    partner, qualities = scripted.player(game_id, "strong"), []
    game = registry.make(game_id)
    for task in range(0, game.number_of_tasks, 2):
        game.reset(task)
        rng = GameRng(task)
        while not game.over:
            if game.player_role(game.to_move) != role:
                game.step(partner.act(game, rng))
            else:
                game.step(say if isinstance(say, str) else say(game))
        qualities.append(game.measures().get("quality", 0.0))
    assert sum(qualities) / len(qualities) <= most


@pytest.mark.parametrize(
    ("game_id", "reply"),
    [
        ("clem_taboo", "CLUE: a\nGUESS: b"),
        ("clem_privateshared", "ASIDE: yes no"),
        ("clem_imagegame", "Command: Put A in row 1\nCommand: DONE"),
        ("clem_referencegame", "Expression: a\nExpression: b"),
        ("clem_wordle", "explanation: a\nguess: crane guess: sloth"),
        ("clem_wordle_withclue", "explanation: a\nguess: crane, sloth"),
        ("clem_wordle_withcritic", "explanation: a\nguess: crane\nexplanation: b\nguess: sloth"),
    ],
)
def test_two_replies_in_one_are_one_reply_or_an_abort(game_id, reply):
    game = registry.make(game_id)
    game.reset(0)
    game.step(reply)
    assert game.actions_played <= 1
    assert game.over == (game.outcomes is not None)


def test_guesses_at_a_word_that_only_stall_are_worth_nothing():
    """Guess what: asking to the end without a guess loses, as does a guess by chance three times of four or more."""
    assert guess_what.BOUNDS == {1: 5, 2: 4, 3: 5}
    game = registry.make("clem_guesswhat", split="test")
    game.reset(0)
    while not game.over:
        game.step("QUESTION: Is it nice?" if game.to_move == guess_what.GUESSER else "ANSWER: no")
    assert (game.outcomes, game.measures()["quality"]) == ((Outcome.LOSS,) * 2, 0.0)
    assert private_shared.cohen_kappa([True, False], [True, True]) == 0.0
