"""Every registered game has a recorded playthrough, in words, in tests/playthroughs/<id>.txt.

The file holds what the game declares, then games turn by turn: what the seat to move reads, how many actions are
legal and which, its reply and the verdict, and how the game ends. The test plays the recorded replies again from the
recorded seed and compares the text; so each change of rules or wording shows up as a readable difference.

A new game: add one reply that is readable but never legal at the start to ILLEGAL below. After a new game or an
intended change, run from the root of the repository, with dfc installed or PYTHONPATH=. set,

    python tests/test_playthroughs.py --update

and read the files: is every observation clear, does a seat know all it needs, and nothing that it must not know?
"""

import argparse
import pathlib
import re

import pytest

from dfc.games import registry
from dfc.games.chance import Chance, derive_seed
from dfc.games.scripted import RandomLegal, strong

FOLDER = pathlib.Path(__file__).parent / "playthroughs"

# One reply per class: of the game's grammar, and never legal as the first or second action.
ILLEGAL = {
    "TicTacToe": "[9]",
    "ConnectFour": "[col 7]",
    "TowerOfHanoi": "[B A]",
    "GuessTheNumber": "[99]",
    "LiarsDice": "[Bid: 1, 7]",
    "Nim": "[0 9]",
}


def facts(game):
    """The head of a file."""
    about = game.facts
    options = ", ".join(f"{name}={value!r}" for name, value in registry.defaults(game.id).items())
    return [
        f"Playthrough of {about.id}",
        f"Seats: {about.seats}. Start: {about.start}. Longest game: {about.longest} actions.",
        f"Options: {options}",
    ]


def reads(game, seat):
    """What a seat is shown now, one mark per line."""
    text = game.observation(seat)
    return [f"  | {line}" for line in text.split("\n")] if text else ["  (nothing)"]


def legal(game):
    actions = game.legal_actions()
    shown = actions if len(actions) <= 9 else [*actions[:4], "...", *actions[-4:]]
    return f"{len(actions)} legal: {' '.join(shown)}"


def played(game, title, seed, replies):
    """Plays the replies, each taken when it is due, and returns the record of the game."""
    game.reset(seed)
    lines = ["", f"=== {title}, seed {seed} ==="]
    for reply in replies:
        if game.over:
            break  # earlier than recorded: the text will differ
        seat = game.to_move
        lines += ["", f"Seat {seat} reads", *reads(game, seat), legal(game)]
        lines.append(f"Seat {seat} replies: {reply} -> {game.step(reply)}")
    ends = ", ".join(f"seat {seat} {outcome}" for seat, outcome in enumerate(game.outcomes or ()))
    tries = ", ".join(map(str, game.illegal_tries))
    lines += ["", f"End: {ends or 'none'}. Actions: {game.actions_played}. Illegal tries per seat: {tries}."]
    for seat in range(game.seats):
        lines += [f"Seat {seat} would read", *reads(game, seat)]
    return lines


def whole_game(game, illegal):
    """Seat 0 plays strongly, seat 1 every other time at random; the second reply of the game is an illegal one."""
    chance = Chance(derive_seed("playthrough", game.id))
    yield strong(game).act(game, chance)
    yield illegal
    while not game.over:
        player = RandomLegal() if game.to_move == 1 and chance.below(2) else strong(game)
        yield player.act(game, chance)


def malformed_game(game):
    actions = game.legal_actions()
    yield f"I start with {actions[0]}"
    yield f"<think>{actions[0]} or not?</think>Either {actions[0]} or {actions[-1]}."


def record(game_id):
    """Returns the text of a new playthrough."""
    game = registry.make(game_id)
    kind = type(game).__name__
    if kind not in ILLEGAL:
        raise ValueError(f"{kind} has no illegal reply in ILLEGAL of {__file__}; add one")
    lines = facts(game)
    lines += played(game, "A whole game", 7, whole_game(game, ILLEGAL[kind]))
    lines += played(game, "A malformed reply", 8, malformed_game(game))
    lines += played(game, "Illegal replies in a row", 9, [ILLEGAL[kind]] * 2)
    return "\n".join(lines) + "\n"


def replay(game_id, text):
    """Returns the text that the replies recorded in `text` lead to now."""
    game = registry.make(game_id)
    lines = facts(game)
    for part in text.split("\n=== ")[1:]:
        title, seed = re.match(r"(.*), seed (\d+) ===\n", part).groups()
        replies = re.findall(r"^Seat \d replies: (.*) -> \w+$", part, re.MULTILINE)
        lines += played(game, title, int(seed), replies)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("game_id", registry.ids())
def test_a_recorded_playthrough_repeats_word_for_word(game_id):
    path = FOLDER / f"{game_id}.txt"
    assert path.exists(), f"{game_id} has no playthrough; run: python tests/test_playthroughs.py --update"
    text = path.read_text()
    assert replay(game_id, text) == text, (
        "the rules or the wording have changed; if that is intended, run: python tests/test_playthroughs.py --update"
    )


@pytest.mark.parametrize("game_id", registry.ids())
def test_a_playthrough_shows_every_verdict(game_id):
    text = (FOLDER / f"{game_id}.txt").read_text()
    verdicts = set(re.findall(r"^Seat \d replies: .* -> (\w+)$", text, re.MULTILINE))
    assert verdicts == {"played", "illegal", "forfeit_illegal", "forfeit_malformed"}
    ends = re.findall(r"^End: (.*?)\. Actions", text, re.MULTILINE)
    assert len(ends) == 3
    assert "invalid" not in ends[0]
    assert all("invalid" in end for end in ends[1:])


@pytest.mark.parametrize("line", range(3, 60, 7))
def test_a_changed_line_is_noticed(line):
    lines = (FOLDER / "Nim-v0.txt").read_text().split("\n")
    lines[line] += "!"
    assert replay("Nim-v0", "\n".join(lines)) != "\n".join(lines)


def test_every_playthrough_belongs_to_a_registered_game():
    assert {path.stem for path in FOLDER.iterdir()} == set(registry.ids())


def main():
    parser = argparse.ArgumentParser(description="Rewrites the recorded playthroughs.")
    parser.add_argument("--update", action="store_true", required=True)
    parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for game_id in registry.ids():
        (FOLDER / f"{game_id}.txt").write_text(record(game_id))


if __name__ == "__main__":
    main()
