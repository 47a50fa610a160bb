"""What Paprika's guessing games share: how their secrets are dealt out to splits, and words about what is left."""

from collections.abc import Iterable, Mapping

from dfc.games.rng import derive_seed

USELESS = "?"  # canonical spelling of every answer that is no guess of the game


def dealt(group: str, secrets: Iterable[str], sizes: Mapping[str, int], split: str) -> tuple[str, ...]:
    """Returns the secrets of a split by task number.

    The secrets are put in the order of a hash of each, and the splits cut one after the other from it.

    Args:
      group: whose secrets; a part of the hash.
      secrets: all there are.
      sizes: how many each split has, in the order in which they are cut.
      split: which one.

    Raises:
      ValueError: there is no such split.
    """
    if split not in sizes:
        raise ValueError(f"split must be one of {', '.join(sizes)}, got {split!r}")
    order = sorted(secrets, key=lambda secret: derive_seed(group, secret))
    names = list(sizes)
    first = sum(sizes[name] for name in names[: names.index(split)])
    return tuple(order[first : first + sizes[split]])


def count_of(number: int, one: str, more: str = "") -> str:
    """Returns a number with its word.

    >>> count_of(1, "turn"), count_of(2, "turn"), count_of(2, "try", "tries")
    ('1 turn', '2 turns', '2 tries')
    """
    return f"{number} {one if number == 1 else more or one + 's'}"
