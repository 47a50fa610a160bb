"""Reads the one action out of a reply: a bracketed group, a tagged answer, or all that is said.

A reply may think aloud before ``</think>``; what counts is the text behind it. That text must hold exactly one
group, which is the action. No group, or two different ones, is no action: nothing is guessed.
"""

import re

_OPENING, _CLOSING = "<Answer>", "</Answer>"
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_START_OF_THOUGHT = re.compile(r"<think>", re.IGNORECASE | re.ASCII)
_END_OF_THOUGHT = re.compile(r"</think>", re.IGNORECASE | re.ASCII)


def extract_action(reply: str) -> str | None:
    """Returns the reply's only bracketed group, brackets included, or None if there is none or more than one.

    The same group written twice is one action. An unclosed ``<think>`` hides everything behind it.

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
    """Returns what a reply says aloud: the text behind its thoughts, stripped; None if a thought is not closed.

    >>> spoken("<think>hm</think> Is it alive?")
    'Is it alive?'
    """
    if "<" not in reply:  # most replies: the two searches below would take longer than a game's step
        return reply.strip()
    said = _END_OF_THOUGHT.split(reply)[-1]
    return None if _START_OF_THOUGHT.search(said) else said.strip()


def read_number(text: str) -> str | None:
    """Returns a number of 0 or more without leading zeros, or None if the text is not made of the digits 0 to 9.

    The result stays text: Python refuses to convert more than 4300 digits, and ``str.isdigit`` alone also accepts
    digits of other scripts and superscripts.

    >>> read_number("007"), read_number("0"), read_number("-1"), read_number("")
    ('7', '0', None, None)
    """
    return (text.lstrip("0") or "0") if text.isascii() and text.isdigit() else None
