"""The report of a run: one self-contained HTML file made only from the files of the run folder.

``python -m dfc.report RUN_FOLDER`` writes ``report.html`` into the folder; while a run is running,
`dfc.report.live_report` does. Every file may be missing or end in half a line; the section that needs it says so. Games
are shown as `dfc.games.replay` plays them again, so a shown game is a proven one.
"""

import collections
import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from markupsafe import Markup

from dfc.config import RECIPES, renamed
from dfc.errors import RunFolderError
from dfc.evaluation.statistics import Comparison, Record
from dfc.files import replacing
from dfc.games import registry
from dfc.report import method_page, page, warnings
from dfc.report.curves import PANEL, bands, curves
from dfc.report.game_replays import ShownGames
from dfc.report.page import Section, empty, note
from dfc.report.reader import Json, RunRecords, game_metrics, read
from dfc.report.summary import Compared, comparisons, verdict
from dfc.report.tables import NOTHING, Table, duration, measured, number, text
from dfc.report.warnings import RunWarning
from dfc.runs.run_folder import STREAMS

__all__ = ["RunRecords", "StageScores", "Status", "build", "read", "stage_scores", "write"]

_OF_A_RUN = ("versions.json", *(f"{stream}.jsonl" for stream in STREAMS))  # any of these, or a recipe in config.json
_OWN_PAGE = ("evaluate", "evaluate_answers", "evaluate_tasks")  # recipes whose report this one would replace
_TITLES = {
    "initial": "Against the initial policy",
    "none": "Games for one",
    "random_legal": "Against random legal play",
}
_INTERVALS = (
    "Score intervals are Tango’s (Wilson’s where nothing is drawn), differences Newcombe’s; games count as "  # noqa: RUF001 - the apostrophe the page shows
    "independent. Truncated games are in no score and are listed apart below. Games for one: the share solved, of all "
    "games (Wilson’s interval). Forfeits are games an invalid reply decided."  # noqa: RUF001 - as above
)
_HINTS = {
    "Won by forfeit": "won because the opponent's reply was invalid; among the wins",
    "Lost by forfeit": "lost by an invalid reply of the policy; among the losses",
    "Score": "for one player the share solved",
    "Illegal": "replies against the rules / all replies",
    "Malformed": "replies without one readable action, or not of the form asked for / all replies",
}
_MATCH_COLUMNS = ("Game", "Policy", "Opponent", "Seat", "Games", "Win", "Draw", "Loss", "Trunc.", *_HINTS, "Turns")


@dataclasses.dataclass(frozen=True)
class Status:
    """The state of a page.

    Attributes:
      state: ``running``: a process is running and rewrites the page; ``stopped``: it reported that it stopped;
        ``unfinished``: the run is not finished, and whether it is still running is not known; ``finished``.
      reload_seconds: the page loads itself again after this long; 0: never.
      total_steps: of the whole run, if known.
      written: seconds since 1970.
    """

    state: Literal["running", "stopped", "unfinished", "finished"]
    reload_seconds: float = 0.0
    total_steps: int | None = None
    written: float = dataclasses.field(default_factory=time.time)


def build(folder: Path) -> Path:
    """Writes the report of a run into its folder and returns its path.

    A run that is not finished gets a page that loads itself again every half minute.

    Raises:
      RunFolderError: the folder does not exist or is no run's, or its recipe writes a page of its own.
    """
    run = read(folder)
    if "recipe" not in (run.config or {}) and not any((folder / name).exists() for name in _OF_A_RUN):
        raise RunFolderError(f"{folder} holds no run; expected a run folder such as runs/quickstart")
    recipe = (run.config or {}).get("recipe")
    if recipe in _OWN_PAGE:
        raise RunFolderError(f"{folder}: the recipe {recipe} writes a report of its own, {folder / 'report.html'}")
    return write(run, Status("finished") if run.finished else Status("unfinished", reload_seconds=30.0))


def write(
    run: RunRecords, status: Status, games: ShownGames | None = None, found: Sequence[RunWarning] | None = None
) -> Path:
    """Writes the page of what was found in a run folder into that folder and returns its path.

    `games` remembers the shown games from call to call; `found` are the warnings, if they are known already.
    """
    found = warnings.of_run(run) if found is None else found
    recipe = (run.config or {}).get("recipe", "divide_fuse_conquer")
    collects, method = recipe in ("collect", "branch"), recipe == "divide_fuse_conquer"
    clock, compared = _clock(run.metrics), comparisons(run)
    last = run.metrics[-1] if run.metrics else None
    now = last["step"] if last and status.state != "finished" else None
    lead = _fragments().lead(
        status=status,
        written=time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(status.written)),
        last=last,
        warnings=found[::-1],
        now=now,
        collection=_collection(run) if collects else None,
        self_play=run.self_play,
        compared=compared,
        verdict=verdict(compared),
        method=method or recipe == "grpo",
        titles=_TITLES,
        clock=clock,
        start=(_starts(run) or [{}])[-1],
        problems=run.problems,
    )
    own_page = method_page.of(run)
    found_of = _collected(run) if collects else [] if own_page is None else own_page.results(run)
    results = Section("Results", found_of or _results(run, compared), "Results")
    stages = Section("Divide, fuse, conquer" if method else "Stages", _stages(run, method=method), "Stages")
    drawn = Section("Curves", _curves(run, found), "Curves")
    played = Section("Games, turn by turn", _games(run, games or ShownGames()), "Games")
    setup = Section("What was run", _setup(run), "Setup")
    sections = [results, drawn, setup] if collects else [results, stages, drawn, played, setup]
    if own_page is not None:
        sections = [results, drawn, *own_page.sections(run), setup]
    target = run.path / "report.html"
    with replacing(target, many_writers=True) as file:  # a run writes it, and a user may request it meanwhile
        file.write(
            page.html(
                str((run.config or {}).get("name") or run.path.resolve().name),
                "run report",
                [lead],
                sections,
                mark="⚠ " if any(warning.step == now for warning in found) else "",
                state={
                    "state": status.state,
                    "reload": status.reload_seconds,
                    "written": status.written,
                    "stale": 300 + 3 * clock["slowest"],
                },
                refresh=int(status.reload_seconds),
            )
        )
    return target


def _fragments() -> Any:  # noqa: ANN401 - macros by name
    return page.fragments("run.html.jinja")


# ---- results ---------------------------------------------------------------------------------------------------------


def _collection(run: RunRecords) -> dict[str, Json]:
    """The counts of a collection by game so far."""
    found: dict[str, Json] = dict((run.collection or {}).get("games", {}))
    if not found:  # every line has the figures of all before it
        for game, name in game_metrics(run.metrics[-1]["metrics"] if run.metrics else ()):
            found.setdefault(game, {})[name] = run.metrics[-1]["metrics"][f"games/{game}/{name}"]
    return {game: row | {"trajectories": int(row.get("trajectories", 0))} for game, row in found.items()}


def _collected(run: RunRecords) -> list[str | Table]:
    rows = []
    for game, row in _collection(run).items():
        success, turns = row.get("success_rate"), row.get("turns_played")
        solved = NOTHING if success is None else f"{number(100 * success, 1)} %"
        tokens = f"{int(row.get('generated_tokens', 0)):,}"
        rows.append((game, f"{row['trajectories']:,}", solved, number(turns, 1), tokens))
    if not rows:
        return [empty("No chunk of games is recorded yet.")]
    said = "Success is over trajectories conclusive about the policy; collection.json has the failures by kind."
    header = ("Game", "Trajectories", "Success", "Turns played", "Generated tokens")
    return [Table("Trajectories by game", header, tuple(rows), (said,))]


def _results(run: RunRecords, compared: Sequence[Compared]) -> list[str | Table]:
    parts: list[str | Table] = [_comparison(each) for each in compared]
    if parts:
        key = _fragments().key_of_colours()
        parts.append(note(Markup("{}, with 95 % intervals. {}").format(key, _INTERVALS)))
    else:
        parts.append(empty("No final matches yet (evaluations.jsonl has no row of stage “final”)."))
    return [*parts, *_matches(run)]


def _comparison(compared: Compared) -> Table:
    make, alone = _fragments(), compared.opponent == "none"

    def row(name: str, pair: Comparison) -> tuple[str, ...]:
        scores = (make.scored(pair.before, alone), make.scored(pair.after, alone))
        return name, *scores, *map(make.gained, (pair.difference, pair.difference_without_forfeits)), make.plot(pair)

    header = ("Game", "Initial policy", "Final policy", "Change", "Change without forfeits", make.plot_head(alone))
    rows = tuple(row(game, pair) for game, pair in compared.games.items())
    together = len(compared.both or compared.games)
    foot = (row(f"All {together} together", compared.total),) if together > 1 else ()
    return Table(_TITLES[compared.opponent], header, rows, foot=foot)


def _matches(run: RunRecords) -> list[Markup]:
    """Every match of the run by stage, the end of the run first."""
    order = {game: number_ for number_, game in enumerate(run.games)}
    played = sorted(
        run.evaluations,
        key=lambda r: (order[r[0]["game"]], r[0]["opponent"], r[0]["policy"] != "initial", r[0]["seat"]),
    )
    hint = Markup('<abbr title="{}">{}</abbr>')
    header = tuple(hint.format(_HINTS[name], name) if name in _HINTS else name for name in _MATCH_COLUMNS)
    stages = {stage: [_match(*each) for each in played if each[0]["stage"] == stage] for stage in reversed(run.stages)}
    stages = {stage: rows for stage, rows in stages.items() if rows}
    folds = []
    for stage, rows in stages.items():
        table = Table(f"Matches of stage {stage}", header, tuple(rows), css="dense")
        name = stage.capitalize() if stage in ("base", "final") else stage
        opened = stage == "final" or len(stages) == 1
        folds.append(page.fold(name, f"{len(rows)} matches", table.html(), opened=opened))
    return [Markup("<h3>Wins, draws and losses by seat</h3>"), *folds] if folds else []


def _match(row: Json, r: Record) -> tuple[str, ...]:
    side = "before" if row["policy"] == "initial" else "after"
    return (
        str(row["game"]),
        Markup('<span class="tag {}">{}</span>').format(side, row["policy"]),
        {"random_legal": "random legal", "none": NOTHING}.get(row["opponent"], str(row["opponent"])),
        *map(str, (row["seat"], r.games, r.win, r.draw, r.loss)),
        *(str(count or "·") for count in (r.truncated, r.won_by_forfeit, r.lost_by_forfeit)),
        _fragments().scored(r, row["opponent"] == "none"),
        *(f"{number(100 * share, 1)} %" for share in (r.illegal_share, r.malformed_share)),
        number(r.steps_per_game, 1),
    )


# ---- stages ----------------------------------------------------------------------------------------------------------


class StageScores(NamedTuple):
    """Game x stage against the initial policy, as in the paper's Table 3; for one player the share solved.

    Attributes:
      stages: that have a match.
      alone: games for one.
      cells: counts by game and stage.
      means: by kind of game (alone or not), where there is one, a figure for every stage.
    """

    stages: list[str]
    alone: set[str]
    cells: dict[tuple[str, str], Record]
    means: dict[bool, list[float | None]]


def stage_scores(run: RunRecords) -> StageScores:
    """Returns the counts of every game after every stage; a score and a share have no mean in common."""
    cells: dict[tuple[str, str], Record] = collections.defaultdict(Record)
    alone = {row["game"] for row, _ in run.evaluations if row["opponent"] == "none"}
    has_base = any(row["stage"] == "base" for row, _ in run.evaluations)
    for row, record in run.evaluations:
        initial = row["policy"] == "initial"
        # The initial policy's matches at the end of a run stand in for a stage that was not measured.
        stage = "base" if initial and not has_base else str(row["stage"])
        if row["opponent"] in ("initial", "none") and (stage == "base" or not initial):
            cells[row["game"], stage] += record
    stages = [stage for stage in dict.fromkeys(("base", *run.stages)) if any(stage == s for _, s in cells)]
    means: dict[bool, list[float | None]] = {}
    for kind in (False, True):
        games = [game for game in run.games if (game in alone) == kind]
        values = [[measured(cells[g, s], kind).estimate for g in games if (g, s) in cells] for s in stages]
        if any(values):
            means[kind] = [sum(v) / len(v) if v else None for v in values]
    return StageScores(stages, alone, dict(cells), means)


def _stage_table(run: RunRecords) -> Table | None:
    make, found = _fragments(), stage_scores(run)
    groups = {group["name"]: set(group["games"]) for group in (run.groups or {}).get("groups", [])}
    # ``conquer g1+g2`` trains the groups g1 and g2.
    members = {s: [groups.get(name, set()) for name in s.partition(" ")[2].split("+")] for s in found.stages}
    trained = {stage: set().union(*every) for stage, every in members.items()}

    def cell(game: str, stage: str) -> str:
        record = found.cells.get((game, stage), Record())
        return make.heat(record, game in found.alone, game in trained[stage]) if record.games else NOTHING

    games = [game for game in run.games if any((game, stage) in found.cells for stage in found.stages)]
    rows = tuple((game, *(cell(game, stage) for stage in found.stages)) for game in games)
    names = {False: "Mean score, two players", True: "Mean share solved, one player"}
    foot = tuple((names[kind], *map(number, means)) for kind, means in found.means.items())
    said = (
        "Two players: score against the initial policy. One player: share of games solved. Underlined: the game "
        "belongs to the groups of that stage."
    )
    return Table("Score after each stage", ("Game", *found.stages), rows, (said,), foot, "heats") if rows else None


def _stage_rows(run: RunRecords) -> list[Json]:
    """One row per stage: kind, iterations, accepted and rejected updates, first and last win rate, time."""
    rows = []
    for place, name in enumerate(run.stages, 1):
        lines = [line for line in run.metrics if line["stage"] == name]
        accepted = [line["metrics"]["accepted"] > 0 for line in lines if "accepted" in line["metrics"]]
        rates = [line["metrics"]["win_rate"] for line in lines if "win_rate" in line["metrics"]]
        row = {"number": place, "name": name, "kind": name.split(" ")[0], "iterations": len(lines)}
        rows.append(row | {"accepted": accepted, "rates": rates, "seconds": _clock(lines)["seconds"]})
    return rows


def _stages(run: RunRecords, *, method: bool) -> list[str | Table]:
    make = _fragments()
    parts: list[str | Table] = []
    if run.groups is not None:
        found = run.groups.get("measured", {})
        records = {game: Record(win=m["wins"], loss=m["trials"] - m["wins"]) for game, m in found.items()}
        said = (
            "By two questions: does every game begin alike (fixed) or not (random), and did the initial policy win at "
            "all when it was measured."
        )
        groups = make.groups(run.groups.get("groups", []), records)
        parts += [Markup("<h3>How the games were divided</h3>"), note(said), groups]
    elif method:
        parts.append(empty("The games have not been divided into groups yet (no groups.json)."))
    scores = _stage_table(run)
    if scores is not None:
        parts.append(scores)
    elif method:
        parts.append(empty("No matches have been played after a stage yet."))
    rows = []
    for stage in _stage_rows(run):
        kept, rates = stage["accepted"], stage["rates"] or [None]
        counts = (kept.count(True), kept.count(False)) if kept else ("·", "·")
        seconds = duration(stage["seconds"]) if stage["iterations"] else "·"
        name = Markup("{} {}").format(make.chip(stage["kind"], stage["number"]), stage["name"])
        shown = map(str, (stage["iterations"] or "·", *counts))
        rows.append((name, *shown, number(rates[0]), number(rates[-1]), seconds))
    header = ("Stage", "Iterations", "Accepted", "Rejected", "Win rate, first", "last", "Time")
    return [*parts, Table("Updates", header, tuple(rows))] if rows else parts


# ---- curves, games ---------------------------------------------------------------------------------------------------


def _curves(run: RunRecords, found: Sequence[RunWarning]) -> list[str | Table]:
    drawn = curves(run, found)
    if not drawn:
        return [empty("No iteration has been recorded yet (no metrics.jsonl).")]
    warned = "red: a warning was raised there. " if found else ""
    said = (
        f"Left to right: the iterations of the run; shaded: its stages. {warned}Rates share one scale, other "
        "quantities have their own in every panel. Long curves are averaged in bins."
    )
    return [_fragments().charts(drawn, _stage_rows(run), bands(run), PANEL), note(said)]


def _games(run: RunRecords, games: ShownGames) -> list[str | Table]:
    if not run.episodes:
        return [empty("No games have been recorded yet (no episodes.jsonl).")]
    said = (
        "From each stage and game: the first game of each outcome in the first and in the last iteration. A choice to "
        "look at, not a sample to count. Every one was played again by the rules and ended as recorded, unless it says "
        "otherwise."
    )
    return [note(said), _fragments().game_list(), games.embedded(run)]


# ---- what was run ----------------------------------------------------------------------------------------------------


def _starts(run: RunRecords) -> list[Json]:
    return [_flat(start) for start in (run.versions or {}).get("starts", [])]


def _setup(run: RunRecords) -> list[str | Table]:
    starts = _starts(run)
    parts = _configuration(run.config)
    if not starts:
        return [*parts, Markup("<h3>Versions</h3>"), empty("Versions were not recorded (no versions.json).")]
    more = (f"The run was started {len(starts)} times; this is the last one.",) if len(starts) > 1 else ()
    rows = tuple(
        (key.replace("packages.", "").replace("_", " "), Markup('<span class="mono">{}</span>').format(text(value)))
        for key, value in starts[-1].items()
    )
    return [*parts, Table("Versions", (), rows, more, css="dense wrapped")]


def _configuration(config: Json | None) -> list[str | Table]:
    if config is None:
        return [empty("The configuration is not there (no config.json).")]
    kind = RECIPES.get(str(config.get("recipe")))
    standard = dataclasses.asdict(kind()) if kind is not None else {}
    config = renamed.with_new_names(config, kind) if kind is not None else config
    values, defaults = _flat(config), _flat(standard)
    for mapping in _mappings(kind()) if kind is not None else ():
        if _has(config, mapping):  # an entry that it lacks here or there is a difference, too
            entries = [key for key in (values | defaults) if key.startswith(f"{mapping}.")]
            values |= {key: values.get(key) for key in entries}
            defaults |= {key: defaults.get(key) for key in entries}
    games = config.get("games") or {}
    code, bold, muted = Markup("<code>{}</code>"), Markup("<b>{}</b>"), Markup('<span class="muted">{}</span>')
    settings = [
        (code.format(key), text(value), text(defaults.get(key, value)))
        for key, value in values.items()
        if not key.startswith("games.")
    ]
    other = tuple((key, value, muted.format(default)) for key, value, default in settings if value != default)
    every: tuple[tuple[Any, ...], ...] = tuple(
        (key, value if value == default else bold.format(value)) for key, value, default in settings
    )
    options = tuple((game, _options(game, given or {}) or muted.format("none")) for game, given in games.items())
    none = ((muted.format("none"), "", ""),)
    header = ("Setting", "This run", "Default")
    if kind is None:  # of a configuration file, which is not run to make a page
        whose = f"{config.get('recipe')} is a recipe of a file of its own, whose defaults are not known here."
        differing: str | Table = empty(whose)
        every = tuple((key, value) for key, value, _ in settings)
    else:
        differing = Table("Settings that differ from the defaults", header, other or none, css="wrapped")
    header_of_games = ("Game", "Options that differ from the id’s defaults")  # noqa: RUF001 - the apostrophe the page shows
    return [
        _fragments().setup(values, len(games)),
        *([Table("Games", header_of_games, options, css="wrapped")] if games else []),
        differing,
        page.fold("All settings", str(len(every)), Table("All settings", (), every, css="dense wrapped").html()),
    ]


def _options(game: str, given: Json) -> Markup:
    known = registry.defaults(game) if game in registry.game_ids() else {}
    option = _fragments().option
    return Markup("").join(
        option(name, text(value), text(known[name]) if name in known else None) for name, value in given.items()
    )


def _mappings(section: Any, prefix: str = "") -> Iterator[str]:  # noqa: ANN401 - any class of a configuration
    """Yields the dotted key of every setting that is a mapping, whose entries have names of games, players, ..."""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            yield from _mappings(value, f"{prefix}{field.name}.")
        elif isinstance(value, Mapping):
            yield f"{prefix}{field.name}"


def _has(tree: object, key: str) -> bool:
    """Whether a setting is there; a folder of an earlier version lacks some."""
    for name in key.split("."):
        if not isinstance(tree, Mapping) or name not in tree:
            return False
        tree = tree[name]
    return True


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Json:
    flat: Json = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def _clock(lines: Iterable[Json]) -> Json:
    """Sums of the time, episodes and tokens that lines of metrics.jsonl report."""
    clocks = [line.get("clock") or {} for line in lines]
    seconds = [float(clock.get("seconds") or 0) for clock in clocks]

    def total(rate: str) -> float:
        return sum(s * float(clock.get(rate) or 0) for s, clock in zip(seconds, clocks, strict=True))

    return {
        "seconds": sum(seconds),
        "slowest": max(seconds, default=0.0),
        "iterations": len(clocks),
        "episodes": total("episodes_per_second"),
        "tokens": total("tokens_per_second"),
    }
