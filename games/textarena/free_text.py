"""Replies of games of talk: free words with at most one bracketed action among them, as one line.

The canonical line is the words, then the action. Its only square brackets are those of the action, so reading it again
gives the same line, and no player can write a line that looks like news of the game.
"""

import re
from collections.abc import Callable

from dfc.games.printable import without_unseen

LONGEST_GROUP = 300  # characters of a group, blanks collapsed; more is no action
_GROUP = re.compile(r"\[[^\[\]]*\]")
_ROUND = str.maketrans("[]", "()")


def read_talk(
    said: str, opening: re.Pattern[str], read_group: Callable[[str], str | None], max_talk: int
) -> str | None:
    """Returns what was said as one canonical line, or None if it is empty or holds no single readable action.

    A bracket that begins like an action must be one: a group that `read_group` refuses, one that is never closed, and
    two different ones make the whole reply unreadable. All other square brackets are talk and become round ones. Runs
    of blanks and line breaks become one blank, characters that are not seen are removed (`without_unseen`); words
    beyond `max_talk` characters are cut.

    `said` is the reply without its thoughts; `opening` is what an action begins with, square bracket included (blanks
    are collapsed before it is searched); `read_group` takes a group with its brackets and gives its canonical spelling,
    or None.
    """
    line = " ".join(without_unseen(said).split())
    if "[" not in line:  # words alone: nothing to search, nothing to join
        return _cut(line, max_talk) or None
    words: list[str] = []
    actions: set[str] = set()
    end = 0
    for match in opening.finditer(line):
        group = _GROUP.match(line, match.start())
        action = None if group is None or len(group[0]) > LONGEST_GROUP else read_group(group[0])
        if group is None or action is None:
            return None
        actions.add(action)
        words.append(line[end : group.start()])
        end = group.end()
    if len(actions) > 1:
        return None
    talk = _cut(" ".join(" ".join([*words, line[end:]]).split()), max_talk)
    return " ".join([talk, *actions] if talk else actions) or None


def split_talk(line: str) -> tuple[str, str]:
    """Returns the words and the action of a canonical line; either may be empty."""
    if "[" not in line:
        return line.rstrip(), ""
    words, bracket, rest = line.partition("[")
    return words.rstrip(), bracket + rest


def _cut(words: str, longest: int) -> str:
    """Returns so many characters of words, square brackets turned into round ones."""
    talk = words[:longest]
    return (talk.translate(_ROUND) if "[" in talk or "]" in talk else talk).rstrip()
