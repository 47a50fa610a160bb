"""Run folders made by hand for the tests of the report, and what their pages hold."""

import dataclasses
import html.parser
import json
import random

from dfc.config import DivideFuseConquer
from dfc.games import registry

NASTY = "</script><script>alert('x')</script> <img src=x onerror=alert(1)> & \u2028 \ud800"


def play(game_id, seed, *, replies=(), longest=400, **more):
    """A recorded game: the given replies first, then random legal actions; truncated after `longest` replies."""
    rng = random.Random(seed)
    options = more.pop("options", {})
    game = registry.make(game_id, **options)
    game.reset(seed)
    recorded = []
    given = iter(replies)
    while not game.over and len(recorded) < longest:
        seat = game.to_move
        reply = next(given, None) or rng.choice(game.legal_actions())
        game.step(reply)
        recorded.append([seat, reply, "policy" if seat == 0 else "opponent"])
    if not game.over:
        game.truncate()
    record = {
        "game": game_id,
        "options": options,
        "seed": seed,
        "seat": 0,
        "opponent": "initial",
        "stage": "divide g1",
        "iteration": 1,
        "kind": "train",
        "replies": recorded,
        "outcomes": [str(outcome) for outcome in game.outcomes],
        "forfeited_by": game.forfeited_by,
        "reward": 1.0,
    }
    return json.loads(json.dumps(record | more))


GAMES = ("TicTacToe-v0", "TowerOfHanoi-v0")


def match(policy, opponent, game, seat, counts, *, stage="final", **more):
    win, draw, loss, truncated = counts
    zero = dict.fromkeys(("won_by_forfeit", "lost_by_forfeit", "illegal_replies", "malformed_replies"), 0)
    row = {"stage": stage, "policy": policy, "opponent": opponent, "game": game, "seat": seat, "games": sum(counts)}
    row |= {"win": win, "draw": draw, "loss": loss, "truncated": truncated, "replies": 400, "steps": 350}
    return row | zero | more


MATCHES = [
    match("initial", "initial", "TicTacToe-v0", 0, (60, 0, 40, 0), lost_by_forfeit=30),
    match("initial", "initial", "TicTacToe-v0", 1, (40, 0, 60, 0)),
    match("final", "initial", "TicTacToe-v0", 0, (90, 0, 10, 0), won_by_forfeit=17, illegal_replies=6),
    match("final", "initial", "TicTacToe-v0", 1, (70, 0, 30, 0)),
    match("initial", "none", "TowerOfHanoi-v0", 0, (20, 0, 180, 0)),
    match("final", "none", "TowerOfHanoi-v0", 0, (98, 3, 99, 0)),
    match("final", "random_legal", "TicTacToe-v0", 0, (55, 0, 45, 0)),
    match("final", "initial", "TicTacToe-v0", 0, (11, 0, 9, 0), stage="divide g1"),
    match("final", "initial", "TicTacToe-v0", 1, (13, 0, 7, 0), stage="divide g1"),
]


def metric_line(step, stage, iteration, win_rate, accepted=1.0):
    metrics = {"win_rate": win_rate, "accepted": accepted, "loss": -0.1 / (step + 1), "kl": 0.01 * step}
    for game in GAMES:
        metrics |= {f"games/{game}/win_rate": win_rate, f"games/{game}/response_length": 5.0 + step}
    clock = {"seconds": 2.0, "episodes_per_second": 30.0, "tokens_per_second": 900.0}
    return {"step": step, "stage": stage, "iteration": iteration, "metrics": metrics, "clock": clock}


def write(folder, name, content):
    lines = content if name.endswith(".jsonl") else [content]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def files():
    config = {"recipe": DivideFuseConquer.recipe} | json.loads(json.dumps(dataclasses.asdict(DivideFuseConquer())))
    config |= {"name": "trial <b>run</b>", "games": {GAMES[0]: {"show_board": True}, GAMES[1]: {}}, "seed": 11}
    groups = {
        "groups": [{"name": "g1", "games": list(GAMES), "start": "fixed", "winnable": True}],
        "measured": {g: {"trials": 100, "wins": w, "start": "fixed"} for g, w in zip(GAMES, (43, 2), strict=True)},
    }
    metrics = [
        metric_line(0, "divide g1", 1, 0.25),
        metric_line(1, "divide g1", 2, 0.75, accepted=0.0),
        metric_line(1, "divide g1", 2, 0.5, accepted=1.0),  # written again after a restart: this one counts
        metric_line(2, "divide g1", 3, 0.4375, accepted=0.0),
    ]
    start = {"dfc": "0.1.0", "packages": {"jax": "0.10.2"}, "device": "<cpu>", "git_commit": "0123456789abcdef"}
    episodes = [
        play("TicTacToe-v0", 1, iteration=1),
        play("TicTacToe-v0", 2, replies=[NASTY], iteration=3),
        play("TowerOfHanoi-v0", 3, kind="evaluate", stage="final", iteration=0, opponent="none", longest=20),
        play("TicTacToe-v0", 4, iteration=3) | {"seed": "no number"},
    ]
    return {
        "config.json": config,
        "versions.json": {"starts": [{"dfc": "0.0.9"}, start]},
        "groups.json": groups,
        "metrics.jsonl": metrics,
        "evaluations.jsonl": MATCHES,
        "episodes.jsonl": episodes,
    }


class Page(html.parser.HTMLParser):
    """Collects tables as rows of cell texts, sources of other files, and scripts; every tag that opens is closed."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.links, self.tags, self.scripts, self._in = [], [], [], [], None
        self.words, self._open = [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self._open += [tag] * (tag != "meta")
        self.tags.append((tag, dict(attrs)))
        self.links += [value for name, value in attrs if name in ("src", "href", "data", "srcset", "xlink:href")]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._in = "cell"
        elif tag in ("script", "style"):
            self._in = tag
            self.scripts += [""] * (tag == "script")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if tag in ("td", "th", "script", "style"):
            self._in = None

    def handle_data(self, data):
        if self._in == "cell":
            self.tables[-1][-1][-1] = " ".join((self.tables[-1][-1][-1] + data).split()) + (" " * data.endswith(" "))
        elif self._in == "script":
            self.scripts[-1] += data
        if self._in not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    def table(self, *header):
        """The table whose first row begins so, as rows of stripped texts."""
        tables = [[[cell.strip() for cell in row] for row in table] for table in self.tables]
        return next(table for table in tables if tuple(table[0][: len(header)]) == header)

    def episodes(self):
        return json.loads(self.scripts[0])
