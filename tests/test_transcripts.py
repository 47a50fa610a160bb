"""Transcripts are true games, and their ids are those of the whole conversation."""

import itertools

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from dfc.configs.tiny_player import IDS
from dfc.data import transcripts
from dfc.data.transcripts import random_legal
from dfc.games import registry
from dfc.games.chance import derive_seed
from dfc.games.game import Verdict
from dfc.models import tiny_tokenizer
from dfc.models.chat import ChatTokenizer

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
    tiny_tokenizer.build(messages, folder, size=600)
    return folder


@pytest.mark.parametrize("game_id", IDS)
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


@pytest.mark.parametrize("game_id", IDS)
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
        assert sequence.ids.tolist() == whole
        assert (sequence.ids.dtype, sequence.mask.dtype, sequence.logprobs.dtype) == (np.int32, bool, np.float32)
        assert not sequence.logprobs.any()
        edges = np.flatnonzero(np.diff(np.concatenate([[0], sequence.mask, [0]])))
        runs = [sequence.ids[a:b].tolist() for a, b in edges.reshape(-1, 2)]
        imitated = [e.reply for e in transcript.exchanges if e.imitate]
        assert [theirs.decode(run) for run in runs] == [f"{reply}{tiny_tokenizer.END}" for reply in imitated]


@pytest.mark.parametrize("game_id", ["TicTacToe-v0", "GuessTheNumber-v0", "Nim-v0", "LiarsDice-v0"])
def test_the_shares_of_ids_are_those_of_a_player_who_takes_every_legal_action_equally_often(folder, game_id):
    tokenizer = ChatTokenizer.load(folder)
    end, longest = tokenizer.end_ids[0], 0
    for exchange in (e for t in made(game_id, 3) for e in t.exchanges if e.imitate):
        own = [*tokenizer.encode_reply(exchange.reply), end]
        found = transcripts.choices(exchange, tokenizer)
        assert len(found) == len(own)
        # The chain rule: every action, this one among them, is as probable as any other.
        np.testing.assert_allclose(
            np.prod([f[id_] for f, id_ in zip(found, own, strict=True)]), 1 / len(exchange.legal)
        )
        for place, shares in enumerate(found):
            assert sum(shares.values()) == pytest.approx(1)
            spelled = [[*tokenizer.encode_reply(action), end] for action in exchange.legal]
            going_on = [ids[place] for ids in spelled if ids[:place] == own[:place]]
            assert shares == pytest.approx({id_: going_on.count(id_) / len(going_on) for id_ in going_on})
        longest = max(longest, len(exchange.legal))
    assert longest > 2
