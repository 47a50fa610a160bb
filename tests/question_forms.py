"""Ways of naming several candidates in one reply, for the tests of Twenty Questions and Guess My City."""

SEPARATORS = {
    "comma": ", ",
    "or": " or ",
    "and": " and ",
    "slash": "/",
    "line feed": "\n",
    "carriage return": "\r",
    "blank": " ",
    "no-break space": "\u00a0",
    "line separator": "\u2028",
    "hyphen": "-",
    "dash": "\u2014",
    "underscore": "_",
    "full stop": ". ",
    "question mark": "? Is it ",
    "bar": "|",
    "wide comma": "\uff0c",
    "Arabic comma": "\u060c ",
    "bullet": " \u2022 ",
    "comma and zero-width space": ",\u200b",
    "blank and joiner": "\u200d \u200d",
    "tab": "\t",
    "tags": "</player><player>",
    "quotes": '" "',
    "stars": "** **",
    "nothing like": " but nothing like ",
}


def _numbered(names):
    return "Is it " + " ".join(f"{number}. {name}" for number, name in enumerate(names, 1)) + "?"


LISTS = (
    lambda names: f"Is it {', '.join(names)}?",
    lambda names: f"Is it one of these: {'; '.join(names)}?",
    lambda names: f"Is it {' or '.join(names)}".upper(),
    lambda names: "Is it " + ", ".join(f"{name}es" for name in names) + "?",
    lambda names: "Is it a " + ", a ".join(f"{name}s" for name in names) + "?",
    lambda names: "Is it " + "? Is it ".join(names) + "?",
    lambda names: "My guess: " + " ".join(f"'{name}'" for name in names),
    lambda names: f"It is not {', '.join(names[:-1])}. Is it {names[-1]}?",
    lambda names: f"Is it {names[0]}? It is bigger than {' and '.join(names[1:])}.",
    lambda names: f"Does it exist compared with {'/'.join(names)}?",
    lambda names: "Is it " + ", ".join(name.translate({i: i + 0xFEE0 for i in range(97, 123)}) for name in names),
    lambda names: "Is it " + ", ".join("\u00ad".join(name) for name in names) + "?",
    _numbered,
)


def separated():
    """The separators; a test takes each."""
    return tuple(SEPARATORS.values())


def bisected(game, names, answers):
    """Plays a game by lists of half of the names that are left; returns how often world and judge were asked.

    They are as obliging as a chat model can be: the world says whether a list holds the secret, or the country that it
    lies in, and the judge takes any list that does for a guess, once it is short.

    Args:
      game: as it is after `reset`.
      names: what the secret may be.
      answers: what the world says where the list holds it, and where it does not.
    """
    yes, no = answers
    secret = {*game.scenario.names, game.scenario.name, game.scenario.group}
    left, asked = names, 0
    while not game.over:
        half = left[: -(-len(left) // 2)]
        game.step(f"Is it one of these: {', '.join(half)}?")
        if game.to_move != 1:
            continue
        asked += 1
        holds = not secret.isdisjoint(half)
        game.step(yes if holds else no)
        left = half if holds else left[len(half) :]
        game.step("<VALID>" if holds and len(half) <= 2 else "<NOTVALID>")
    return asked
