"""Files of clembench's instances: all 14 games play small ones of our own in its layout; errors name the place."""

import copy
import json

import pytest

from dfc import load_config
from dfc.evaluation.tasks import EvalSetting
from dfc.games import registry, scripted
from dfc.games.dialogue import original
from dfc.games.rng import GameRng
from dfc.records.task_groups import split_games
from dfc.stages import evaluate_tasks

GRIDS = ["\n".join([row] + ["▢ ▢ ▢ ▢ ▢"] * 4) for row in ("X X X X X", "X X ▢ ▢ ▢", "▢ ▢ ▢ X X")]
WORDS = ["lemon", "table", "stone", "river"]
ROOMS = {
    "Graph_Nodes": "['Hall', 'Attic', 'Crypt']",
    "Moves": "[{'node': 'Hall', 'node_moves': [('north', 'Attic'), ('east', 'Crypt')]},"
    " {'node': 'Attic', 'node_moves': [('south', 'Hall')]}, {'node': 'Crypt', 'node_moves': [('west', 'Hall')]},"
    " {'node': 'Hall', 'node_moves': [('north', 'Attic'), ('east', 'Crypt')]}]",
    "Current_Position": "Attic",
}
HOUSE = ["room(study1,study)", "room(livingroom1,livingroom)", "exit(study1,livingroom1)", "exit(livingroom1,study1)"]
HOUSE += ["type(player1,player)", "at(player1,study1)", "type(study1floor1,floor)", "at(study1floor1,study1)"]
HOUSE += ["support(study1floor1)", "type(sidetable1,sidetable)", "at(sidetable1,livingroom1)", "support(sidetable1)"]
HOUSE += ["type(chest1,chest)", "at(chest1,study1)", "container(chest1)", "openable(chest1)", "closed(chest1)"]
HOUSE += ["type(coin1,coin)", "at(coin1,study1)", "takeable(coin1)", "movable(coin1)", "in(coin1,chest1)"]
HOUSE += ["type(pottedplant1,pottedplant)", "at(pottedplant1,study1)", "takeable(pottedplant1)"]
HOUSE += ["on(pottedplant1,study1floor1)"]
SLOTS = {"to": "Oslo", "first-meal": "red soup", "by": "train"}
BLOCK = {"to": 0, "by": 4, "first-meal": 1}
BOARD = ["owl", "ice", "pan", "map", "jam", "sun"]
KINDS = {"team": BOARD[:2], "opponent": BOARD[2:4], "innocent": BOARD[4:5], "assassin": BOARD[5:]}


def wordle(clue, critic):
    words = {"lang_keywords": {"official_words_list": [*WORDS, "zzzzz"]}, "common_config": {"n_turns": 6}}
    return (
        {"use_clue": clue, "use_critic": critic, **words},
        {"target_word": "lemon", "target_word_clue": "a sour fruit"},
    )


# By game: parameters of the experiment, and one instance. Prompts stand for all that is not read.
FILES = {
    "clem_taboo": ({"max_turns": 3}, {"target_word": "lake", "related_word": ["water", "salt sea"]}),
    "clem_privateshared": (
        {},
        {
            "tag": "TRAVEL-AGENT",
            "slots": SLOTS,
            "request_order": ["by", "to", "first-meal"],
            "probes": {str(number): BLOCK for number in range(4)},
        },
    ),
    "clem_imagegame": ({}, {"target_grid": GRIDS[0].replace("X", "E")}),
    "clem_referencegame": (
        {},
        {
            **{f"player_1_{name}_grid": grid for name, grid in zip(("target", "second", "third"), GRIDS, strict=True)},
            "player_2_first_grid": GRIDS[2],
            "player_2_second_grid": GRIDS[0].replace("▢", "□"),
            "player_2_third_grid": GRIDS[1],
            "target_grid_name": ["second", "2"],
        },
    ),
    "clem_wordle": wordle(clue=False, critic=False),
    "clem_wordle_withclue": wordle(clue=True, critic=False),
    "clem_wordle_withcritic": wordle(clue=True, critic=True),
    "clem_codenames": (
        {"opponent difficulty": 2, "flags": {"REPROMPT ON ERROR": False}},
        {
            "board": BOARD,
            "assignments": KINDS,
        },
    ),
    "clem_adventuregame": (
        {},
        {
            "variant": "plan",
            "initial_state": HOUSE,
            "goal_state": ["on(coin1,sidetable1)", "in(pottedplant1,chest1)"],
            "max_turns": 50,
        },
    ),
    "clem_guesswhat": (
        {"max_turns": 8},
        {"target_word": "Two-step", "candidate_list": ["Copper", "Two-step", "Chair", "Rain"]},
    ),
    "clem_matchit_ascii": ({}, {"grid_a": GRIDS[0], "grid_b": GRIDS[1], "decision_turn": 3}),
    "clem_textmapworld": ({}, ROOMS),
    "clem_textmapworld_specificroom": ({}, {**ROOMS, "Specific_Room": "Crypt"}),
    "clem_textmapworld_graphreasoning": ({}, {**ROOMS, "Response_Construction": "^x$"}),
}
NAMES = {"clem_guesswhat": "Abs_Level_2", "clem_adventuregame": "deliver_plan_invlimittwo"}


def file_of(game, count=3):
    parameters, instance = copy.deepcopy(FILES[game])
    instances = [{"game_id": number, "prompt": "...", **instance} for number in range(count)]
    name = NAMES.get(game, "some")
    return {"experiments": [{"name": name, **parameters, "game_instances": instances}]}


def written(folder, data):
    path = folder / "instances.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return str(path)


def started(game, path, task=0, **options):
    made = registry.make(game, instances=path, **options)
    made.reset(task)
    return made


def test_files_are_for_every_dialogue_game():
    assert set(FILES) == {game for game in registry.own_game_ids() if game.startswith("clem_")}
    assert set(original.FIELDS) == {registry.kind(game).__name__ for game in FILES}


@pytest.mark.parametrize("strength", scripted.STRENGTHS)
@pytest.mark.parametrize("game", FILES)
def test_every_player_plays_a_file_to_its_end_and_copies_agree(tmp_path, game, strength):
    path = written(tmp_path, file_of(game))
    for task in range(3):
        played = started(game, path, task, split="test")
        assert played.experiment == NAMES.get(game, "some")
        player, rng = scripted.player(played, strength), GameRng(task)
        while not played.over:
            twin = registry.make(game, split="test", instances=path)
            twin.from_json(json.loads(json.dumps(played.to_json())))
            reply = player.act(played, rng)
            assert len(played.observation(played.to_move)) > 0
            assert played.step(reply) is twin.step(reply) is not None
            assert played.to_json() == twin.to_json()
        assert 0.0 <= played.measures()["quality"] <= 100.0


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_file_is_the_tasks_of_whichever_split_is_named_in_its_order(tmp_path, split):
    data = file_of("clem_taboo", 2)
    data["experiments"].append({**data["experiments"][0], "name": "rare"})
    second = json.loads(json.dumps(data["experiments"][1]["game_instances"]))
    for number, word in enumerate(("harp", "mole")):
        second[number]["target_word"] = word
    data["experiments"][1]["game_instances"] = second
    game = registry.make("clem_taboo", split=split, instances=written(tmp_path, data))
    assert game.info.splits == {split: 4}
    found = []
    for task in range(5):
        game.reset(task)
        found.append((game.target, game.experiment))
    assert found == [("lake", "some"), ("lake", "some"), ("harp", "rare"), ("mole", "rare"), ("lake", "some")]
    assert registry.make("clem_taboo").info.splits == {"train": 90, "validation": 60, "test": 60}


def test_what_a_file_says_is_what_is_played(tmp_path):
    def shown(game, seat=0):
        path = tmp_path / game
        path.mkdir()
        played = started(game, written(path, file_of(game)))
        return played, played.observation(seat)

    taboo, text = shown("clem_taboo")
    assert "The word: lake\n" in text
    assert "water, salt sea\n" in text
    taboo.step("CLUE: salts")
    assert taboo.outcomes[0] == "loss"  # a part of a taboo of two words
    form, text = shown("clem_privateshared")
    assert form.form.values == ("train", "Oslo", "red soup")
    assert [slot for slot, _ in form.form.probes[1]] == [1, 0, 2]
    assert form.max_game_length == 3 + 4 * 3
    assert "To: Oslo\nFirst meal: red soup\nBy: train\n" in text
    image, text = shown("clem_imagegame")
    assert image.target == ("EEEEE", *["▢" * 5] * 4)
    reference, _ = shown("clem_referencegame")
    assert (reference.order, reference.seen[1]) == ((2, 0, 1), reference.grids[0])
    word, _ = shown("clem_wordle")
    assert word.allowed() == {*WORDS, "zzzzz"}
    assert word.step("explanation: x\nguess: crane") == "illegal"
    assert word.step("explanation: x\nguess: zzzzz") == "played"
    assert "A clue to the word: a sour fruit" in shown("clem_wordle_withcritic", 1)[1]
    board, text = shown("clem_codenames")
    assert "Open words, your team's: owl, ice\n" in text
    assert board.difficulty() == 2
    house, text = shown("clem_adventuregame")
    assert house.planning
    assert house.world.hands == 2
    assert "the coin on the side table and the potted plant in the chest." in text
    assert "You can go to: living room." in text
    assert "on it: a potted plant." in text
    assert "There is a chest; it is closed." in text
    guess, text = shown("clem_guesswhat")
    assert "copper, two-step, chair, rain" in text
    assert guess.instance.level == 2
    guess.step("GUESS: Two-step")
    assert guess.outcomes[0] == "win"
    match, _ = shown("clem_matchit_ascii")
    assert match.grids[1][0] == "XX▢▢▢"
    room, text = shown("clem_textmapworld_specificroom")
    assert "Find this room: Crypt." in text
    assert "You are in this room: Attic. " in text
    for way in ("GO: south", "GO: east", "DONE"):
        room.step(way)
    assert room.measures()["quality"] == 100.0


OPENED = {
    "type_name": "open",
    "new_word": "maten",
    "explanation": "To maten is to uncover something, and what is in it.",
}
USUAL = {"type_name": "take", "lark": "...", "explanation": "To VERB is to get something."}


def house_of(**fields):
    return {**copy.deepcopy(FILES["clem_adventuregame"][1]), "variant": "basic", **fields}


def test_the_kinds_of_adventures_of_clembench_3_load_but_for_those_with_rules_of_their_own(tmp_path):
    """Its default file has five experiments: deliveries, two with new words for verbs, made-up actions, potions."""
    stated = ["room(ram1,ram)", "at(player1,ram1)", "type(rot1,rot)", "at(rot1,ram1)", "lotta_able(rot1)"]
    made_up = {"type_name": "bioch", "explanation": "To bioch is to make something lotta_able lotta."}
    recipe = [*HOUSE, "readable(recipe1)", "text(recipe1,That odd potion\\nIngredients: a spider.\\n)"]
    experiments = {
        "home_deliver_three_basic_hard_invlimittwo": house_of(action_definitions=["basic_actions_v2_invlimit.json"]),
        "new-words_home-delivery_easy_basic_easy": house_of(action_definitions=[OPENED, USUAL]),
        "new-words_home-delivery_medium_basic_easy": house_of(
            action_definitions=[OPENED, {**USUAL, "new_word": "ortid", "explanation": "To ortid is to get something."}]
        ),
        "new-words_created_basic": house_of(
            initial_state=stated, goal_state=["lotta(rot1)"], action_definitions=[made_up, USUAL]
        ),
        "potion_brewing": house_of(
            initial_state=recipe,
            goal_state=["at(potion1,study1)"],
            max_turns=100,
            action_definitions=["witch_actions_core.json"],
            event_definitions=[{"type_name": "potion_step_1", "pddl": "..."}],
        ),
    }
    rows = [
        {"name": name, "game_instances": [dict(own, game_id=n) for n in range(2)]} for name, own in experiments.items()
    ]
    path = written(tmp_path, {"experiments": rows})
    game = registry.make("clem_adventuregame", instances=path)
    assert game.info.splits == {"test": 6}
    for task, name in enumerate(experiments):
        if task < 3:
            game.reset(2 * task)
            assert game.experiment == name
    text = game.observation(0)
    assert "A new word: maten means to uncover something, and what is in it." in text
    assert "A new word: ortid means to get something." in text
    assert "ortid a thing" in text
    assert game.step("> open chest") == "played"
    assert game.observation(0).startswith("You do not know how to do that: open chest")
    game.step("> maten the chest")
    assert "coin" in game.observation(0)
    for strength in scripted.STRENGTHS:
        twin = registry.make("clem_adventuregame", instances=path)
        twin.reset(4)
        player, rng = scripted.player(twin, strength), GameRng(0)
        while not twin.over:
            assert twin.step(player.act(twin, rng)) == "played"
        assert strength != "strong" or twin.measures()["quality"] == 100.0
    only = written(tmp_path, {"experiments": rows[3:]})
    (said,) = registry.problems("clem_adventuregame", {"instances": only})
    assert "has no instance whose actions and events the game here has" in said


@pytest.mark.parametrize(
    "action",
    [
        {**OPENED, "new_word": "two words"},
        {**OPENED, "new_word": "take"},
        {**OPENED, "new_word": ["maten"]},
        {**OPENED, "new_word": "x" * 10_000},
        {**OPENED, "explanation": None},
        {**OPENED, "explanation": "two\nlines"},
        {**OPENED, "explanation": "x" * 10_000},
        {**OPENED, "explanation": "\x1b[2J"},
    ],
)
def test_a_new_word_for_a_verb_is_one_word_with_its_meaning(tmp_path, action):
    data = file_of("clem_adventuregame", 1)
    data["experiments"][0]["game_instances"][0]["action_definitions"] = [action]
    (said,) = registry.problems("clem_adventuregame", {"instances": written(tmp_path, data)})
    assert "field 'action_definitions' must give each verb another word" in said
    assert len(said) < 800
    assert said.isprintable()


@pytest.mark.parametrize("game", FILES)
@pytest.mark.parametrize("other", FILES)
def test_a_file_of_another_game_is_refused_by_name(tmp_path, game, other):
    path = written(tmp_path, file_of(other))
    if game == other:
        assert registry.problems(game, {"instances": path}) == []
        return
    (said,) = registry.problems(game, {"instances": path})
    assert path in said
    assert "instance 0 " in said
    assert "`instances` must name a file of clembench for" in said


@pytest.mark.parametrize(
    ("text", "came"),
    [
        ("", "is no JSON"),
        ("{oops", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ('{"experiments": [' + "9" * 10_000 + "]}", "is no JSON"),
        ("[1]", "has no list 'experiments'"),
        ('{"experiments": {}}', "has no list 'experiments'"),
        ('{"experiments": []}', "has no instance"),
        ('{"experiments": [3]}', "has an experiment 0 without 'name'"),
        ('{"experiments": [{"name": "a"}]}', "has an experiment 0 without 'name'"),
        ('{"experiments": [{"name": "a", "game_instances": [7]}]}', "experiment 'a', instance 0 must be a JSON object"),
        ('{"experiments": [{"name": "", "game_instances": [{}]}]}', "field 'name' must be text"),
        (json.dumps({"experiments": [{"name": "a", "game_instances": [{}] * 10_001}]}), "more than 10000 instances"),
    ],
)
def test_what_is_no_file_of_instances_is_refused(tmp_path, text, came):
    (said,) = registry.problems("clem_taboo", {"instances": written(tmp_path, text)})
    assert came in said
    assert len(said) < 800


def test_a_missing_a_binary_and_a_large_file_and_a_folder_are_refused(tmp_path, monkeypatch):
    large = written(tmp_path, file_of("clem_taboo"))
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, came in ((str(tmp_path), "is no file"), ("/dev/zero", "is no file"), (str(binary), "is no JSON")):
        assert came in registry.problems("clem_taboo", {"instances": path})[0]
    assert "cannot be read" in registry.problems("clem_taboo", {"instances": str(tmp_path / "nowhere")})[0]
    assert "cannot be read" in registry.problems("clem_taboo", {"instances": "a\0b"})[0]
    monkeypatch.setattr(original, "MAX_BYTES", 100)
    assert "bytes, more than 100" in registry.problems("clem_taboo", {"instances": large})[0]


# By game: fields of the instance that are replaced (None: taken away), and what the error says.
WRONG = [
    ("clem_taboo", {"target_word": None}, "has no field 'target_word'"),
    ("clem_taboo", {"target_word": 7}, "field 'target_word' must be a text, got 7"),
    ("clem_taboo", {"target_word": "  "}, "field 'target_word' must be text of at most 300"),
    ("clem_taboo", {"target_word": "a\u202eb"}, "that can be printed"),
    ("clem_taboo", {"related_word": ["a", "a"]}, "must be at most 64 different texts"),
    ("clem_taboo", {"related_word": [["a"]]}, "field 'related_word' must be text"),
    ("clem_taboo", {"max_turns": 4}, "has 4 rounds, and the game 3; set rounds=4"),
    ("clem_taboo", {"max_turns": "3"}, "field 'max_turns' must be a number of rounds, got '3'"),
    ("clem_privateshared", {"request_order": ["by", "to"]}, "must name each slot once"),
    ("clem_privateshared", {"probes": {"0": BLOCK}}, "has no field '1'"),
    ("clem_privateshared", {"probes": {str(n): {"to": 0} for n in range(4)}}, "each slot once in block 0"),
    ("clem_imagegame", {"target_grid": "X X\nX X"}, "must be a grid of 5 rows and columns"),
    ("clem_imagegame", {"target_grid": "a"}, "must be a grid of 5 rows and columns"),
    ("clem_referencegame", {"target_grid_name": ["first", "1"]}, "must say where player 2 sees the target"),
    ("clem_referencegame", {"target_grid_name": {}}, "must say where player 2 sees the target"),
    ("clem_referencegame", {"player_2_third_grid": GRIDS[2]}, "the same three grids, no two alike"),
    ("clem_wordle", {"target_word": "lemons"}, "must be a word of 5 letters"),
    ("clem_codenames", {"board": [*BOARD, "elk"]}, "must assign each word of the board once"),
    ("clem_codenames", {"board": [*BOARD[1:], "o.wl."]}, "must assign each word of the board once"),
    ("clem_codenames", {"assignments": {**KINDS, "opponent": BOARD[1:4]}}, "must assign each word of the board once"),
    ("clem_guesswhat", {"candidate_list": ["Copper", "Chair"]}, "one of them 'two-step'"),
    ("clem_matchit_ascii", {"grid_b": 3}, "field 'grid_b' must be a text, got 3"),
    ("clem_textmapworld", {"Graph_Nodes": "__import__('os')"}, "must be a list written in Python"),
    ("clem_textmapworld", {"Graph_Nodes": "[" * 9000}, "must be a list written in Python"),
    ("clem_textmapworld", {"Graph_Nodes": str(list("abcdefghijklm"))}, "must be 2 to 12 different rooms"),
    ("clem_textmapworld", {"Moves": "[7]"}, "field 'Moves' has an entry '7'"),
    ("clem_textmapworld", {"Moves": "[{'node': [], 'node_moves': [([], [])]}]"}, "for each passage the way back"),
    ("clem_textmapworld", {"Moves": ROOMS["Moves"].replace("'west'", "'up'")}, "for each passage the way back"),
    (
        "clem_textmapworld",
        {"Moves": "[{'node': n, 'node_moves': []} for n in 'ab']"},
        "must be a list written in Python",
    ),
    ("clem_textmapworld", {"Current_Position": "Bar"}, "names a room 'Bar'"),
    ("clem_textmapworld_specificroom", {"Specific_Room": "Bar"}, "names a room 'Bar'"),
    ("clem_adventuregame", {"variant": "other"}, "field 'variant' must be basic or plan"),
    ("clem_adventuregame", {"goal_state": []}, "field 'goal_state' must say"),
    ("clem_adventuregame", {"goal_state": ["at(coin1,study1)"]}, "field 'goal_state' must say"),
    ("clem_adventuregame", {"initial_state": ["room(study1)x"]}, "facts such as"),
    ("clem_adventuregame", {"initial_state": HOUSE[4:]}, "rooms of different kinds"),
    ("clem_adventuregame", {"initial_state": [*HOUSE, "exit(study1,moon1)"]}, "an exit between study1 and moon1"),
    ("clem_adventuregame", {"initial_state": [*HOUSE, "takeable(moon1)"]}, "and its place"),
    ("clem_adventuregame", {"initial_state": [*HOUSE, "support(moon1)"]}, "each support and container"),
]


@pytest.mark.parametrize(("game", "fields", "came"), WRONG)
def test_a_wrong_field_is_named_with_experiment_and_instance(tmp_path, game, fields, came):
    data = file_of(game)
    instance = data["experiments"][0]["game_instances"][1]
    for name, value in fields.items():
        instance[name] = value
        if value is None:
            del instance[name]
    path = written(tmp_path, data)
    (said,) = registry.problems(game, {"instances": path})
    assert came in said
    assert path in said
    if "rounds=" not in came:
        assert f"experiment {NAMES.get(game, 'some')!r}, instance 1 " in said


def test_rooms_must_be_connected_and_passages_lead_both_ways(tmp_path):
    apart = (
        "[{'node': 'Hall', 'node_moves': []}, {'node': 'Attic', 'node_moves': []}, {'node': 'Crypt', 'node_moves': []}]"
    )
    one_way = ROOMS["Moves"].replace("[('south', 'Hall')]", "[]")
    for moves, came in ((apart, "must connect all rooms"), (one_way, "the way back")):
        data = file_of("clem_textmapworld", 1)
        data["experiments"][0]["game_instances"][0]["Moves"] = moves
        assert came in registry.problems("clem_textmapworld", {"instances": written(tmp_path, data)})[0]


def test_what_an_experiment_says_is_checked(tmp_path):
    for name, said, came in (
        ("clem_codenames", {"flags": {"REPROMPT ON ERROR": True}}, "which the game has as illegal_allowance=2"),
        ("clem_codenames", {"opponent difficulty": 26}, "has 'opponent difficulty' 26"),
        ("clem_guesswhat", {"name": "Level_4"}, "does not end in level 1, 2 or 3"),
        ("clem_wordle", {"common_config": {"n_turns": 7}}, "set rounds=7"),
    ):
        data = file_of(name)
        data["experiments"][0] |= said
        assert came in registry.problems(name, {"instances": written(tmp_path, data)})[0]
    assert registry.problems("clem_wordle", {"instances": written(tmp_path, data), "rounds": 7}) == []
    path = written(tmp_path, file_of("clem_adventuregame"))
    said = registry.problems("clem_adventuregame", {"instances": path, "invented_words": True})
    assert "invented_words is for this package's own instances" in said[0]


def test_a_file_that_changed_is_read_again(tmp_path):
    path = written(tmp_path, file_of("clem_taboo"))
    assert started("clem_taboo", path).target == "lake"
    data = json.dumps(file_of("clem_taboo", 5)).replace('"lake"', '"pond"')
    assert started("clem_taboo", written(tmp_path, data)).target == "pond"


def test_a_subclass_reads_the_files_of_its_parent(tmp_path):
    kind = type("MyTaboo", (registry.kind("clem_taboo"),), {})
    assert kind(instances=written(tmp_path, file_of("clem_taboo"))).number_of_tasks == 3


def test_an_evaluation_plays_every_instance_of_a_file_once(tmp_path):
    path = written(tmp_path, file_of("clem_taboo"))
    games = {"clem_taboo": {"instances": path}, "clem_wordle": {}}
    config = load_config("configs/evaluate_clem.py", {"games": games})
    plays = evaluate_tasks.plays(config, split_games(config.games, config.split), EvalSetting("strong", None))
    tasks = [play.episode_spec.group for play in plays if play.episode_spec.game == "clem_taboo"]
    assert tasks == [0, 1, 2]
    assert len(plays) == 3 + 30
