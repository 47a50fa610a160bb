"""Every registered game has a recorded playthrough, in words, in tests/playthroughs/<id>.txt.

The file holds what the game declares, then games turn by turn: what the seat to move reads, how many actions are legal
and which, its reply and the verdict, and how the game ends; simulators that answer for the game's world have turns of
their own. The test plays the recorded replies again from the recorded seed and compares the text; so each change of
rules or wording shows up as a readable difference.

A new game: add one reply that is readable but never legal at the start to ILLEGAL below, unless whatever can be read
can be played. After a new game or an intended change, run from the root of the repository, with dfc installed or
PYTHONPATH=. set,

    python tests/test_playthroughs.py --update Nim-v0

(without an id: all of them) and read the files: is every observation clear, does a seat know all it needs, and
nothing that it must not know?
"""

import argparse
import pathlib
import re

import pytest

from dfc.games import registry, scripted
from dfc.games.game import Game
from dfc.games.rng import GameRng, derive_seed
from dfc.games.scripted import RandomLegal, strong

FOLDER = pathlib.Path(__file__).parent / "playthroughs"

LONGEST = 60  # replies of a recorded game

# One reply per class: of the game's grammar, and never legal as the first or second action.
ILLEGAL = {
    "TicTacToe": "[9]",
    "ConnectFour": "[col 15]",
    "TowerOfHanoi": "[B A]",
    "GuessTheNumber": "[99]",
    "LiarsDice": "[Bid: 1, 7]",
    "Nim": "[0 9]",
    "Poker": "[Bet 0]",
    "SimpleNegotiation": "[Offer: 26 Wheat -> 1 Ore]",
    # Not ClemWordleWithCritic: the second reply there is the critic's, to whom nothing readable is forbidden.
    "ClemWordle": "explanation: It has four vowels.\nguess: aeiou",
    "ClemWordleWithClue": "explanation: It has four vowels.\nguess: aeiou",
}


def facts(game):
    """The head of a file."""
    about = game.info
    options = ", ".join(f"{name}={value!r}" for name, value in registry.defaults(game.id).items())
    lines = [
        f"Playthrough of {about.id}",
        f"Seats: {about.seats}. Start: {about.start}. Longest game: {about.max_game_length} actions.",
        f"An action: {about.grammar}" + (" (more can be said than is listed)" if about.open_actions else ""),
        f"Options: {options}",
    ]
    if about.simulators:
        lines.append(f"Staff: {', '.join(about.simulators)}")
    if about.splits:
        lines.append("Tasks: " + ", ".join(f"{size} in {split}" for split, size in about.splits.items()))
    return lines


def reads(game, seat):
    """What a seat is shown now, one mark per line."""
    text = game.observation(seat)
    return [f"  | {line}" for line in text.split("\n")] if text else ["  (nothing)"]


def legal(game):
    actions = game.legal_actions()
    shown = actions if len(actions) <= 9 else [*actions[:4], "...", *actions[-4:]]
    return f"{len(actions)} legal: {' '.join(map(one_line, shown))}"


def one_line(text):
    r"""A reply of several lines is recorded in one, with \n between its lines."""
    return text.replace("\n", r"\n")


def played(game, title, seed, replies):
    """Plays the replies, each taken when it is due, and returns the record of the game."""
    game.reset(seed)
    lines = ["", f"=== {title}, seed {seed} ==="]
    for reply in replies:
        if game.over:
            break  # earlier than recorded: the text will differ
        seat = game.to_move
        name = f"Seat {seat}" if seat < game.seats else game.role(seat)
        lines += ["", f"{name} reads", *reads(game, seat)]
        lines += [legal(game)] if seat < game.seats else []
        lines.append(f"{name} replies: {one_line(reply)} -> {game.step(reply)}")
    ends = ", ".join(f"seat {seat} {outcome}" for seat, outcome in enumerate(game.outcomes or ()))
    tries = ", ".join(map(str, game.illegal_tries))
    lines += ["", f"End: {ends or 'none'}. Actions: {game.actions_played}. Illegal tries per seat: {tries}."]
    measures = ", ".join(f"{name} {value:.6g}" for name, value in game.measures().items())
    lines += [f"Measures: {measures}"] if measures else []
    for seat in range(game.seats):
        lines += [f"Seat {seat} would read", *reads(game, seat)]
    return lines


def reply_of(game, rng):
    """Simulators follow their scripts; seat 0 plays strongly, seat 1 every other time at random."""
    if game.to_move >= game.seats:
        return scripted.simulators(game)[game.role(game.to_move)].act(game, rng)
    player = RandomLegal() if game.to_move == 1 and rng.randrange(2) else strong(game)
    return player.act(game, rng)


def whole_game(game, illegal):
    """The second reply of a player is an illegal one, where there is any."""
    rng = GameRng(derive_seed("playthrough", game.id))
    for turn in range(LONGEST):
        if game.over:
            return
        if turn == 1 and illegal is not None:
            yield illegal
        yield reply_of(game, rng)


def malformed_game(game):
    rng = GameRng(derive_seed("playthrough", game.id))
    actions = game.legal_actions()
    after = game.clone()
    after.step(actions[0])
    if not after.over:
        yield f"<think>{actions[-1]}?</think>{actions[0]}"
        while game.to_move >= game.seats:
            yield reply_of(game, rng)
        actions = game.legal_actions()
    thought = f"<think>{actions[0]} or not?"
    grouped = actions[0].startswith("<Answer>") or type(game).extract is Game.extract
    unread = f"{thought}</think>Either {actions[0]} or {actions[-1]}." if grouped and actions[1:] else thought
    for _ in range(game.allowances(game.to_move)[1] + 1):
        yield unread


def record(game_id):
    """Returns the text of a new playthrough."""
    game = registry.make(game_id)
    illegal = ILLEGAL.get(type(game).__name__)
    lines = facts(game)
    lines += played(game, "A whole game", 7, whole_game(game, illegal))
    lines += played(game, "A malformed reply", 8, malformed_game(game))
    if illegal is not None:
        lines += played(game, "Illegal replies in a row", 9, [illegal] * (game.allowances(0)[0] + 1))
    return "\n".join(lines) + "\n"


REPLY = re.compile(r"^(?:Seat \d|\w+) replies: (.*) -> (\w+)$", re.MULTILINE)


def replay(game_id, text):
    """Returns the text that the replies recorded in `text` lead to now."""
    game = registry.make(game_id)
    lines = facts(game)
    for part in text.split("\n=== ")[1:]:
        title, seed = re.match(r"(.*), seed (\d+) ===\n", part).groups()
        lines += played(game, title, int(seed), [reply.replace(r"\n", "\n") for reply, _ in REPLY.findall(part)])
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("game_id", registry.own_game_ids())
def test_a_recorded_playthrough_repeats_word_for_word(game_id):
    path = FOLDER / f"{game_id}.txt"
    assert path.exists(), f"{game_id} has no playthrough; run: python tests/test_playthroughs.py --update {game_id}"
    text = path.read_text(encoding="utf-8")
    assert replay(game_id, text) == text, (
        "the rules or the wording have changed; if that is intended, run: python tests/test_playthroughs.py --update ID"
    )


@pytest.mark.parametrize("game_id", registry.own_game_ids())
def test_a_playthrough_shows_every_verdict(game_id):
    text = (FOLDER / f"{game_id}.txt").read_text(encoding="utf-8")
    verdicts = {verdict for _, verdict in REPLY.findall(text)}
    can_be_illegal = ILLEGAL.get(registry.kind(game_id).__name__) is not None
    # Only a game with asides, or of that option, asks again for what could not be read.
    assert verdicts - {"malformed"} == {"played", "forfeit_malformed"} | (
        {"illegal", "forfeit_illegal"} if can_be_illegal else set()
    )
    ends = re.findall(r"^End: (.*?)\. Actions", text, re.MULTILINE)
    assert len(ends) == 2 + can_be_illegal
    assert "invalid" not in ends[0]
    assert all("invalid" in end for end in ends[1:])


@pytest.mark.parametrize("line", range(3, 60, 7))
def test_a_changed_line_is_noticed(line):
    lines = (FOLDER / "Nim-v0.txt").read_text(encoding="utf-8").split("\n")
    lines[line] += "!"
    assert replay("Nim-v0", "\n".join(lines)) != "\n".join(lines)


def test_every_playthrough_belongs_to_a_registered_game():
    assert {path.stem for path in FOLDER.iterdir()} == set(registry.own_game_ids())


def main():
    parser = argparse.ArgumentParser(description="Rewrites recorded playthroughs.")
    parser.add_argument("--update", nargs="*", metavar="ID", required=True, help="which ones; all if none is named")
    wanted = parser.parse_args().update
    unknown = sorted(set(wanted) - set(registry.own_game_ids()))
    if unknown:
        parser.error(f"there is no game id {', '.join(unknown)}; known are {', '.join(registry.own_game_ids())}")
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        if path.stem not in registry.own_game_ids():
            path.unlink()
    for game_id in wanted or registry.own_game_ids():
        (FOLDER / f"{game_id}.txt").write_text(record(game_id), encoding="utf-8")


if __name__ == "__main__":
    main()
