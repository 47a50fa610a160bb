"""What every registered game must keep, whatever its rules."""

import doctest
import json
import random

import pytest

from dfc.games import extraction, registry
from dfc.games.extraction import extract_action
from dfc.games.game import Outcome, Verdict

IDS = registry.ids()
TWO_SEATS = [game_id for game_id in IDS if registry.make(game_id).seats == 2]
SEEDS = range(40)

# Well-formed and against the rules in the first position of every game.
ILLEGAL_AT_START = {
    "TicTacToe-v0": "[9]",
    "ConnectFour-v0": "[col 7]",
    "ConnectFour-v0-blind": "[col 7]",
    "TowerOfHanoi-v0": "[B C]",
    "TowerOfHanoi-v0-medium": "[A A]",
    "GuessTheNumber-v0": "[21]",
    "GuessTheNumber-v0-hardcore": "[0]",
    "LiarsDice-v0": "[Call]",
    "Nim-v0": "[0 4]",
}
OUT_OF_RANGE = {
    "TicTacToe": ["[9]", "[10]", "[99999]"],
    "ConnectFour": ["[col 7]", "[col 70]"],
    "TowerOfHanoi": ["[A A]", "[B B]", "[C C]"],
    "GuessTheNumber": ["[0]", "[51]", "[1000]"],
    "LiarsDice": ["[Bid: 0, 3]", "[Bid: 11, 1]", "[Bid: 1, 7]", "[Bid: 1, 0]"],
    "Nim": ["[0 0]", "[3 1]", "[0 100]", "[30 1]"],
}
HUGE = "9" * 5000  # more digits than int() takes


def started(game_id, seed=0, **options):
    game = registry.make(game_id, **options)
    game.reset(seed)
    return game


def everything_seen(game):
    return (
        game.to_move,
        game.outcomes,
        game.legal_actions(),
        [game.observation(seat) for seat in range(game.seats)],
        game.to_json(),
    )


def play_random(game, rng):
    """Plays to the end and yields what is seen before every action and at the end."""
    yield everything_seen(game)
    while not game.over:
        assert game.step(rng.choice(game.legal_actions())) is Verdict.PLAYED
        yield everything_seen(game)


def test_every_id_has_an_illegal_example():
    assert set(ILLEGAL_AT_START) == set(IDS)


@pytest.mark.parametrize("game_id", IDS)
def test_facts_are_the_same_before_and_after_a_game(game_id):
    game = registry.make(game_id)
    before = game.facts
    assert before.id == game_id
    assert before.seats in {1, 2}
    assert before.longest >= 1
    for _ in play_random(started(game_id), random.Random(0)):
        pass
    assert game.facts == before == started(game_id, 5).facts


@pytest.mark.parametrize("game_id", IDS)
def test_start_says_whether_games_begin_alike(game_id):
    starts = [everything_seen(started(game_id, seed)) for seed in SEEDS]
    starts = {json.dumps([seen[:4], seen[4]["state"]]) for seen in starts}
    if registry.make(game_id).facts.start == "fixed":
        assert len(starts) == 1
    else:
        assert len(starts) > 10


@pytest.mark.parametrize("game_id", IDS)
def test_random_games_end_within_the_longest_with_one_winner_or_a_draw(game_id):
    lengths = []
    for seed in SEEDS:
        game = started(game_id, seed)
        for _ in play_random(game, random.Random(seed)):
            assert game.actions_played <= game.facts.longest
        lengths.append(game.actions_played)
        assert game.over
        assert game.to_move is None
        assert game.legal_actions() == []
        assert game.forfeited_by is None
        assert game.illegal_tries == [0] * game.seats
        assert len(game.outcomes) == game.seats
        assert all(isinstance(outcome, Outcome) for outcome in game.outcomes)
        if game.seats == 2:
            assert sorted(game.outcomes) in (["loss", "win"], ["draw", "draw"])
        else:
            assert game.outcomes[0] in {"win", "draw", "loss"}
    assert len(set(lengths)) > 1 or game_id == "TowerOfHanoi-v0-medium"  # random play hardly ever solves four disks


@pytest.mark.parametrize("game_id", IDS)
def test_an_action_is_played_exactly_if_it_is_listed_as_legal(game_id):
    pool = set(OUT_OF_RANGE[type(registry.make(game_id)).__name__])
    for seed in range(10):
        game = started(game_id, seed)
        for _, _, legal, *_ in play_random(game, random.Random(seed)):
            pool.update(legal)
    for seed in range(3):
        game = started(game_id, seed)
        rng = random.Random(seed)
        while not game.over:
            legal = game.legal_actions()
            assert legal
            assert len(set(legal)) == len(legal)
            assert game.legal_actions() == legal
            for action in legal:
                assert extract_action(action) == action
                assert game._read(action) == action
            for action in pool:
                twin = game.clone()
                assert twin.step(action) is (Verdict.PLAYED if action in legal else Verdict.ILLEGAL), action
            game.step(rng.choice(legal))


@pytest.mark.parametrize("game_id", IDS)
def test_copies_made_at_every_step_play_on_like_the_game_itself(game_id):
    # The game is never copied; one twin is cloned and one is written and read at every single step.
    for seed in SEEDS:
        game, cloned, restored = started(game_id, seed), started(game_id, seed), started(game_id, seed)
        rng = random.Random(seed)
        while not game.over:
            cloned = cloned.clone()
            record = json.dumps(restored.to_json())
            restored = registry.make(game_id)
            restored.from_json(json.loads(record))
            assert json.dumps(restored.to_json()) == record
            action = rng.choice(game.legal_actions()) if rng.random() < 0.95 else ILLEGAL_AT_START[game_id]
            verdicts = {twin.step(action) for twin in (game, cloned, restored)}
            assert len(verdicts) == 1
            assert everything_seen(cloned) == everything_seen(game) == everything_seen(restored)
        ended = registry.make(game_id)
        ended.from_json(json.loads(json.dumps(game.to_json())))
        assert everything_seen(cloned.clone()) == everything_seen(game) == everything_seen(ended)
        assert type(ended.outcomes[0]) is Outcome


@pytest.mark.parametrize("game_id", IDS)
def test_copies_and_records_share_nothing_with_the_game(game_id):
    for seed in range(5):
        game = started(game_id, seed)
        rng = random.Random(seed)
        while not game.over:
            clone, record = game.clone(), game.to_json()
            before = json.dumps(record)
            reader = registry.make(game_id)
            for reply in (ILLEGAL_AT_START[game_id], rng.choice(game.legal_actions())):
                game.clone().step(reply)
                reader.from_json(record)
                reader.step(reply)
                assert json.dumps(record) == before
                assert json.dumps(game.to_json()) == before
            game.step(rng.choice(game.legal_actions()))
            assert json.dumps(record) == before
            assert json.dumps(clone.to_json()) == before
            after = json.dumps(game.to_json())
            clone.step(rng.choice(clone.legal_actions()))
            assert json.dumps(game.to_json()) == after


@pytest.mark.parametrize("game_id", IDS)
def test_the_seed_alone_determines_the_game(game_id):
    for seed in range(5):
        random.seed(seed)
        first = list(play_random(started(game_id, seed), random.Random(7)))
        random.seed(seed + 1)
        used = started(game_id, seed + 1)  # a game that was played and forfeited begins like a new one
        for _ in range(3):
            used.step(used.legal_actions()[0])
            if used.over:
                break
        if not used.over:
            used.step(ILLEGAL_AT_START[game_id])
        if not used.over:
            used.step("nothing")
        used.reset(seed)
        assert list(play_random(used, random.Random(7))) == first


@pytest.mark.parametrize("game_id", IDS)
def test_games_leave_the_global_generator_alone(game_id):
    random.seed(3)
    before = random.getstate()
    for seed in range(3):
        for _ in play_random(started(game_id, seed), random.Random(seed)):
            pass
    assert random.getstate() == before


# ---- what a seat is shown -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("game_id", IDS)
def test_rules_are_shown_once_and_news_never_number_the_opponent(game_id):
    for seed in range(10):
        game = started(game_id, seed)
        rng = random.Random(seed)
        replied = set()
        while not game.over:
            seat = game.to_move
            text = game.observation(seat)
            assert text.isascii()
            assert text
            assert all(line == line.strip() and line for line in text.split("\n"))
            rules = [line for line in text.split("\n") if "Reply with" in line]
            assert len(rules) == (seat not in replied)
            if rules:
                assert text.startswith(rules[0])
                assert game.seats == 1 or f"You are Player {seat}" in rules[0]
            assert "Player" not in text.replace(rules[0] if rules else "", "")
            replied.add(seat)
            game.step(rng.choice(game.legal_actions()))


@pytest.mark.parametrize("seat", [0, 1])
def test_observations_do_not_depend_on_the_opponents_dice(seat):
    compared = 0
    for seed in range(60):
        game = started("LiarsDice-v0", seed)
        rng = random.Random(seed)
        for _ in range(rng.randrange(20)):  # also in later rounds, with fewer dice
            if game.over:
                break
            game.step(rng.choice(game.legal_actions()))
        if game.over:
            continue
        data = game.to_json()
        data["state"]["dice"][1 - seat] = sorted(rng.randint(1, 6) for _ in data["state"]["dice"][1 - seat])
        swapped = registry.make("LiarsDice-v0")
        swapped.from_json(data)
        while True:
            assert swapped.observation(seat) == game.observation(seat)
            assert swapped.legal_actions() == game.legal_actions()
            bids = [action for action in game.legal_actions() if action != "[Call]"]
            if not bids:
                break
            bid = rng.choice(bids)
            assert swapped.step(bid) is game.step(bid) is Verdict.PLAYED
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("seat", [0, 1])
def test_the_deal_shows_a_seat_its_own_dice_only(seat):
    # Two seeds that deal this seat the same hand and the other seat different ones.
    by_hand = {}
    pairs = 0
    for seed in range(300):
        game = started("LiarsDice-v0", seed)
        dice = game.to_json()["state"]["dice"]
        twin = by_hand.setdefault(tuple(dice[seat]), game)
        if twin.to_json()["state"]["dice"][1 - seat] == dice[1 - seat]:
            continue
        pairs += 1
        assert game.observation(seat) == twin.observation(seat)
        assert game.observation(1 - seat) != twin.observation(1 - seat)
    assert pairs > 20


@pytest.mark.parametrize("game_id", ["GuessTheNumber-v0", "GuessTheNumber-v0-hardcore"])
def test_observations_tell_of_the_target_only_what_the_hints_say(game_id):
    compared = 0
    for seed in range(60):
        game = started(game_id, seed)
        rng = random.Random(seed)
        data = game.to_json()
        target = data["state"]["target"]
        other = rng.choice([int(action[1:-1]) for action in game.legal_actions()])
        data["state"]["target"] = other
        swapped = registry.make(game_id)
        swapped.from_json(data)
        low, high = sorted((target, other))
        while not game.over:
            assert swapped.observation(0) == game.observation(0)
            assert swapped.legal_actions() == game.legal_actions()
            # Guesses outside the two targets get the same hint in both games.
            outside = [action for action in game.legal_actions() if not low <= int(action[1:-1]) <= high]
            if not outside:
                break
            guess = rng.choice(outside)
            assert swapped.step(guess) is game.step(guess) is Verdict.PLAYED
            compared += 1
        assert swapped.outcomes == game.outcomes
    assert compared > 100


@pytest.mark.parametrize("game_id", IDS)
def test_a_seat_that_does_not_exist_is_shown_nothing(game_id):
    game = started(game_id)
    for seat in (-1, game.seats):
        with pytest.raises(ValueError, match=rf"{game_id}: seat must be from 0 to {game.seats - 1}, got {seat}"):
            game.observation(seat)


# ---- invalid replies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game_id", IDS)
@pytest.mark.parametrize("allowance", [0, 1, 3])
def test_illegal_replies_are_asked_again_as_often_as_allowed(game_id, allowance):
    game = started(game_id, illegal_allowance=allowance)
    seat = game.to_move
    legal = game.legal_actions()
    for tries in range(1, allowance + 1):
        assert game.step(ILLEGAL_AT_START[game_id]) is Verdict.ILLEGAL
        assert game.to_move == seat
        assert game.legal_actions() == legal
        assert game.actions_played == 0
        assert game.illegal_tries[seat] == tries
        text = game.observation(seat)
        assert text.endswith(" Try again.")
        assert not any(character.isdigit() for character in text)
        assert "\n" not in text
    assert game.step(ILLEGAL_AT_START[game_id]) is Verdict.FORFEIT_ILLEGAL
    assert game.illegal_tries[seat] == allowance + 1
    assert game.forfeited_by == seat
    assert game.outcomes == tuple("invalid" if s == seat else "win" for s in range(game.seats))
    assert game.legal_actions() == []


@pytest.mark.parametrize("game_id", IDS)
def test_a_legal_action_clears_the_row_of_illegal_tries_but_not_their_count(game_id):
    game = started(game_id)
    rng = random.Random(1)
    illegal = "[A A]" if "Hanoi" in game_id else ILLEGAL_AT_START[game_id]  # [B C] becomes legal
    rounds = 0
    while not game.over and rounds < 4:
        if illegal in game.legal_actions():  # a call becomes legal after a bid
            illegal = "[Bid: 99, 1]"
        seat = game.to_move
        before = game.illegal_tries[seat]
        assert game.step(illegal) is Verdict.ILLEGAL
        assert game.step(rng.choice(game.legal_actions())) is Verdict.PLAYED
        assert game.illegal_tries[seat] == before + 1
        rounds += 1
    assert sum(game.illegal_tries) == rounds


@pytest.mark.parametrize("game_id", TWO_SEATS)
def test_the_opponent_is_not_told_of_an_illegal_try(game_id):
    game = started(game_id)
    quiet = started(game_id)
    game.step(ILLEGAL_AT_START[game_id])
    assert game.observation(1) == quiet.observation(1)
    action = game.legal_actions()[0]
    game.step(action)
    quiet.step(action)
    assert game.observation(1) == quiet.observation(1)


@pytest.mark.parametrize("game_id", IDS)
@pytest.mark.parametrize("allowance", [0, 1])
def test_a_reply_without_one_readable_action_forfeits_at_once(game_id, allowance):
    legal = started(game_id).legal_actions()
    first, second = legal[:2]
    malformed = [
        "",
        "hello",
        "[",
        "[]",
        "[ ]",
        "[x y z]",
        "[-1]",
        "[1.5]",
        "[\u0663]",  # a digit, but not one of ours
        "[\u00b2]",
        first.strip("[]"),
        first[:-1],
        f"{first} {second}",
        f"{first} or [something else]",
        f"<think>{first}",
        f"<think>{first}</think>",
        f"<think>hm</think><think>{first}",
    ]
    for reply in malformed:
        game = started(game_id, illegal_allowance=allowance)
        assert game.step(reply) is Verdict.FORFEIT_MALFORMED, reply
        assert game.forfeited_by == 0
        assert game.outcomes == ("invalid", "win")[: game.seats]
        assert game.illegal_tries == [0] * game.seats
        assert game.actions_played == 0
        if game.seats == 2:
            game = started(game_id, illegal_allowance=allowance)
            game.step(first)
            assert game.step(reply) is Verdict.FORFEIT_MALFORMED, reply
            assert game.forfeited_by == 1
            assert game.outcomes == ("win", "invalid")


@pytest.mark.parametrize("game_id", IDS)
def test_words_and_thoughts_around_one_action_do_not_matter(game_id):
    for seed in range(3):
        first, second = started(game_id, seed).legal_actions()[:2]
        expected = started(game_id, seed)
        expected.step(first)
        for reply in (
            f"I take {first}.",
            f"{first} yes, {first}",
            f"<think>{second}? No.</think>{first}",
            f"{second}</think>\n{first}",
            f"<think>a</think><think>{second}</think> {first}",
        ):
            game = started(game_id, seed)
            assert game.step(reply) is Verdict.PLAYED, reply
            assert everything_seen(game) == everything_seen(expected)


@pytest.mark.parametrize("game_id", IDS)
def test_numbers_of_any_length_get_a_verdict(game_id):
    for action in (f"[{HUGE}]", f"[col {HUGE}]", f"[{HUGE} 1]", f"[0 {HUGE}]", f"[Bid: {HUGE}, 1]", f"[{'0' * 9000}]"):
        assert started(game_id).step(action) in set(Verdict)


# ---- the end from outside, and wrong use --------------------------------------------------------------------------


@pytest.mark.parametrize("game_id", IDS)
def test_truncation_ends_a_running_game_without_a_winner(game_id):
    game = started(game_id)
    game.step(game.legal_actions()[0])
    if not game.over:
        game.truncate()
        assert game.outcomes == ("truncated",) * game.seats
    assert game.over
    assert game.to_move is None
    assert game.legal_actions() == []
    assert game.forfeited_by is None
    with pytest.raises(ValueError, match="check `over` first"):
        game.step("[0]")


@pytest.mark.parametrize("game_id", IDS)
def test_truncation_changes_nothing_after_the_end(game_id):
    game = started(game_id)
    for _ in play_random(game, random.Random(0)):
        pass
    outcomes = game.outcomes
    game.truncate()
    assert game.outcomes == outcomes


@pytest.mark.parametrize("game_id", IDS)
def test_a_step_before_the_start_or_after_the_end_raises(game_id):
    game = registry.make(game_id)
    assert not game.over
    assert game.to_move is None
    assert game.legal_actions() == []
    with pytest.raises(ValueError, match=rf"{game_id}: step\(\) after the end or before reset\(\)"):
        game.step("[0]")
    game.reset(0)
    game.step("no action")
    before = json.dumps(game.to_json())
    with pytest.raises(ValueError, match=rf"{game_id}: step\(\) after the end"):
        game.step("[0]")
    assert json.dumps(game.to_json()) == before


@pytest.mark.parametrize("game_id", IDS)
def test_a_negative_allowance_is_refused(game_id):
    with pytest.raises(ValueError, match="illegal_allowance must be 0 or more, got -1"):
        type(registry.make(game_id))(illegal_allowance=-1)


# ---- reading one action -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("[4]", "[4]"),
        ("I play [col 3], surely.", "[col 3]"),
        ("[4] [4]", "[4]"),
        ("[4] [5]", None),
        ("[4] [ 4 ]", None),  # different groups, even if they mean the same
        ("[[4]]", "[4]"),
        ("[4", None),
        ("[4\n]", "[4\n]"),
        ("<think>[1]</think>[2]", "[2]"),
        ("[1]</think>[2]", "[2]"),
        ("<think>[1]", None),
        ("[1] <think>", None),
        ("</think>[1]<think>[2]", None),
        ("<think>a</think><think>[2]", None),
        ("<think>a</think>b</think>[2]", "[2]"),
        ("<think>[2]</think>", None),
    ],
)
def test_the_action_is_the_only_group_behind_the_thoughts(reply, action):
    assert extract_action(reply) == action


def test_the_examples_of_the_extraction_are_true():
    result = doctest.testmod(extraction)
    assert result.attempted >= 3
    assert result.failed == 0
