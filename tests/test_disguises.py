"""Words in disguise: what the rules find, what they leave alone, and that no disguise pays where they hold."""

import pathlib

import pytest

from dfc.games import scripted
from dfc.games.dialogue.codenames import EXPERIMENTS, GUESSER, Codenames, groups, pool
from dfc.games.dialogue.dialogue_game import are_strict
from dfc.games.dialogue.disguises import disguises, is_a_word
from dfc.games.dialogue.english import known
from dfc.games.dialogue.taboo import DESCRIBER, Taboo, forbidden, table
from dfc.games.dialogue.words import stems
from dfc.games.rng import GameRng

ENTRIES = {entry.target: entry for entry in table()}
# (target, clue), as people write them: by somebody who had not seen the rule, and none was changed afterwards.
CLUES = [
    tuple(line.split("\t"))
    for line in (pathlib.Path(__file__).parent / "taboo_natural_clues.txt").read_text(encoding="utf-8").splitlines()
]
LEET = str.maketrans("aeiost", "431057")
TRICKS = {
    "split": lambda word: f"{word[:2]} {word[2:]}",
    "split at the end": lambda word: f"{word[:-1]} {word[-1:]}",
    "hyphens": "-".join,
    "dots": ".".join,
    "underscores": "_".join,
    "reversed": lambda word: word[::-1],
    "reversed with hyphens": lambda word: "-".join(word[::-1]),
    "a digit behind": lambda word: f"{word}1",
    "a digit before": lambda word: f"7{word}",
    "a digit within": lambda word: f"{word[:2]}5{word[2:]}",
    "digits for letters": lambda word: word.translate(LEET),
    "a star for a letter": lambda word: f"{word[0]}*{word[2:]}",
    "like behind": lambda word: f"{word}like",
    "under before": lambda word: f"under{word}",
    "words around": lambda word: f"the{word}thing",
    "letters around": lambda word: f"x{word}x",
    "every second letter": "x".join,
    "letters trebled": lambda word: "".join(letter * 3 for letter in word),
}


def started(entry, **options):
    game = Taboo(**options)
    game.reset(0)
    game.target, game.taboo = entry.target, entry.taboo
    return game


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_says_the_target_of_any_word_of_the_table(trick):
    unnoticed = []
    for entry in table():
        game = started(entry)
        game.step(f"CLUE: {TRICKS[trick](entry.target)}")
        unnoticed += [] if game.lost_by == DESCRIBER else [entry.target]
    assert unnoticed == []


def test_initials_say_the_target():
    assert disguises("wet and tasty, even refreshing", "water", ("drink", "river", "sea"))


def test_natural_clues_raise_no_alarm():
    assert len(CLUES) >= 200
    assert {target for target, _ in CLUES} <= ENTRIES.keys()
    said = [(target, clue) for target, clue in CLUES if forbidden(target, ENTRIES[target].taboo) & set(stems(clue))]
    assert said == []  # they are right by the source's rule
    assert [(t, clue) for t, clue in CLUES if disguises(clue, t, ENTRIES[t].taboo)] == []


def test_two_thousand_clues_of_scripted_players_raise_no_alarm():
    clues = 0
    seed = 0
    while clues < 2000:
        for split in ("train", "validation", "test", "fresh"):
            for name in ("simple", "strong"):
                game = Taboo(split=split)
                player = scripted.player(game, name)
                game.reset(seed)
                rng = GameRng(seed)
                while not game.over:
                    game.step(player.act(game, rng))
                clues += len(game.clues)
                assert game.lost_by is None, (game.target, game.clues)
        seed += 1


@pytest.mark.parametrize(
    ("target", "clue"),
    [
        ("ice", "a nice price for a service"),
        ("rain", "the train to the terrain of the brain"),
        ("ring", "bring a string during spring"),
        ("car", "a carrot on the carpet, scarce and careful"),
        ("table", "a comfortable stable with vegetables"),
        ("heart", "the arts"),
        ("slow", "it's low and it's our turn"),
        ("ship", "friendship and citizenships"),
        ("bed", "she stabbed, rubbed and absorbed it"),
        ("ring", "stirring, sparring, mooring and offerings"),
        ("city", "scarcity and elasticity"),
        ("king", "picnicking, seeking and banking"),
        ("tent", "intentions, attention and contents"),
        ("table", "forgettable and suitable"),
        ("car", "caring, scared and cared for"),
        ("morning", "mourning in black"),
        ("shoe", "she shows"),
        ("sun", "you shouldn't look at it, and you shouldn\u2019t stay in it"),
        ("star", "rats and the 4th of July, 20 of them"),
    ],
)
def test_a_word_that_another_one_holds_by_chance_is_none(target, clue):
    assert not disguises(clue, target, ())


def test_an_apostrophe_makes_no_word_of_another_and_hides_none():
    assert not disguises("everybody's own, and somebody's", "skeleton", ("body",))
    for clue in ("wat'er", "water's", "watern't", "underwater's", "waterlike's", "retaw's", "w4ter's"):
        assert not started(ENTRIES["water"]).may_be_said(clue), clue


@pytest.mark.parametrize("clue", ["waterfall", "an underwater world", "seawater", "wa, ter", "w.4.t.e.r", "the watre"])
def test_english_words_made_of_the_target_and_spellings_of_it_lose(clue):
    game = started(ENTRIES["water"])
    game.step(f"CLUE: {clue}")
    assert game.lost_by == DESCRIBER


def test_rules_are_those_of_the_source_where_original_instances_are_scored():
    assert [are_strict("", file) for file in ("", "instances.json")] == [True, False]
    assert [are_strict(rules, "instances.json") for rules in ("strict", "source")] == [True, False]
    with pytest.raises(ValueError, match="rules must be one of '', 'strict', 'source', got 'hard'"):
        Taboo(rules="hard")
    game = started(ENTRIES["water"], rules="source")
    game.step("CLUE: waterfall, retaw")
    assert not game.over


def test_a_hostile_clue_is_judged_in_little_time():
    entry = ENTRIES["water"]
    for clue in ("1" * 2000, "a" * 2000, "w " * 1000, "w1" * 1000, "wate" * 500, "-" * 2000):
        disguises(clue, entry.target, entry.taboo)


def test_every_word_of_the_games_is_a_word():
    assert all(map(known, ("nice", "theatres", "stopped", "colour", "color")))
    assert [word for word in {*pool("all"), *groups()} if not is_a_word(word)] == []
    parts = [text.split() for entry in table() for text in (entry.target, *entry.taboo, *entry.hints)]
    assert [word for words in parts for word in words if not is_a_word(word)] == []
    said = set()
    for task in range(60):
        game = Taboo(split="test")
        game.reset(task)
        said |= {word for clue in game.legal_actions() for word in clue.removeprefix("CLUE: ").split()}
    assert len(said) > 200
    assert [word for word in said if not is_a_word(word)] == []


def test_joined_beginnings_of_words_and_abbreviations_are_no_words():
    words = sorted(pool("all"))
    joined = [f"{a[:3]}{b[:3]}{c[:3]}" for a, b, c in zip(words, words[7:], words[31:], strict=False)]
    assert len(joined) > 400
    assert [word for word in joined if is_a_word(word)] == []
    assert not any(map(is_a_word, ("kit-dol-cas", "cdr", "bmw", "", "-", "h2o", "wátér1")))


def joined(words, length):
    return "-".join(word[:length] for word in words)


@pytest.mark.parametrize("length", [2, 3, 4])
def test_beginnings_of_the_targets_joined_win_no_codenames(length):
    won = 0
    for task in range(len(EXPERIMENTS)):
        game = Codenames()
        game.reset(task)
        while not game.over:
            if game.to_move == GUESSER:
                game.step(f"GUESS: {', '.join(game.targets)}")
            else:
                own = game.hidden("own")[: 29 // (length + 1)]
                game.step(f"CLUE: {joined(own, length)}\nTARGETS: {', '.join(own)}")
        won += game.measures().get("quality", 0.0) > 0
    assert won == 0
