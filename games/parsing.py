"""Reads the one action out of a reply: a bracketed group, a tagged answer, or all that is said.

A reply may think aloud before ``</think>``; what counts is the text after it. That text must hold exactly one
group, which is the action. No group, or two different ones, is no action: nothing is guessed. Invisible characters are
removed before anything is read (`dfc.games.printable.without_unseen`), so none of them reaches another seat.

Where players are told to think first, a reply is of the form asked for only if one block of thought comes first and
everything after it is one action (`text_after_thought`, `dfc.games.game.Game.well_formed`).
"""

import re

from dfc.games.printable import without_unseen

_OPENING, _CLOSING = "<Answer>", "</Answer>"
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_START_OF_THOUGHT = re.compile(r"<think>", re.IGNORECASE | re.ASCII)
_END_OF_THOUGHT = re.compile(r"</think>", re.IGNORECASE | re.ASCII)
THOUGHT = "<think>your thoughts</think>"
"""What a player is told that a block of thought looks like."""


def extract_action(reply: str) -> str | None:
    """Returns the reply's only bracketed group, brackets included, or None if there is none or more than one.

    The same group written twice is one action. An unclosed ``<think>`` hides everything after it.

    >>> extract_action("<think>not [col 1]</think>[col 3]")
    '[col 3]'
    >>> extract_action("[col 1] or [col 2]") is None
    True
    """
    said = spoken(reply)
    groups = set(() if said is None else _BRACKETS.findall(said))
    return groups.pop() if len(groups) == 1 else None


def extract_answer(reply: str) -> str | None:
    """Returns the reply's only answer between ``<Answer>`` and ``</Answer>``, stripped, or None.

    The same answer written twice is one. Paprika's tags, letter case included; its code takes the first answer of
    several. As with brackets, the innermost pair of tags counts. The time is linear in the length of the reply.

    >>> extract_answer("<Think>not slate</Think> <Answer> crane </Answer>")
    'crane'
    """
    said = spoken(reply)
    closed = [] if said is None else said.split(_CLOSING)[:-1]
    answers = {part.rpartition(_OPENING)[2].strip() for part in closed if _OPENING in part}
    return answers.pop() if len(answers) == 1 else None


def spoken(reply: str) -> str | None:
    """Returns what a reply says aloud: the visible text after its thoughts, stripped; None if one is not closed.

    >>> spoken("<think>hm</think> Is it alive?")
    'Is it alive?'
    """
    reply = without_unseen(reply)  # first: a tag must not come about by what is removed
    if "<" not in reply:  # most replies: the two searches below would take longer than a game's step
        return reply.strip()
    said = _END_OF_THOUGHT.split(reply)[-1]
    return None if _START_OF_THOUGHT.search(said) else said.strip()


def text_after_thought(reply: str) -> str | None:
    """Returns what a reply says after its only block of thought, stripped; None if it does not begin with just one.

    A second tag anywhere, such as a block within or after the first, makes it None: nothing is guessed. What is
    thought does not matter, it may be nothing. Tags are looked for in what `spoken` would read, without unseen
    characters, so that both find the same ones.

    >>> text_after_thought("<think>not [col 1]</think> [col 3]")
    '[col 3]'
    >>> text_after_thought("[col 3]"), text_after_thought("a</think>[col 3]")
    (None, None)
    """
    reply = without_unseen(reply)
    if len(_START_OF_THOUGHT.findall(reply)) != 1 or len(_END_OF_THOUGHT.findall(reply)) != 1:
        return None
    thought, said = _END_OF_THOUGHT.split(reply)
    return said.strip() if _START_OF_THOUGHT.match(thought.lstrip()) else None


def read_number(text: str) -> str | None:
    """Returns a number of 0 or more without leading zeros, or None if the text is not made of the digits 0 to 9.

    The result stays text: Python refuses to convert more than 4300 digits, and ``str.isdigit`` alone also accepts
    digits of other scripts and superscripts.

    >>> read_number("007"), read_number("0"), read_number("-1"), read_number("")
    ('7', '0', None, None)
    """
    return (text.lstrip("0") or "0") if text.isascii() and text.isdigit() else None
