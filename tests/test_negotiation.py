"""Simple Negotiation: the game of textarena 0.6.4 but for the listed deviations, its reader, its bots."""

import pytest
from game_turns import pick
from negotiation_deals import OFFER, dealt, started

from dfc.games import scripted
from dfc.games.game import Outcome, Verdict
from dfc.games.rng import GameRng, derive_seed
from dfc.games.textarena.simple_negotiation import (
    BASE_VALUES,
    RESOURCES,
    VALUE_RANGES,
    SimpleNegotiation,
    amounts,
    offer_text,
)

GAMES = 2000  # against the oracle, per turn limit
BOT_GAMES = 120  # per pairing


def play(*players, seed, **options):
    """Plays a game of functions (game, chance) -> action; every action must be legal at once."""
    game = started(seed, **options)
    streams = [GameRng(derive_seed("player", seat, seed)) for seat in range(2)]
    while not game.over:
        seat = game.to_move
        assert game.step(players[seat].act(game, streams[seat])) is Verdict.PLAYED
    return game


# ---- textarena ------------------------------------------------------------------------------------------------------


def pair(max_turns, seed):
    from textarena.envs.SimpleNegotiation.env import SimpleNegotiationEnv

    game = started(seed, max_turns=max_turns)
    env = SimpleNegotiationEnv(max_turns=max_turns)
    env.reset(num_players=2)
    state = env.state.game_state
    for seat in range(2):
        state["player_resources"][seat] = dict(zip(RESOURCES, game.stock[seat], strict=True))
        state["player_values"][seat] = dict(zip(RESOURCES, game.values[seat], strict=True))
        worth = env._calculate_player_inventory_value(seat, state)
        state["inventory_value"][seat] = {"initial": worth, "current": worth, "change": 0}
    return game, env


def respelled(rng, group):
    spellings = [group, group.lower(), group.upper(), group.replace(", ", " and "), group.replace("Brick]", "Brick .]")]
    spellings += [group.replace(": ", ":\n"), group.replace(": ", ": I give "), group.replace(" -> ", "->")]
    spellings += [group.replace("Sheep", "Sheeps"), group.replace("[Offer: ", "[Offer: 1 Ore, ")]
    group = pick(rng, spellings)
    return pick(rng, (group, f"Well: {group}", f"{group} is all I say.", f"A [fair] deal?\n{group}\tYes!"))


def reply_to(rng, game):
    """Any reply on which both games should agree."""
    kind = rng.randrange(10)
    stock = game.stock[game.to_move]
    if kind < 4 and game.offer is not None:  # also without the goods, but not in the last turn
        action = "[Accept]" if game.actions_played < game.max_turns - 1 else pick(rng, game.legal_actions())
    elif kind < 8:
        action = pick(rng, game.legal_actions())
    elif kind == 8:
        sides = [[rng.randrange(8) * (rng.randrange(2)) for _ in RESOURCES] for _ in range(2)]
        for side in sides:
            side[rng.randrange(5)] += 1
        sides[0] = [min(a, b) for a, b in zip(sides[0], stock, strict=True)]
        action = offer_text(*map(tuple, sides)) if any(sides[0]) else "[Deny]"
    else:
        action = "[Offer: 30 Ore -> 1 Wheat]" if game.actions_played < game.max_turns - 1 else "I am done."
    reply = respelled(rng, action)
    # An added ore may be one too many, which must not happen in the last turn.
    if game.actions_played == game.max_turns - 1 and "1 ore, " in reply.lower() + " ":
        return action
    return reply


@pytest.mark.parametrize("max_turns", [10, 6])
def test_negotiation_is_the_game_of_textarena(max_turns):
    ends, trades, refusals = set(), 0, 0
    for seed in range(GAMES):
        rng = GameRng(derive_seed("negotiation replies", seed))
        game, env = pair(max_turns, seed)
        while not game.over:
            seat = game.to_move
            assert seat == env.state.current_player_id
            reply = reply_to(rng, game)
            errors = env.state.error_count
            standing = env.state.game_state["current_offer"]
            if standing is None and "accept" in reply.lower():
                continue  # deviation: words there, illegal here
            verdict = game.step(reply)
            done, info = env.step(reply)
            disqualified = done and info["reason"].startswith("Invalid Move")
            assert done == game.over, (reply, info, game.actions_played, game.stock)
            assert disqualified == (verdict is Verdict.FORFEIT_ILLEGAL), (reply, info)
            assert (env.state.error_count == errors + 1) == (verdict is Verdict.ILLEGAL), (reply, info)
            state = env.state.game_state
            if verdict is not Verdict.PLAYED:
                refusals += 1
                state["current_offer"] = standing  # deviation: there an offer out of reach closes the one that stands
            for who in range(2):
                assert list(state["player_resources"][who].values()) == game.stock[who]
                assert state["inventory_value"][who]["change"] == game.gains[who]
            theirs = state["current_offer"]
            assert (theirs is None) == (game.offer is None)
            if theirs is not None:
                sides = (theirs["offered_resources"], theirs["requested_resources"])
                assert amounts(game.offer) == tuple(tuple(side.get(name, 0) for name in RESOURCES) for side in sides)
            if not done:
                assert game.to_move == env.state.current_player_id
                continue
            rewards = env.close()
            signs = [{"invalid": -1, "loss": -1, "draw": 0, "win": 1}[outcome] for outcome in game.outcomes]
            if disqualified:  # deviation: then the other one gets 0 there, here he has won
                assert (signs[seat], signs[1 - seat], rewards[seat], rewards[1 - seat]) == (-1, 1, -1, 0)
            else:
                assert signs == [rewards[who] for who in range(2)]
        trades += game.measures()["trades"]
        ends.add(game.outcomes)
    assert {(Outcome.WIN, Outcome.LOSS), (Outcome.LOSS, Outcome.WIN), (Outcome.DRAW, Outcome.DRAW)} < ends
    assert (Outcome.INVALID, Outcome.WIN) in ends
    assert trades > GAMES / 2
    assert refusals > GAMES / 10


def test_deals_have_the_ranges_of_textarena():
    from textarena.envs.SimpleNegotiation.env import SimpleNegotiationEnv

    env = SimpleNegotiationEnv()
    assert tuple(env.base_values.items()) == tuple(zip(RESOURCES, BASE_VALUES, strict=True))
    assert VALUE_RANGES == ((5, 6), (8, 12), (12, 18), (20, 30), (32, 40))
    ours, theirs = [set() for _ in RESOURCES], [set() for _ in RESOURCES]
    units = set()
    for seed in range(400):
        game = started(seed)
        env.reset(num_players=2)
        for k, name in enumerate(RESOURCES):
            ours[k] |= {game.values[seat][k] for seat in range(2)}
            theirs[k] |= {env.state.game_state["player_values"][seat][name] for seat in range(2)}
            units |= {game.stock[seat][k] for seat in range(2)}
    assert ours == theirs == [set(range(low, high + 1)) for low, high in VALUE_RANGES]
    assert units == set(range(5, 26))


# ---- the rules ------------------------------------------------------------------------------------------------------


def test_a_trade_moves_the_goods_and_changes_the_gains_by_the_own_values():
    game = dealt()
    assert game.step(f"Take this. {OFFER}") is Verdict.PLAYED
    assert game.observation(1).split("\n")[-2:] == [
        f"Opponent: Take this. {OFFER}",
        "Open offer: you would get 3 Sheep, 2 Ore for 5 Brick.",
    ]
    assert game.step("[Accept]") is Verdict.PLAYED
    assert game.stock == [[9, 9, 6, 14, 7], [9, 9, 12, 4, 11]]
    assert game.gains == [5 * 20 - 3 * 12 - 2 * 32, 3 * 18 + 2 * 40 - 5 * 30]
    assert game.observation(0).split("\n") == [
        "Opponent: [Accept]",
        "Trade: you get 5 Brick for 3 Sheep, 2 Ore. You hold 9 Wheat, 9 Wood, 6 Sheep, 14 Brick, 7 Ore.",
        "Your gain since the start is 0.",
    ]
    assert "Your gain since the start is -16." in game.observation(1)
    assert game.measures() == {
        "trades": 1,
        "offers": 1,
        "gain_0": 0,
        "gain_1": -16,
        "talk_0": len("Take this."),
        "talk_1": 0,
    }


def test_a_refused_offer_is_closed():
    for refusal in ("[Deny]", "Perhaps later.", "[Offer: 1 Ore -> 1 Ore]"):
        game = dealt()
        game.step(OFFER)
        assert game.step(refusal) is Verdict.PLAYED
        if "Offer" in refusal:
            game.step("[Deny]")
        else:
            assert game.step("[Accept]") is Verdict.ILLEGAL
            game.step("hm")
        assert game.step("[Accept]") is Verdict.ILLEGAL
        assert game.stock == [[9] * 5, [9] * 5]


def test_the_proposer_cannot_accept_its_own_offer():
    game = dealt()
    game.step(OFFER)
    game.step("Let me think.")
    assert "[Accept]" not in game.legal_actions()
    assert game.step("[Accept]") is Verdict.ILLEGAL
    assert game.observation(0).endswith("There is no open offer to accept. Try again.")


def test_only_goods_that_are_held_can_be_offered_or_given():
    game = dealt(stock=((2, 9, 9, 9, 9), (9, 9, 9, 3, 9)))
    assert game.step("[Offer: 3 Wheat -> 1 Ore]") is Verdict.ILLEGAL
    assert game.observation(0).endswith("You do not hold what you offer. Try again.")
    assert game.step("[Offer: 1 Wheat -> 4 Brick]") is Verdict.PLAYED  # what is asked for is not known to be there
    assert "[Accept]" not in game.legal_actions()
    assert game.step("[Accept]") is Verdict.ILLEGAL
    assert game.observation(1).endswith("You do not hold what the offer asks for. Try again.")
    assert game.offer is not None
    assert game.step("[Accept]") is Verdict.FORFEIT_ILLEGAL
    assert game.outcomes == ("win", "invalid")


def test_an_illegal_reply_leaves_the_open_offer():
    game = dealt()
    game.step(OFFER)
    assert game.step("[Offer: 99 Ore -> 1 Wheat]") is Verdict.ILLEGAL
    assert game.step("[Accept]") is Verdict.PLAYED
    assert game.measures()["trades"] == 1


def test_an_illegal_reply_in_the_last_turn_is_asked_again():
    game = dealt(max_turns=2)
    game.step(OFFER)
    assert game.observation(1).endswith("This is the last turn.")
    assert game.step("[Offer: 99 Ore -> 1 Wheat]") is Verdict.ILLEGAL
    assert not game.over
    assert game.step("[Accept]") is Verdict.PLAYED
    assert game.outcomes == ("win", "loss")


def test_an_answer_and_an_offer_in_one_reply_are_unreadable():
    for reply in (f"[Accept] {OFFER}", f"[Deny] {OFFER}", "[Accept][Deny]", f"{OFFER}[Offer: 1 Ore -> 1 Wood]"):
        game = dealt()
        game.step(OFFER)
        assert game.step(reply) is Verdict.FORFEIT_MALFORMED
        assert game.outcomes == ("win", "invalid")


@pytest.mark.parametrize(
    ("gains", "outcomes"), [((3, 3), ("draw", "draw")), ((4, 3), ("win", "loss")), ((-5, -4), ("loss", "win"))]
)
def test_the_larger_gain_wins_and_an_equal_one_draws(gains, outcomes):
    game = dealt(max_turns=1)
    data = game.to_json()
    data["state"]["gains"] = list(gains)
    game.from_json(data)
    game.step("That is all.")
    assert game.outcomes == outcomes
    assert game.observation(1).endswith(f"The end: you gained {gains[1]}, the opponent gained {gains[0]}.")


def test_units_are_conserved_and_gains_are_those_of_the_stock():
    traded = 0
    for seed in range(60):
        players = [scripted.player("SimpleNegotiation-v0", pick(GameRng(seed), scripted.STRENGTHS)) for _ in range(2)]
        game = started(seed, max_turns=30)
        first = game.to_json()["state"]["stock"]
        rng = GameRng(derive_seed("conserved", seed))
        while not game.over:
            game.step(players[game.to_move].act(game, rng))
            assert [sum(units) for units in zip(*game.stock, strict=True)] == [sum(u) for u in zip(*first, strict=True)]
            assert min(map(min, game.stock)) >= 0
        for seat in range(2):
            change = [now - then for now, then in zip(game.stock[seat], first[seat], strict=True)]
            assert game.gains[seat] == sum(c * v for c, v in zip(change, game.values[seat], strict=True))
        traded += game.measures()["trades"]
    assert traded > 50


@pytest.mark.parametrize("seat", [0, 1])
def test_a_seat_learns_nothing_of_the_opponents_values_and_stock(seat):
    compared = 0
    for seed in range(40):
        game = started(seed)
        data = game.to_json()
        rng = GameRng(derive_seed("swap", seed))
        other = [low + rng.randrange(high - low + 1) for low, high in VALUE_RANGES]
        data["state"]["values"][1 - seat] = other
        data["state"]["stock"][1 - seat] = [units + 7 for units in data["state"]["stock"][1 - seat]]
        data["news"][1 - seat] = []
        swapped = SimpleNegotiation()
        swapped.from_json(data)
        while not game.over:
            if game.to_move == seat:
                assert swapped.legal_actions() == game.legal_actions()
                for strength in scripted.STRENGTHS:
                    player = scripted.player(game, strength)
                    assert player.act(game, GameRng(5)) == player.act(swapped, GameRng(5))
            action = pick(rng, game.legal_actions())
            if game.offer is not None and "[Accept]" in game.legal_actions() and rng.randrange(2):
                action = "[Accept]"
            assert swapped.observation(seat) == game.observation(seat)
            assert swapped.step(action) is game.step(action) is Verdict.PLAYED
            compared += 1
    assert compared == 400


def test_the_deal_shows_a_seat_its_own_goods_and_values_only():
    goods = "You hold {} Wheat (worth {} each), {} Wood (worth {} each), {} Sheep (worth {} each), "
    goods += "{} Brick (worth {} each), {} Ore (worth {} each)."
    for seed in range(20):
        game = started(seed)
        for seat in range(2):
            rules, *news = game.observation(seat).split("\n")
            own = [n for pair in zip(game.stock[seat], game.values[seat], strict=True) for n in pair]
            assert news == [goods.format(*own)]
            assert rules == started(seed + 1).observation(seat).split("\n")[0]


# ---- bots -----------------------------------------------------------------------------------------------------------


def test_listed_offers_are_few_and_of_about_equal_value_or_one_for_one():
    game = dealt(stock=((25,) * 5, (25,) * 5))
    actions = game.legal_actions()
    assert actions[0] == "[Deny]"
    assert len(actions) <= 40
    for offer in (action for action in actions if action.startswith("[Offer")):
        give, take = (sum(a * b for a, b in zip(side, BASE_VALUES, strict=True)) for side in amounts(offer))
        assert give == take or sum(map(sum, amounts(offer))) == 2


def rates(first, second):
    """Wins, draws and losses of the first of two strengths, from both seats, and trades per game."""
    ends, trades = {"win": 0, "draw": 0, "loss": 0}, 0
    one, two = (scripted.player("SimpleNegotiation-v0", strength) for strength in (first, second))
    for seed in range(BOT_GAMES):
        seat = seed % 2
        game = play(*((one, two) if seat == 0 else (two, one)), seed=seed)
        ends[game.outcomes[seat]] += 1
        trades += game.measures()["trades"]
    return ends, trades / BOT_GAMES


@pytest.mark.parametrize("weaker", ["simple", "random_legal"])
def test_strong_negotiation_beats_the_weaker_with_trades(weaker):
    ends, trades = rates("strong", weaker)
    assert ends["win"] > 2 * ends["loss"]
    assert ends["win"] > 0.35 * BOT_GAMES
    assert trades > 0.8


@pytest.mark.parametrize("strength", ["simple", "strong"])
def test_equal_players_trade(strength):
    ends, trades = rates(strength, strength)
    assert trades > 0.5
    assert ends["draw"] < BOT_GAMES


@pytest.mark.parametrize(
    ("offer", "strong_accepts", "simple_accepts"),
    [
        ("[Offer: 1 Ore -> 1 Ore]", False, False),
        ("[Offer: 2 Wheat -> 1 Wood]", False, False),  # worth 12 for 12
        ("[Offer: 1 Ore -> 1 Wheat]", True, True),
        ("[Offer: 1 Wheat -> 1 Ore]", False, False),
        ("[Offer: 5 Sheep -> 2 Ore]", True, True),  # 90 for 80; the other is estimated to lose 3
        ("[Offer: 1 Brick -> 2 Wood]", True, True),  # 30 for 24; the other is estimated to lose 5
        ("[Offer: 3 Wheat -> 1 Sheep]", False, False),
        ("[Offer: 13 Wheat -> 3 Brick]", False, False),
        ("[Offer: 10 Brick -> 7 Ore, 3 Wheat]", False, True),  # own gain 2; the other is estimated to gain 18
    ],
)
def test_strong_wants_the_larger_gain_and_simple_any(offer, strong_accepts, simple_accepts):
    game = dealt(stock=((30,) * 5, (30,) * 5))
    game.step(offer)
    give, take = amounts(offer)
    own = sum(v * (g - t) for v, g, t in zip((6, 12, 18, 30, 40), give, take, strict=True))
    other = sum((a + b) / 2 * (t - g) for (a, b), g, t in zip(VALUE_RANGES, give, take, strict=True))
    strong, simple = (scripted.player(game, name).act(game, GameRng(0)) for name in ("strong", "simple"))
    assert (strong == "[Accept]") is (own > max(0, other))
    assert (simple == "[Accept]") is (own > 0)
    assert (strong == "[Accept]", simple == "[Accept]") == (strong_accepts, simple_accepts)


def test_strong_does_not_repeat_a_refused_offer():
    player = scripted.player("SimpleNegotiation-v0", "strong")
    for seed in range(20):
        game = started(seed, max_turns=30)
        made = []
        while not game.over:
            action = player.act(game, GameRng(0)) if game.to_move == 0 else "No."
            if game.to_move == 0 and action.startswith("[Offer"):
                made.append(action)
            game.step(action)
        assert len(set(made)) == len(made) > 3
