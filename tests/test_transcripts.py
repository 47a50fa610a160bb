"""Transcripts are true games, and their ids are those of the whole conversation."""

import itertools

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from dfc.configs.tiny_player import GAME_IDS
from dfc.games import registry, scripted
from dfc.games.game import Verdict
from dfc.games.paprika.mastermind import targets
from dfc.games.rng import GameRng, derive_seed
from dfc.models.chat import ChatTokenizer
from dfc.tools.small_models import build_tokenizer, transcripts
from dfc.tools.small_models.transcripts import mixed_skill, random_legal

OPTIONS = {"TicTacToe-v0": {"show_board": True}, "GuessTheNumber-v0": {"max_turns": 5}, "LiarsDice-v0": {"num_dice": 2}}


def made(game_id, seed=0, share=0.3):
    return random_legal(game_id, OPTIONS.get(game_id, {}), seed, illegal_share=share)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    messages = transcripts.texts(
        t
        for game_id in ("TicTacToe-v0", "GuessTheNumber-v0", "Nim-v0")
        for seed in range(8)
        for t in made(game_id, seed)
    )
    build_tokenizer.build(messages, folder, size=600)
    return folder


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_the_exchanges_are_one_game_to_its_end(game_id):
    for seed in range(3):
        found = made(game_id, seed)
        game = registry.make(game_id, **OPTIONS.get(game_id, {}))
        game.reset(derive_seed("transcript deal", game_id, seed))
        left = {t.seat: list(t.exchanges) for t in found}
        while not game.over:
            exchange = left[game.to_move].pop(0)
            assert exchange.observation == game.observation(game.to_move)
            legal = exchange.reply in game.legal_actions()
            assert legal == exchange.imitate
            assert list(exchange.legal) == (game.legal_actions() if legal else [])
            assert game.step(exchange.reply) is (Verdict.PLAYED if legal else Verdict.ILLEGAL)
        assert not any(left.values())
        assert game.forfeited_by is None
        assert all(t.game == game_id for t in found)


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_illegal_tries_come_as_often_as_asked_for(game_id):
    def tries(share):
        found = [t for seed in range(8) for t in made(game_id, seed, share)]
        return [[e.imitate for e in t.exchanges] for t in found]

    assert all(all(imitated) for imitated in tries(0.0))
    every = tries(1.0)
    assert any(not all(imitated) for imitated in every)
    for imitated in (*every, *tries(0.5)):
        assert imitated[-1]  # being asked again is always answered
        assert (False, False) not in set(itertools.pairwise(imitated))
    some, most = (sum(not i for imitated in t for i in imitated) for t in (tries(0.5), every))
    assert some <= most


def test_a_transcript_depends_on_its_seed_only():
    assert made("LiarsDice-v0", 1) == made("LiarsDice-v0", 1)
    assert made("LiarsDice-v0", 1) != made("LiarsDice-v0", 2)


def test_the_moves_do_not_know_the_secret():
    """A player whose generator were the game's would meet the hidden number too often: 1 of 20 by chance."""
    first = [
        random_legal("GuessTheNumber-v0", {"illegal_allowance": 0}, seed, illegal_share=0.0)[0] for seed in range(300)
    ]
    assert sum(len(t.exchanges) == 1 for t in first) < 35  # expected 15, standard deviation 3.8


def test_texts_are_every_message():
    found = made("Nim-v0")
    expected = [text for t in found for e in t.exchanges for text in (e.observation, e.reply)]
    assert list(transcripts.texts(iter(found))) == expected


@pytest.mark.parametrize("game_id", ["TicTacToe-v0", "GuessTheNumber-v0", "Nim-v0", "ConnectFour-v0"])
def test_ids_are_those_of_the_whole_conversation_and_imitated_replies_are_masked(folder, game_id):
    ours = ChatTokenizer.load(folder)
    theirs = PreTrainedTokenizerFast.from_pretrained(str(folder))
    for transcript in made(game_id, 5, 0.5):
        sequence = transcripts.encode(transcript, ours)
        roles = [(("user", e.observation), ("assistant", e.reply)) for e in transcript.exchanges]
        messages = [{"role": role, "content": text} for pair in roles for role, text in pair]
        whole = theirs.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
        assert sequence.token_ids.tolist() == whole
        assert (sequence.token_ids.dtype, sequence.mask.dtype) == (np.int32, bool)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], sequence.mask, [0]])))
        runs = [sequence.token_ids[a:b].tolist() for a, b in edges.reshape(-1, 2)]
        imitated = [e.reply for e in transcript.exchanges if e.imitate]
        assert [theirs.decode(run) for run in runs] == [f"{reply}{build_tokenizer.END}" for reply in imitated]


@pytest.mark.parametrize("game_id", ["TicTacToe-v0", "GuessTheNumber-v0", "Nim-v0", "LiarsDice-v0"])
def test_the_shares_of_ids_are_those_of_a_player_who_takes_every_legal_action_equally_often(folder, game_id):
    tokenizer = ChatTokenizer.load(folder)
    end, longest = tokenizer.end_token_ids[0], 0
    for exchange in (e for t in made(game_id, 3) for e in t.exchanges if e.imitate):
        own = [*tokenizer.encode_reply(exchange.reply), end]
        found = transcripts.choices(exchange, tokenizer)
        assert len(found) == len(own)
        # The chain rule: every action, this one among them, is as probable as any other.
        np.testing.assert_allclose(
            np.prod([f[token_id] for f, token_id in zip(found, own, strict=True)]), 1 / len(exchange.legal)
        )
        for place, shares in enumerate(found):
            assert sum(shares.values()) == pytest.approx(1)
            spelled = [[*tokenizer.encode_reply(action), end] for action in exchange.legal]
            going_on = [token_ids[place] for token_ids in spelled if token_ids[:place] == own[:place]]
            assert shares == pytest.approx(
                {token_id: going_on.count(token_id) / len(going_on) for token_id in going_on}
            )
        longest = max(longest, len(exchange.legal))
    assert longest > 2


# ---- players of mixed skill -----------------------------------------------------------------------------------------

ONE_SEAT_EACH = ("bandit", "minesweeper", "twenty_questions", "murder_mystery")  # the last two with a world and a judge


def mixed(game_id, seed, low, high):
    return mixed_skill(game_id, {}, seed, skill=(low, high), illegal_share=0.0)


@pytest.mark.parametrize("game_id", GAME_IDS)
def test_no_skill_is_random_legal_play(game_id):
    options = OPTIONS.get(game_id, {})
    assert mixed_skill(game_id, options, 4, skill=(0.0, 0.0), illegal_share=0.3) == made(game_id, 4)


@pytest.mark.parametrize("game_id", ONE_SEAT_EACH)
def test_full_skill_is_the_strong_player_and_simulators_follow_their_scripts(game_id):
    (found,) = mixed(game_id, 3, 1.0, 1.0)
    game = registry.make(game_id)
    game.reset(derive_seed("transcript deal", game_id, 3))
    simulators, player = scripted.simulators(game), scripted.strong(game)
    draws = GameRng(derive_seed("transcript skill", game_id, 3))
    draws.uniform()  # the skill
    turns = []
    while not game.over:
        if game.to_move >= game.seats:
            game.step(simulators[game.role(game.to_move)].act(game, GameRng(0)))
            continue
        draws.uniform()  # who acts
        turns.append((game.observation(0), player.act(game, draws)))
        game.step(turns[-1][1])
    assert [(e.observation, e.reply) for e in found.exchanges] == turns
    assert found.seat == 0
    assert all(e.imitate for e in found.exchanges)


def test_skill_decides_how_often_the_program_acts():
    """Of the cases of customer service the program solves all in two or three turns, random talk needs far more."""
    turns = []
    for bound in (0.0, 0.5, 1.0):
        found = [mixed("customer_service", seed, bound, bound)[0] for seed in range(40)]
        turns.append(sum(len(t.exchanges) for t in found))
    assert turns[0] > 1.2 * turns[1] > 1.2 * turns[2]


def test_shares_are_those_of_a_player_who_is_skilled_now_and_then(folder):
    tokenizer = ChatTokenizer.load(folder)
    end = tokenizer.end_token_ids[0]
    (found,) = mixed("minesweeper", 1, 0.4, 0.4)
    for exchange in found.exchanges:
        count = len(exchange.legal)
        shares = sorted(map(exchange.share, exchange.legal))
        assert shares == pytest.approx([0.6 / count] * (count - 1) + [0.4 + 0.6 / count])
        # The chain rule: the shares of its ids multiply to the share of the action.
        token_ids = [*tokenizer.encode_reply(exchange.reply), end]
        product = np.prod(
            [f[token_id] for f, token_id in zip(transcripts.choices(exchange, tokenizer), token_ids, strict=True)]
        )
        np.testing.assert_allclose(product, exchange.share(exchange.reply))


def test_of_many_legal_actions_only_those_of_the_program_are_targets():
    (found,) = mixed("mastermind", 1, 0.5, 0.5)
    assert {e.legal for e in found.exchanges} == {(), *((e.reply,) for e in found.exchanges if e.imitate)}
    assert () in {e.legal for e in found.exchanges}  # a random code
    (skilled,) = mixed("mastermind", 1, 1.0, 1.0)
    assert all(e.legal == (e.reply,) for e in skilled.exchanges)
    (random,) = mixed("mastermind", 1, 0.0, 0.0)
    assert all(e.legal == (e.reply,) for e in random.exchanges)


def test_only_tasks_of_the_training_split_are_played():
    secrets = set(targets("train"))
    won = [t.exchanges[-1].reply for seed in range(6) for t in mixed("mastermind", seed, 1.0, 1.0)]
    assert {"".join(c for c in reply if c.isdigit()) for reply in won} <= secrets


# ---- pieces of a tokenizer for words --------------------------------------------------------------------------------


def test_pieces_are_whole_sentences_and_words_but_no_part_of_a_hidden_word_and_no_row_of_a_board():
    games = ("wordle", "minesweeper", "twenty_questions")
    found = [t for game_id in games for s in range(30) for t in mixed(game_id, s, 1.0, 1.0)]
    chosen = build_tokenizer.choose_pieces(transcripts.texts(iter(found)), 400)
    assert len(set(chosen)) == len(chosen) <= 400
    assert "</Answer>" in chosen
    assert any(piece.endswith("?") for piece in chosen)  # a question that is always the same
    assert max(map(build_tokenizer.items, chosen)) == 1
    guesses = {e.reply for t in found if t.game == "wordle" for e in t.exchanges}
    words = {guess.removeprefix("<Answer>").removesuffix("</Answer>") for guess in guesses}
    assert not [piece for piece in chosen if any(piece in word for word in words)]
    assert not [piece for piece in chosen if sum(piece.count(cell) for cell in "#*") > 1]


def test_pieces_do_not_depend_on_the_order_of_messages():
    messages = [m for s in range(5) for m in transcripts.texts(iter(mixed("murder_mystery", s, 1.0, 1.0)))]
    assert build_tokenizer.choose_pieces(messages, 150) == build_tokenizer.choose_pieces(messages[::-1], 150)


def test_the_text_of_a_single_task_is_no_piece():
    cases = [t for s in range(60) for t in mixed("murder_mystery", s, 1.0, 1.0)]
    cities = [t for s in range(60) for t in mixed("guess_my_city", s, 1.0, 1.0)]
    messages = [*transcripts.texts(iter(cases)), *transcripts.texts(iter(cities))] + ["Yes."] * 10_000
    told = "".join(e.observation for t in cases for e in t.exchanges[:1])
    whole = [piece for piece in build_tokenizer.choose_pieces(messages, 800) if piece in told and piece.count(" ") > 12]
    assert whole  # the rules
    assert all(told.count(piece) == len(cases) for piece in whole)


def test_an_aside_is_a_transcript_of_its_own_of_which_only_its_reply_is_imitated():
    found = [t for seed in range(6) for t in mixed_skill("clem_privateshared", {}, seed, skill=(1, 1), illegal_share=0)]
    asides = [t for t in found if t.exchanges[-1].reply.startswith("ASIDE:")]
    assert {t.exchanges[-1].reply for t in asides} == {"ASIDE: yes", "ASIDE: no"}
    # 30 questions a game, of which one in ten is shown: 18 in the mean.
    assert 6 < len(asides) < 36
    ordinary = [t for t in found if t not in asides]
    assert len(ordinary) == 6
    said = [exchange.reply for t in ordinary for exchange in t.exchanges]
    assert all(reply.startswith("ANSWER:") for reply in said)
    for aside in asides:
        *before, asked = aside.exchanges
        assert asked.imitate
        assert not any(exchange.imitate for exchange in before)
        assert asked.observation.rpartition("\n")[2].startswith("ASIDE:")
        assert any([e.reply for e in before] == [e.reply for e in other.exchanges[: len(before)]] for other in ordinary)


def test_a_row_of_a_grid_is_one_piece_and_a_cell_with_another_letter_one_of_its_own(tmp_path):
    grids = ["X ▢ X ▢ ▢\n▢ ▢ ▢ ▢ ▢\n▢ L ▢ N ▢"] * 20
    build_tokenizer.build(build_tokenizer.choose_pieces(grids, 40), tmp_path, size=420)
    tokenizer = ChatTokenizer.load(tmp_path)
    pieces = [tokenizer.decode([token]) for token in tokenizer.encode_reply(grids[0])]
    assert pieces == ["X ▢ X ▢ ▢", "\n", "▢ ▢ ▢ ▢ ▢", "\n", "▢", " L", " ▢", " N", " ▢"]
