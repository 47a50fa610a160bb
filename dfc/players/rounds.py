"""Plays one game among programs, people and remote players, without an engine and one reply after another."""

import dataclasses
from collections.abc import Sequence

from dfc.games.chance import Chance
from dfc.games.game import Game, Verdict
from dfc.games.scripted import Player
from dfc.players.remote import Message, Remote

MOST_REPLIES = 10_000  # of one game, those that were refused included


@dataclasses.dataclass(frozen=True)
class Said:
    """One reply: whose, what it was, and what became of it."""

    seat: int
    text: str
    verdict: Verdict


def play_out(
    game: Game, players: Sequence[Player | Remote], chance: Chance, most_replies: int = MOST_REPLIES
) -> list[Said]:
    """Plays a game that has begun to its end; returns every reply.

    Args:
      game: after `reset`; it is over afterwards, truncated if `most_replies` did not end it.
      players: by seat, staff included.
      chance: the scripted players' randomness, never the stream of the game.
      most_replies: before the game is truncated.

    Raises:
      ValueError: there is not one player for each seat.
      PlayerError: a remote player failed.
    """
    seats = game.seats + len(game.staff)
    if len(players) != seats:
        raise ValueError(f"{game.id} has {seats} seats, staff included; got {len(players)} players")
    chats: dict[int, list[Message]] = {}
    said: list[Said] = []
    while (seat := game.to_move) is not None:
        if len(said) >= most_replies:
            game.truncate()
            break
        player = players[seat]
        if isinstance(player, Remote):
            if game.role(seat) in game.forgetful:
                chats.pop(seat, None)
            chat = chats.setdefault(seat, [])
            chat.append(Message(role="user", content=game.observation(seat)))
            text = player.ask(chat).result()
            chat.append(Message(role="assistant", content=text))
        else:
            text = player.act(game, chance)
        said.append(Said(seat, text, game.step(text)))
    return said
