"""Reads the one action out of a reply; the same rule for every game.

A reply may think aloud before ``</think>``; what counts is the text behind it. That text must hold exactly one
bracketed group, which is the action. No group, or two different ones, is no action: nothing is guessed.
"""

import re

_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_START_OF_THOUGHT = "<think>"
_END_OF_THOUGHT = "</think>"


def extract_action(reply: str) -> str | None:
    """Returns the reply's only bracketed group, brackets included, or None if there is none or more than one.

    The same group written twice is one action. An unclosed ``<think>`` hides everything behind it.

    >>> extract_action("<think>not [col 1]</think>[col 3]")
    '[col 3]'
    >>> extract_action("[col 1] or [col 2]") is None
    True
    """
    spoken = reply.rsplit(_END_OF_THOUGHT, 1)[-1]
    if _START_OF_THOUGHT in spoken:
        return None
    groups = set(_BRACKETS.findall(spoken))
    return groups.pop() if len(groups) == 1 else None


def read_number(text: str) -> str | None:
    """Returns a number of 0 or more without leading zeros, or None if the text is not made of the digits 0 to 9.

    The result stays text: Python refuses to convert more than 4300 digits, and ``str.isdigit`` alone also accepts
    digits of other scripts and superscripts.

    >>> read_number("007"), read_number("0"), read_number("-1"), read_number("")
    ('7', '0', None, None)
    """
    return (text.lstrip("0") or "0") if text.isascii() and text.isdigit() else None
