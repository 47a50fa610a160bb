"""Whatever the pages name exists: settings with their values, commands with their flags, functions, places.

CHANGELOG.md and docs/log/ are history and are not held, but for the links of the latter.
"""

import argparse
import ast
import contextlib
import dataclasses
import functools
import importlib
import io
import re
import shlex
from unittest import mock

import pytest
from doc_pages import LOG, PAGES, ROOT, blocks, commands, page_name, prose, spans, tables
from test_docs import defined, source

import dfc.config
from dfc.config import RECIPES, GamesRunConfig
from dfc.games import registry
from dfc.launch import command_line
from dfc.launch.key_names import all_keys
from dfc.launch.overrides import OVERRIDE, override

every_page = pytest.mark.parametrize("page", PAGES, ids=page_name)

# What another program calls its own, beside ours. A column that is headed as TRL's or a paper's, or as what is "there",
# is not looked at.
OTHERS = {
    "sanitize_control_tokens": "transformers",
    "scale_rewards": "TRL",
    "trust_remote_code": "transformers",
}
THEIRS = re.compile(r"TRL's|paper|^there$")
VERL = "actor_rollout_ref."  # what verl's names of the kind begin with
# Arguments of functions and fields of classes that are no settings, and whose they are.
ARGUMENTS = {
    "layout": "dfc.rows.conversations.write_pairs",
    "max_length": "dfc.losses.policy_gradient.grpo_loss",
    "transpose": "dfc.models.hf_architectures.TensorName",
}
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]+\b|\.\.\.|^[a-z]$")  # FILE, HOST, a: whatever the reader has


# ---- settings --------------------------------------------------------------------------------------------------------


@functools.cache
def keys():
    """Every key of every recipe and of the sections they lie in; NAME stands for the name of an entry."""
    return leaves() | {key.rsplit(".", count)[0] for key in leaves() for count in range(1, key.count(".") + 1)}


@functools.cache
def leaves():
    return {key for kind in RECIPES.values() for key in all_keys(kind)}


@functools.cache
def roots():
    return {key.split(".")[0] for key in keys()}


@functools.cache
def configurations():
    """A configuration of every recipe."""
    return [kind(games={"Nim-v0": {}}) if issubclass(kind, GamesRunConfig) else kind() for kind in RECIPES.values()]


@functools.cache
def options():
    """Names of the options of games."""
    return {option for game in registry.own_game_ids() for option in registry.defaults(game)}


def named(key):
    """The keys that a name means: whole, or the last part of one, as in `fusion.weight` or `turns`."""
    if (
        key.split(".")[0] == "games" or key.rpartition(".")[0] in leaves()
    ):  # a game and its option, an entry of a mapping
        return [key]
    ends = sorted((known for known in keys() if f".{known}".endswith(f".{key}")), key=len)
    entries = (known for known in keys() if ".NAME" in known)
    return ends or [key for known in entries if re.fullmatch(re.escape(known).replace("NAME", r"[\w.+-]+"), key)]


def refusal(key, value):
    """Why no recipe takes a value for a key, or None."""
    said = ""
    for config in configurations():
        found = override(config, [f"--config.{key.replace('NAME', 'name')}={value}"])[1]
        if not found or "is not among this run's games" in found[0]:
            return None
        said = said if "there is no" in found[0] and said else found[0]
    return said


def wrong_setting(key, value=None):
    """What is wrong with a key, whole or the last part of one, and with its value; None if nothing is."""
    if key in OTHERS or key in ARGUMENTS or key in options() or key.startswith(VERL):
        return None
    if not (meant := named(key)):
        return "there is no such setting"
    if value is None or PLACEHOLDER.search(value):
        return None
    if value[0] in "\"'":
        value = value.strip("\"'")
    elif share := re.fullmatch(r"(\d+)/(\d+)", value):
        value = str(int(share[1]) / int(share[2]))
    said = [refusal(one, value) for one in meant]
    return None if None in said else said[0]


def of_ours(text):
    """A page without the cells of columns that hold other people's names."""
    for names, rows in tables(text):
        for place, name in enumerate(names):
            if THEIRS.search(name):
                for row in rows:
                    text = text.replace(
                        f"| {' | '.join(row)} |", f"| {' | '.join(c for n, c in enumerate(row) if n != place)} |"
                    )
    return text


def keywords(span):
    """The arguments of a span that is several of them, as in Python: name=value, name=value."""
    try:
        found = ast.parse(f"f({span})", mode="eval").body.keywords
    except SyntaxError:
        return []
    return [(one.arg, ast.unparse(one.value)) for one in found] if len(found) > 1 else []


def settings(text):
    """Yields (key, value or None) of every setting that a page names: in running text, in tables, as a flag."""
    for span in spans(of_ours(text)):
        if " --" not in span and (match := re.fullmatch(r"([a-z]\w*(?:\.\w+)*)=(.+)", span)):
            yield from keywords(span) or [(match[1], match[2])]
        elif re.fullmatch(r"[a-z]\w*(?:\.\w+)+", span) and span.split(".")[0] in roots() and not is_file_name(span):
            yield span, None
        elif span.startswith(("--config.", "--noconfig.")):
            matches = [OVERRIDE.fullmatch(word) for word in command_line.split(shlex.split(span))[1]]
            yield from ((match["key"], match["value"]) for match in matches if re.fullmatch(r"[a-z].*\w", match["key"]))
    for names, rows in tables(text):
        section = re.fullmatch(r"`--config\.([\w.]*\.)`", names[0])
        if section or names[0] == "setting":
            begin = section[1] if section else ""
            yield from ((begin + name, None) for row in rows for name in re.findall(r"`([a-z_.]+)`", row[0]))


def is_file_name(span):
    return span.rpartition(".")[2] in {"json", "jsonl", "parquet", "py", "md", "html", "toml", "txt", "svg"}


def strange_settings(text):
    wrong = ((key, value, wrong_setting(key, value)) for key, value in settings(text))
    return [f"{key}{'' if value is None else '=' + value}: {why}" for key, value, why in wrong if why]


@every_page
def test_settings_in_running_text_and_tables_exist_and_take_the_values_named(page):
    assert strange_settings(page.read_text()) == []


def strange_arguments(code):
    """Fields that Python in a page gives to configurations and that these have not."""
    for node in ast.walk(ast.parse(code)):
        named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        kind = getattr(dfc.config, node.func.id, None) if named else None
        if dataclasses.is_dataclass(kind):
            known = {field.name for field in dataclasses.fields(kind)}
            yield from (f"{kind.__name__}({one.arg}=)" for one in node.keywords if one.arg and one.arg not in known)


@every_page
def test_python_in_the_documentation_gives_configurations_fields_that_they_have(page):
    code = [code for language, code in blocks(page.read_text()) if language == "python"]
    assert [strange for one in code for strange in strange_arguments(one)] == []


# ---- commands --------------------------------------------------------------------------------------------------------


class _ParsedError(Exception):
    """The words were taken; what the parser does not know of them, for the command to look at."""


def refused(module, words):
    """What a command says to words before it does anything; None if it takes them."""
    if not source(module):
        return f"there is no {module}"
    main = importlib.import_module(f"{module}.__main__" if source(module).name == "__init__.py" else module).main
    if module == "dfc.launch":
        *_, unknown, found = command_line._read_flags(command_line.split(words)[0])
        return "; ".join([*command_line.unknown_words(unknown, None), *found]) or None
    real, said = argparse.ArgumentParser.parse_known_args, io.StringIO()

    def parse_known_args(parser, *given, **named):
        result = real(parser, *given, **named)
        if parser.prog == f"python -m {module}":  # and none of its commands' own
            raise _ParsedError(result[1])
        return result

    with (
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", parse_known_args),
        contextlib.redirect_stderr(said),
        pytest.raises((_ParsedError, SystemExit)) as raised,
    ):
        main(words)
    if raised.type is SystemExit:
        return said.getvalue().splitlines()[-1]
    unknown = [word for word in raised.value.args[0] if not (module == "dfc.launch.fit" and OVERRIDE.fullmatch(word))]
    return f"does not know {' '.join(unknown)}" if unknown else None


@functools.cache
def flags_of(path):
    """What a script may call a flag: the constants in it, and in the scripts beside it that it imports."""
    tree = ast.parse(path.read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    beside = [path.parent / f"{name}.py" for name in imported]
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts.union(*(flags_of(other) for other in beside if other.is_file()))


@functools.cache
def makefile():
    """The targets of the Makefile and the variables that a command may set."""
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([\w-]+):(?!=)", text, re.MULTILINE)
    return set(targets), set(re.findall(r"\$\((\w+)\)", text))


def wrong_command(command):
    """What is wrong with the words of a command that a page shows; None if nothing is, or it is none of ours."""
    program, *words = [word for word in command if word != "..."]
    if program == "make":
        targets, variables = makefile()
        strange = [w for w in words if (w.split("=")[0] not in variables if "=" in w else w not in targets)]
        return f"make knows no {', '.join(strange)}" if strange else None
    if words[:1] == ["-m"] and words[1].split(".")[0] == "dfc":
        return refused(words[1], words[2:]) if words[2:] or not source(words[1]) else None
    script, words = (program, words) if program.endswith(".py") else (next(iter(words), ""), words[1:])
    if not script.endswith(".py") or "/" not in script:  # a file of the reader's own
        return None
    if not (ROOT / script).is_file():
        return f"there is no {script}"
    strange = [word for word in words if word[:2] == "--" and word.split("=")[0] not in flags_of(ROOT / script)]
    return f"{script} has no {', '.join(strange)}" if strange else None


def wrong_commands(text):
    return [f"{shlex.join(command)}: {why}" for command in commands(text) if (why := wrong_command(command))]


@every_page
def test_commands_name_programs_and_flags_that_exist(page):
    assert wrong_commands(page.read_text()) == []


# ---- places ----------------------------------------------------------------------------------------------------------


def resolves(name):
    """Whether a dotted name is a module of ours or something that one defines, a method of a class included."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if source(".".join(parts[:count])):
            rest = ".".join(parts[count:])
            return not rest or rest in set(defined(".".join(parts[:count])))
    return False


def dangling_names(text):
    """Dotted names below dfc, anywhere in the code of running text, that are nothing."""
    named = {name for span in spans(text) for name in re.findall(r"(?<![\w./-])dfc(?:\.[A-Za-z]\w*)+", span)}
    return sorted(name for name in named if not resolves(name))


@every_page
def test_dotted_names_in_the_documentation_exist(page):
    assert dangling_names(page.read_text()) == []


def anchors(page):
    """What the headings of a page can be linked to by, as GitHub makes it of their text."""
    found, counts = set(), {}
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page.read_text()), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        counts[slug] = counts.get(slug, -1) + 1
        found.add(f"{slug}-{counts[slug]}" if counts[slug] else slug)
    return found


def lost_anchors(text, page):
    """Links of a page, by their target, to headings that are not there."""
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", prose(text))
    targets = {(page.parent / file if file else page, anchor) for file, anchor in links}
    return sorted(
        f"{file.name}#{anchor}" for file, anchor in targets if not file.exists() or anchor not in anchors(file)
    )


@pytest.mark.parametrize("page", [*PAGES, *LOG], ids=page_name)
def test_links_to_headings_lead_to_them(page):
    assert lost_anchors(page.read_text(), page) == []


# ---- the checks see what they are for ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "| `--config.rollout.` | what |\n| --- | --- |\n| `slots` | games |\n| `sampling` | gone |\n",
            ["rollout.sampling"],
        ),
        (
            "a baseline with `--config.method=naive_multi`",
            ["method=naive_multi: --config.method=naive_multi: must be one of"],
        ),
        ("with\n`--config.rollout.sampling.temperature=0.6 --config.seed=1`", ["rollout.sampling.temperature=0.6"]),
        (
            "`acceptance.rule=alwys`, `turns=second`, `no_such=1`",
            ["acceptance.rule=alwys", "turns=second", "no_such=1"],
        ),
        ("`rollout.sampling` and `grpo.unti`", ["rollout.sampling", "grpo.unti"]),
        ("| setting | what |\n| --- | --- |\n| `acceptance.rule`, `min_q` | a |\n", ["min_q"]),
        ('`acceptance.rule=always`, `turns=first`, `groups.json`, `reward.function="FILE.py:NAME"`, `layout="a"`', []),
        ("`--config.samples_of.bandit=3 --config.games.wordle.length=6`, `endpoints.opponent.retries`", []),
        ("| there | here |\n| --- | --- |\n| `rollout.n` | `rollout.slotz` |\n", ["rollout.slotz"]),
        ('| TRL\'s | here |\n| --- | --- |\n| `loss_type="dapo"` | `unit="token"` |\n', []),
    ],
)
def test_a_strange_setting_is_seen(text, expected):
    found = strange_settings(text)
    assert len(found) == len(expected)
    assert all(one.startswith(begin) for one, begin in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "`python -m dfc.launch.fit --config=configs/smoke.py\n--tpology=h100:1 --config.seed=1`",
            "know --tpology=h100:1",
        ),
        (
            "```\nKEY=1 python -m dfc.launch.serve --policy=tiny_player --prot=1 &\n```",
            "does not know --prot=1",
        ),
        ("`python -m dfc.launch.clembench rows --game=runs/x --file=a.jsonl`", "rows"),
        ("`python -m dfc.launch --config=configs/smoke.py --wrkdir=a`", "--wrkdir=a"),
        ("`python -m dfc.lunch --help`", "there is no dfc.lunch"),
        ("`benchmarks/rollouts.py --only=single --clok=cpu`", "has no --clok"),
        ("`make no-such-target` and `make test`", "make knows no no-such-target"),
        ("`make study-playpen ARGZ=--list`", "make knows no ARGZ=--list"),
        ("`python -m dfc.launch.clembench rows --games=runs/x --file=a.jsonl`, `python -m dfc.models.fetch`", None),
        ("`make newest-jax PYTHON=python3.12`, `python -m dfc.report runs/<name>`, `python mine.py --x`", None),
    ],
)
def test_a_command_that_would_be_refused_is_seen(text, expected):
    found = wrong_commands(text)
    assert len(found) == (expected is not None)
    assert not found or expected in found[0]


def test_a_dotted_name_that_is_nothing_is_seen():
    assert dangling_names("`dfc.losses.gone(x)`, `dfc.nothing`, `dfc.losses.grpo_loss(...)`, `dfc.launch`") == [
        "dfc.losses.gone",
        "dfc.nothing",
    ]


def test_a_link_to_a_heading_that_is_gone_is_seen():
    page = ROOT / "docs" / "rollouts.md"
    assert lost_anchors("[a](#games), [b](#gone), [c](api.md#gone), [d](api.md#dfclosses)", page) == [
        "api.md#gone",
        "rollouts.md#gone",
    ]


def test_every_exception_says_whose_name_it_is():
    text = "".join(page.read_text() for page in PAGES)
    assert all(f"`{name}=" in text for name in (*OTHERS, *ARGUMENTS)), "named no more"
    assert not [name for name in (*OTHERS, *ARGUMENTS) if name in roots()]
    for name, place in ARGUMENTS.items():
        module, _, last = place.rpartition(".")
        (node,) = (n for n in ast.parse(source(module).read_text()).body if getattr(n, "name", "") == last)
        assert re.search(rf"\b{name}: ", ast.unparse(node)), place
