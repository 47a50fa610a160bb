"""Games of a team: shared outcomes, aborts, allowances by seat, asides in every driver, and their episodes."""

import dataclasses
import functools
import io
import json
from pathlib import Path

import game_turns
import pytest
import watched_runners
from sound_games import Countdown, Partners
from watched_runners import ROLLOUT, SLOTS, make

from dfc import validation
from dfc.config import Grpo, RewardConfig, RolloutConfig
from dfc.episodes import from_bytes, to_bytes
from dfc.evaluation import matches
from dfc.games import registry
from dfc.games.game import Game, Outcome, Verdict
from dfc.games.replay import ReplayError, replay
from dfc.games.rng import GameRng
from dfc.games.scripted import RandomLegal
from dfc.launch import play
from dfc.players.remote import FunctionPlayer
from dfc.players.sequential import play_sequentially, refusal
from dfc.records.trajectories import FAILURES, _failure, failure_counts, seen_by
from dfc.report.data_tables import _labels
from dfc.rollout.match import EpisodeSpec
from dfc.rollout.sequential_match import play_episode
from dfc.scoring.episode_rewards import reward, turns
from dfc.training import game_plan

tokenizer = watched_runners.tokenizer  # the fixture
PLACE = f"{Path(__file__).parent / 'sound_games.py'}:Partners"
ROLLOUT_OF_TEAMS = dataclasses.replace(ROLLOUT, max_length=256)
INVALID = (Outcome.INVALID, Outcome.INVALID)
started = functools.partial(game_turns.started, Partners)


def played(game, *replies):
    return [game.step(reply) for reply in replies]


@pytest.mark.parametrize(
    ("replies", "verdict", "by", "why"),
    [
        (["hello"], Verdict.FORFEIT_MALFORMED, 0, "No action could be read. Reply in the form [1]."),
        (["[1]", "[1]", "[1]", "[4]", "[4]"], Verdict.FORFEIT_ILLEGAL, 1, "Nobody has so many."),
        (["[1]", "[1]", "[1]", "[3]"], Verdict.PLAYED, 1, "three is nobody's number"),
    ],
)
def test_what_one_seat_does_ends_the_game_of_both(replies, verdict, by, why):
    game = started()
    assert played(game, *replies)[-1] is verdict
    assert (game.outcomes, game.forfeited_by, game.abort_reason) == (INVALID, by, why)
    assert "quality" not in game.measures()
    written = json.loads(json.dumps(game.to_json()))
    twin = Partners()
    twin.from_json(written)
    assert (twin.abort_reason, twin.to_json()) == (why, written)
    game.reset(0)
    assert game.abort_reason is None


class Says:
    """Always says the same."""

    def __init__(self, text):
        self.text = text

    def act(self, game, rng):
        del game, rng
        return self.text


def test_a_seat_that_loses_for_all_is_told_apart_in_state_and_record():
    spec = EpisodeSpec("clem_taboo", {}, 0, 1, 0, 0)
    taboo = registry.make("clem_taboo")
    taboo.reset(0)
    said = [f"CLUE: {taboo.target}", "GUESS: x"]
    found = play_episode(spec, [Says(said[0]), Says(said[1])], RolloutConfig(), opponent="t")
    record = json.loads(json.dumps(found.record()))
    assert (record["lost_by"], record["loss_reason"]) == (0, "The clue holds the word or a taboo word.")
    assert [turn.reply for turn in replay(record)] == said[:1]
    with pytest.raises(ReplayError, match="lost by seat 0 because"):
        list(replay({**record, "lost_by": 1}))
    # A record of before says nothing and is as true.
    assert list(replay({k: v for k, v in record.items() if k not in ("lost_by", "loss_reason")}))
    taboo.step(said[0])
    written = json.loads(json.dumps(taboo.to_json()))
    twin = registry.make("clem_taboo")
    twin.from_json(written)
    assert (twin.lost_by, twin.to_json()) == (0, written)
    twin.reset(0)
    assert (twin.lost_by, twin.loss_reason) == (None, None)


def test_only_a_team_has_a_seat_that_loses_for_all():
    game = started()
    with pytest.raises(ValueError, match="must be a seat from 0 to 1, got 2"):
        game._lost(2, "no such seat")
    with pytest.raises(ValueError, match=r"_lost\(\) is for a team"):
        registry.make("Nim-v0")._lost(0, "opponents")


def test_an_abort_without_a_culprit_is_invalid_for_all_and_opponents_cannot_abort():
    game = started()
    assert game._abort("too long") == INVALID
    assert (game.abort_reason, game.forfeited_by) == ("too long", None)
    with pytest.raises(ValueError, match=r"by=\.\.\.\) must be a seat from 0 to 1 or None, got 2"):
        game._abort("?", by=2)
    rival = Countdown()
    rival.reset(0)
    with pytest.raises(ValueError, match="is for a team or a single player"):
        rival._abort("too long")


def test_games_of_opponents_write_neither_key():
    game = Countdown()
    game.reset(0)
    game.step("")
    assert not {"aside", "abort_reason"} & game.to_json().keys()
    assert sorted(game.outcomes) == [Outcome.INVALID, Outcome.WIN]


def test_allowances_by_seat_decide_who_is_asked_again():
    class Lenient(Partners):
        def allowances(self, seat):
            return (0, 0) if seat == 0 else (2, 1)

    game = Lenient()
    game.reset(0)
    twin = game.clone()
    assert twin.step("[4]") is Verdict.FORFEIT_ILLEGAL
    played(game, "[1]", "[1]", "[1]")
    assert played(game, "?", "[4]", "?", "[4]", "[4]") == [
        *(Verdict.MALFORMED, Verdict.ILLEGAL, Verdict.MALFORMED, Verdict.ILLEGAL),
        Verdict.FORFEIT_ILLEGAL,
    ]
    lost = Lenient()
    lost.reset(0)
    lost.step("[4]")
    assert refusal(lost, 0, "[4]") == "Nobody has so many. Try again."


def test_roles_and_defaults_of_a_class_are_known_before_the_start():
    info = Partners().info
    assert (info.team, info.player_roles, info.has_quality) == (True, ("teller", "hearer"), True)
    assert Partners().seat_of("hearer") == 1
    assert [Partners().player_role(seat) for seat in (0, 1)] == ["teller", "hearer"]
    assert [Partners().role(seat) for seat in (0, 1)] == ["player", "player"]
    with pytest.raises(ValueError, match="no role 'king' of a player; its roles are teller, hearer"):
        Partners().seat_of("king")
    assert registry.defaults("clem_taboo")["illegal_allowance"] == 0
    assert registry.make("clem_taboo").allowances(0) == (0, 0)


# ---- asides ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [False, True])
def test_an_aside_shows_its_question_alone_and_the_news_wait(history):
    game = started(history=history)
    rules = game._rules(1)
    game.step("[1]")
    assert (game.aside, game.to_move) == (True, 1)
    assert game.observation(1) == f"{rules}\nWhat do you expect, 0?"
    assert game.step("[4]") is Verdict.ILLEGAL  # asked again with the reason, still aside
    assert game.observation(1) == f"{rules}\nWhat do you expect, 0?\nNobody has so many. Try again."
    game.step("[2]")
    assert game.observation(1) == f"{rules}\nWhat do you expect, 1?"
    game.step("[1]")
    assert not game.aside
    assert game.observation(1) == f"{rules}\nPartner says [1]."
    assert game.noted == ["[2]", "[1]"]


def test_what_is_asked_aside_survives_copies():
    game = started()
    game.step("[1]")
    restored = Partners()
    restored.from_json(json.loads(json.dumps(game.to_json())))
    for twin in (game.clone(), restored):
        assert (twin.aside, twin.observation(1)) == (True, game.observation(1))
        twin.step("[2]")
    assert game.noted == []


def test_the_seat_that_is_asked_aside_moves_and_questions_are_not_empty():
    game = started()
    with pytest.raises(ValueError, match="players on seats 0 to 1"):
        game._ask_aside(2, "who?")
    with pytest.raises(ValueError, match="is empty"):
        game._ask_aside(1, "")

    class Confused(Partners):
        def _play(self, action):
            super()._play(action)
            return 0

    confused = Confused()
    confused.reset(0)
    with pytest.raises(ValueError, match="seat 1 was asked aside, but seat 0 moves next"):
        confused.step("[1]")


def noting(chats, reply="[1]"):
    def answer(messages):
        chats.append([(m["role"], m["content"]) for m in messages])
        return reply

    return FunctionPlayer(answer)


def noting_said(chats):
    return noting(chats, "[2]")


def check_chats(chats):
    """Two asides, then the turn: none of the chats holds the question or the reply of another."""
    rules = Partners()._rules(1)
    assert chats == [
        [("user", f"{rules}\nWhat do you expect, 0?")],
        [("user", f"{rules}\nWhat do you expect, 1?")],
        [("user", f"{rules}\nPartner says [1].")],
    ]


def test_a_remote_player_is_asked_aside_in_a_sequential_game():
    chats, told = [], []
    game = started()
    replies = play_sequentially(game, [noting(told), noting(chats)], GameRng(0))
    check_chats(chats)
    assert [reply.aside for reply in replies] == [False, True, True, False]


def episode(**options):
    spec = EpisodeSpec(PLACE, options, 0, 1, 0, 0)
    return play_episode(spec, [RandomLegal(), RandomLegal()], RolloutConfig())


def test_the_record_of_an_episode_says_what_was_aside_and_replays():
    found = episode()
    record = json.loads(json.dumps(found.record()))
    assert record["team"] is True
    assert [len(entry) for entry in record["replies"]] == [3, 5, 5, 3]
    turns = list(replay(record))
    assert [turn.aside for turn in turns] == [False, True, True, False]
    assert found.steps == 1
    record["replies"][0] += [True, True]
    with pytest.raises(ReplayError, match="recorded as an aside, but seat 0 is asked nothing aside"):
        list(replay(record))


def test_the_record_of_an_abort_is_held_to_its_reason():
    class Breaks:
        def act(self, game: Game, _):
            return "[3]" if not game.aside and game.to_move == 1 else "[1]"

    spec = EpisodeSpec(PLACE, {}, 0, 0, 0, 0)
    found = play_episode(spec, [Breaks(), Breaks()], RolloutConfig())
    record = found.record()
    assert (record["abort_reason"], record["forfeited_by"]) == ("three is nobody's number", 1)
    assert found.broken_off
    assert found.quality is None
    assert list(replay(record))
    with pytest.raises(ReplayError, match="broken off because"):
        list(replay({**record, "abort_reason": "another"}))


# ---- in the engine --------------------------------------------------------------------------------------------------


def in_engine(tokenizer, place, *, opponent=None, seat=1, count=4, both_seats=False, **options):
    runner, engine = make(tokenizer, opponent or "policy", rollout=ROLLOUT_OF_TEAMS, both_seats=both_seats)
    specs = [EpisodeSpec(place, options, deal, seat, deal, 100 + deal) for deal in range(count)]
    found = [episode for episodes in runner.play_all(specs) for episode in episodes]
    assert engine.free == SLOTS
    assert [episode.failure for episode in found] == [None] * len(found)
    return found


@pytest.mark.parametrize("seat", [0, 1])
def test_the_engine_forgets_what_it_was_asked_aside(tokenizer, seat):
    """Oracle: the same game without the asides. Token for token, whoever else sits there."""
    for opponent in (None, RandomLegal()):
        asked = in_engine(tokenizer, PLACE, opponent=opponent, seat=seat)
        plain = in_engine(tokenizer, PLACE.replace("Partners", "Unasked"), opponent=opponent, seat=seat)
        for one, other in zip(asked, plain, strict=True):
            assert sum(reply.aside for reply in one.replies) == 2
            if opponent is None:
                assert [r.text for r in one.replies if not r.aside] == [r.text for r in other.replies]
                assert one.sample.token_ids.tolist() == other.sample.token_ids.tolist()
                assert one.sample.mask.tolist() == other.sample.mask.tolist()
                assert one.sample.choices.table().tolist() == other.sample.choices.table().tolist()
            assert int(one.sample.begins.sum()) == one.steps == 1
            assert len(turns(one)) == 1
            list(replay(one.record()))
            (again,) = from_bytes(to_bytes([one]))
            assert again.record() == one.record()


def test_both_seats_of_a_team_have_an_episode_with_one_outcome(tokenizer):
    pairs = in_engine(tokenizer, PLACE, seat=0, both_seats=True)
    for one, other in zip(pairs[::2], pairs[1::2], strict=True):
        assert one.outcome == other.outcome
        assert (one.seat, other.seat) == (0, 1)
        assert one.quality == other.quality


def test_a_remote_partner_is_asked_aside_in_a_match(tokenizer):
    chats = []
    in_engine(tokenizer, PLACE, opponent=noting_said(chats), seat=0, count=1)
    rules = Partners()._rules(1)
    assert [chat[0] for chat in chats[:2]] == [("user", f"{rules}\nWhat do you expect, {n}?") for n in (0, 1)]
    assert [len(chat) for chat in chats] == [1, 1, 1]
    assert chats[2][0][1].startswith(f"{rules}\nPartner says [")


def test_allowances_that_a_game_overrides_bound_the_replies_of_a_match(tokenizer):
    """The hearer has 3 further tries in which nothing can be read; a bound from the attributes would stop at 4."""

    class Mute:
        def act(self, *_):
            return "?"

    place = PLACE.replace("Partners", "Patient")
    (found,) = in_engine(tokenizer, place, opponent=Mute(), seat=0, count=1, illegal_allowance=0)
    assert found.outcomes == ("invalid", "invalid")
    assert found.forfeited_by == 1
    assert [reply.seat for reply in found.replies] == [0, 1, 1, 1, 1]


# ---- what it is worth -----------------------------------------------------------------------------------------------


def ended(seat=0, **fields):
    usual = {"outcomes": ("win", "win"), "forfeited_by": None, "team": True, "measures": {"quality": 50.0}}
    base = episode()
    return dataclasses.replace(base, **{"seat": seat, **usual, **fields})


ABORT = {"outcomes": ("invalid", "invalid"), "forfeited_by": 1, "abort_reason": "why", "measures": {}}


def test_an_abort_by_a_partner_is_a_loss_and_no_win_and_costs_no_format():
    plain = RewardConfig(hasty_action_penalty=False)
    assert reward(ended(0, **ABORT), plain) == -1.0
    assert reward(ended(1, **ABORT), plain) == plain.invalid
    assert reward(ended(0, **{**ABORT, "forfeited_by": None}), plain) == -1.0
    for seat in (0, 1):
        record = matches.record_of(ended(seat, **ABORT))
        assert (record.win, record.loss, record.won_by_forfeit, record.lost_by_forfeit) == (0, 1, 0, 1)


def test_the_quality_is_a_reward_and_an_abort_is_worth_nothing():
    config = RewardConfig(measure="quality")
    assert reward(ended(), config) == 0.5
    assert reward(ended(**ABORT), config) == 0.0
    assert reward(ended(1, **ABORT), config) == 0.0
    assert reward(ended(measures={"quality": 0.0}, outcomes=("loss", "loss")), config) == 0.0


def test_a_role_decides_the_policys_seat():
    for role, seat in (("teller", 0), ("hearer", 1)):
        specs = matches.match_specs({PLACE: {}}, 4, 0, "roles", {PLACE: role})
        assert [spec.seat for spec in specs] == [seat] * 4
    assert [spec.seat for spec in matches.match_specs({PLACE: {}}, 4, 0, "roles")] == [0, 1, 0, 1]


# ---- configurations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"learner_roles": {"Nim-v0": "guesser"}}, "learner_roles: 'Nim-v0' must be among this run's games, clem_"),
        ({"learner_roles": {"clem_taboo": "judge"}}, "learner_roles.clem_taboo='judge': clem_taboo: there is no role"),
        (
            {"games": {"Nim-v0": {}}, "reward": RewardConfig(measure="quality")},
            "reward.measure='quality': Nim-v0 does not say how good a game was",
        ),
    ],
)
def test_a_role_or_a_quality_that_a_game_does_not_have_is_refused(changes, sentence):
    (problem,) = validation.problems(dataclasses.replace(Grpo(games={"clem_taboo": {}}), **changes))
    assert problem.startswith(sentence)


def test_roles_and_quality_of_a_dialogue_game_are_taken():
    config = Grpo(
        games={"clem_taboo": {}}, learner_roles={"clem_taboo": "guesser"}, reward=RewardConfig(measure="quality")
    )
    assert validation.problems(config) == []
    specs = game_plan.rollout_specs({"clem_taboo": 3}, config, "stage", 1)
    assert {spec.seat for spec in specs} == {1}
    plain = game_plan.rollout_specs({"clem_taboo": 3}, dataclasses.replace(config, learner_roles={}), "stage", 1)
    assert {spec.seat for spec in plain} == {0, 1}


def test_what_was_aside_is_in_no_trajectory():
    found = seen_by(replay(episode().record()), 1, None)
    assert [message.content for message in found if message.role == "user"] == [
        f"{Partners()._rules(1)}\nPartner says {episode().replies[0].text}."
    ]


def test_trajectories_of_an_abort_say_whose_it_was():
    labels = [_failure(ended(seat, **ABORT), []) for seat in (0, 1)]
    assert labels == ["aborted", "illegal"]
    none = dict.fromkeys(FAILURES, 0)
    assert "aborted" not in failure_counts(none)
    assert failure_counts(none | {"aborted": 2})["aborted"] == 2
    shown = [{"failures": failure_counts(none)}, {"failures": failure_counts(none | {"aborted": 2})}]
    assert _labels(shown) == list(FAILURES)


def test_a_person_reads_roles_questions_aside_and_why_a_game_was_broken_off():
    out = io.StringIO()
    words = [f"--game={PLACE}", "--seat=1", "--opponent=random_legal", '--options={"malformed_allowance": 0}']
    assert play.main(words, read=io.StringIO("[1]\n[2]\n[3]\n"), write=out) == 0
    text = out.getvalue()
    assert "What do you expect, 1?" in text
    assert "hearer> " in text
    assert "The game is broken off, by hearer: three is nobody's number.\n" in text
