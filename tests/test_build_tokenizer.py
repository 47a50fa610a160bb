import itertools
import json
import random

import hypothesis
import pytest
import sentencepiece
import tokenizers
from hypothesis import strategies
from sentencepiece import sentencepiece_model_pb2

from dfc.configs.tiny_player import GAME_IDS
from dfc.games import registry
from dfc.games.rng import GameRng, derive_seed
from dfc.games.scripted import RandomLegal
from dfc.tools.small_models import build_tokenizer

SIZE = 1024
BOARDS = {"TicTacToe-v0": {"show_board": True}, "ConnectFour-v0": {"show_board": True}}


def play(game, seed, said):
    """Plays one random-legal game with some illegal tries, and notes what was said by kind."""
    game.reset(seed)
    told, rng = set(), GameRng(derive_seed("player", seed))
    while not game.over:
        seat = game.to_move
        said["later" if seat in told else "first"].append(game.observation(seat))
        told.add(seat)
        action = RandomLegal().act(game, rng)
        said["action"].append(action)
        if rng.randrange(10) == 0 and game.actions_played > 2:
            repeated = said["action"][-3]
            if repeated not in game.legal_actions():
                action = repeated
        game.step(action)


@pytest.fixture(scope="module")
def messages():
    """Messages of every id it is made from: id -> kind -> texts."""
    every = {}
    for game_id in GAME_IDS:
        said = {"first": [], "later": [], "action": []}
        for seed in range(60):
            play(registry.make(game_id), seed, said)
        every[game_id] = said
    return every


def flat(messages):
    return [text for said in messages.values() for texts in said.values() for text in texts]


@pytest.fixture(scope="module")
def folder(messages, tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    build_tokenizer.build(flat(messages), path, size=SIZE)
    return path


def readers(folder):
    fast = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    fast.encode_special_tokens = True
    return fast, sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))


@pytest.fixture(scope="module")
def both(folder):
    return readers(folder)


def token_ids_of(both, text):
    fast, reference = both
    token_ids = fast.encode(text, add_special_tokens=False).ids
    assert token_ids == reference.encode(text), text
    return token_ids


def test_the_messages_hold_second_tries_and_every_kind(messages):
    assert all(texts for said in messages.values() for texts in said.values())
    assert sum(" Try again." in text for text in flat(messages)) > 100


def test_both_libraries_give_the_same_ids_on_every_message_of_the_games(both, messages):
    for text in set(flat(messages)):
        token_ids = token_ids_of(both, text)
        assert both[0].decode(token_ids) == text
        assert both[1].decode(token_ids) == text


CHARACTERS = strategies.characters(codec="utf-8")
FORGED = strategies.sampled_from([*build_tokenizer.SPECIAL_TOKENS, "<0x41>", "\u2581", " ", "\n", "[3", ", 4]"])


@hypothesis.given(strategies.lists(CHARACTERS | FORGED).map("".join))
@hypothesis.settings(max_examples=400, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
def test_any_text_gets_the_same_ids_in_both_libraries_and_comes_back(both, text):
    token_ids = token_ids_of(both, text)
    assert both[0].decode(token_ids) == text
    assert both[1].decode(token_ids) == text
    assert not set(token_ids) & {build_tokenizer.UNKNOWN_ID, build_tokenizer.BEGIN_ID, build_tokenizer.ASSISTANT_ID}
    assert not set(token_ids) & {build_tokenizer.END_ID, build_tokenizer.PAD_ID}


def test_any_joint_of_two_messages_gets_the_same_ids_in_both_libraries(both, messages):
    rng, texts = random.Random(0), flat(messages)
    for _ in range(3000):
        one, two = rng.choice(texts), rng.choice(texts)
        text = one[rng.randrange(len(one)) :] + two[: rng.randrange(len(two) + 1)]
        assert both[0].decode(token_ids_of(both, text)) == text


def fewest(text, pieces):
    """The least number of pieces that spell a text, by dynamic programming over every piece at every place."""
    best = [0] + [len(text) + 1] * len(text)
    for end in range(1, len(text) + 1):
        for piece in pieces:
            if text.endswith(piece, 0, end):
                best[end] = min(best[end], best[end - len(piece)] + 1)
    return best[-1]


def test_no_message_can_be_spelled_with_fewer_pieces(both, messages):
    pieces = [p for p in both[0].get_vocab() if not p.startswith("<0x") and p not in build_tokenizer.SPECIAL_TOKENS]
    texts = sorted(set(flat(messages)), key=len)
    for text in random.Random(0).sample(texts, 60):
        assert len(token_ids_of(both, text)) == fewest(text, pieces), text


def count_items(piece):
    """Items by walking the characters: numbers, towers between brackets, cells of board lines."""
    digits = sum(1 for kind, _ in itertools.groupby(piece, str.isdigit) if kind)
    towers = sum(f"[{tower}]" == piece or piece.endswith(f"[{tower}") for tower in "ABC")
    towers += sum(part in piece for part in ("[A ", "[B ", "[C ", " A]", " B]", " C]"))
    cells = [word for word in piece.split() if word in {"X", "O", ".", "_"}]
    return digits + towers + len(cells)


def test_no_piece_holds_more_than_one_item(folder):
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    ordinary = [piece for piece, _ in vocabulary[5 + 256 :]]
    assert any("Opponent plays [4]." in piece for piece in ordinary)
    for piece in ordinary:
        assert count_items(piece) <= 1, piece
        assert build_tokenizer.items(piece) <= 1, piece


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ("Opponent plays [4].", 1),
        ("[Bid: 3, 4]", 2),
        ("[Call]", 0),
        ("[A C]", 2),
        ("[A", 1),
        (" C]", 1),
        ("]\nB: []\nC: [2", 1),
        ("from tower A to tower C in at most 100", 1),
        ("place O; three in a row win", 0),
        ("X . O", 3),
        ("O X\n", 2),
        ("X..O", 4),
        ("A guess between 1 and 20.", 2),
        ("", 0),
    ],
)
def test_items_counts_numbers_towers_and_cells(piece, expected):
    assert build_tokenizer.items(piece) == expected


def test_a_drawn_board_has_one_cell_per_piece(tmp_path):
    said = {"first": [], "later": [], "action": []}
    for game_id, options in BOARDS.items():
        for seed in range(20):
            play(registry.make(game_id, **options), seed, said)
    build_tokenizer.build([text for texts in said.values() for text in texts], tmp_path, size=SIZE)
    both = readers(tmp_path)
    for text in said["later"]:
        pieces = both[0].encode(text, add_special_tokens=False).tokens
        assert max(map(count_items, pieces)) <= 1, pieces
        assert len(token_ids_of(both, text)) <= 1.15 * count_items(text) + 2, pieces


@pytest.mark.parametrize(
    ("game_id", "first", "later", "action"),
    [
        ("TicTacToe-v0", 5, 1, 1),
        ("ConnectFour-v0", 7, 3, 1),
        ("ConnectFour-v0-blind", 6, 1, 1),
        ("TowerOfHanoi-v0", 7, 3, 2),
        ("TowerOfHanoi-v0-medium", 8, 4, 2),
        ("GuessTheNumber-v0", 4, 1, 1),
        ("GuessTheNumber-v0-hardcore", 4, 1, 1),
        ("LiarsDice-v0", 11, 10, 2),
        ("Nim-v0", 9, 5, 2),
    ],
)
def test_messages_are_as_short_as_their_items_allow(both, messages, *, game_id, first, later, action):
    said = messages[game_id]
    most = {kind: max(len(token_ids_of(both, text)) for text in texts) for kind, texts in said.items()}
    assert most["first"] <= first
    assert most["later"] <= later
    assert most["action"] <= action


def test_the_table_of_lengths_names_every_row(folder, messages):
    rows = {f"{game_id} {kind}": texts for game_id, said in messages.items() for kind, texts in said.items()}
    table = build_tokenizer.describe(folder, rows)
    print(table)  # noqa: T201  # shown by pytest -s: the lengths a change of wording costs
    assert all(row in table for row in rows)


def test_the_files_do_not_depend_on_the_order_of_the_messages(messages, tmp_path):
    texts = flat(messages)[:2000]
    shuffled = random.Random(1).sample(texts, len(texts))
    build_tokenizer.build(texts, tmp_path / "a", size=SIZE)
    build_tokenizer.build(shuffled, tmp_path / "b", size=SIZE)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    expected = ["tokenizer.json", "tokenizer.model", "tokenizer_config.json"]
    assert names == ["chat_template.jinja", "special_tokens_map.json", *expected]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)


def test_ids_of_special_tokens_and_size_are_as_declared(folder, both):
    fast, reference = both
    for token_id, token in enumerate(build_tokenizer.SPECIAL_TOKENS):
        assert fast.token_to_id(token) == token_id == reference.piece_to_id(token)
    assert reference.unk_id() == build_tokenizer.UNKNOWN_ID
    assert reference.bos_id() == build_tokenizer.BEGIN_ID
    assert reference.eos_id() == build_tokenizer.END_ID
    assert reference.pad_id() == build_tokenizer.PAD_ID
    proto = sentencepiece_model_pb2.ModelProto.FromString((folder / "tokenizer.model").read_bytes())
    declared = proto.trainer_spec
    assert (declared.unk_id, declared.bos_id, declared.eos_id, declared.pad_id) == (0, 1, 3, 4)
    assert declared.vocab_size == len(proto.pieces)
    assert fast.get_vocab_size() == reference.get_piece_size() <= SIZE


@pytest.mark.parametrize("size", [357, 400])
def test_the_size_is_never_exceeded(messages, tmp_path, size):
    build_tokenizer.build(flat(messages), tmp_path, size=size)
    both = readers(tmp_path)
    assert both[0].get_vocab_size() == both[1].get_piece_size() == size
    for text in random.Random(0).sample(flat(messages), 200):
        assert both[0].decode(token_ids_of(both, text)) == text


def test_a_size_without_room_for_characters_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"size must be at least 357 .* got 356"):
        build_tokenizer.build([], tmp_path, size=356)


def test_links_in_the_folder_are_replaced_and_not_written_through(messages, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    made = tmp_path / "made"
    build_tokenizer.build(flat(messages), made, size=SIZE)
    names = sorted(path.name for path in made.iterdir())
    before = {name: (made / name).read_bytes() for name in names}
    for name in names:
        (made / name).unlink()
        (made / name).symlink_to(victim)
    build_tokenizer.build(flat(messages), made, size=SIZE)
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before
    assert victim.read_text() == "mine"
