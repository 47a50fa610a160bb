"""Prose in plain technical English: docs, docstrings, comments, messages and errors hold none of these phrases.

Only phrases without a second, ordinary meaning are listed; identifiers are held by tests/test_vocabulary.py. Code in
backticks and code blocks is not read. Texts that are fixed by their sources, as games' and prompts are, may be
excepted.
"""

import ast
import io
import re
import tokenize

import pytest
from doc_pages import PAGES, ROOT, page_name
from test_vocabulary import sources

# A pattern (whatever its case, blanks standing for any white space) -> what to say instead.
INSTEAD = {
    r"(lie|lies|lay) (there|here|beside|in their place|in its place)": "is stored, is in memory",
    r"lie down|(lies|lay) in (the folder|a folder|the run folder|memory|\w+\.jsonl)": "is in",
    r"what (has |have )?(came|come|comes|became|become|becomes) of": "the result, the outcome",
    r"(came|come|comes) of it\b": "resulted",
    r"anew": "again",
    r"in the box": "built in; in the sandbox",
    r"to the bit": "bit for bit",
    r"strangers?('s)?": "untrusted, third-party",
    r"counts? nowhere|counted nowhere": "is excluded from all means and losses",
    r"names nobody": "is empty",
    r"lets? go( of)?|letting go": "releases, frees",
    r"busy with": "doing",
    r"by heart": "memorised",
    r"by a hair": "barely",
    r"of one's own": "custom, your own",
    r"by the wall's clock|of the wall's clock|the clock on the wall": "wall-clock time",
    r"whoever (waits|reads|looks|asks|started|sits)": "the caller, the user, the player",
    r"who sits|sits? down": "the player of the seat",
    r"who \w+ (what )?(for |from |against )?whom": "which ones",
    r"(returned|returns) what (plays|trains|answers|writes|samples|replies|judges|moves|tells|runs|came|records say)": (
        "what it is: the weights, the trainer, the key"
    ),
    r"what tells ([\w']+ ){1,4}from": "what identifies",
    r"what (it|they) raises? (ends|ends all of it)|by what it raises": "its exception aborts the call",
    r"how manieth": "which number",
    r"(names?|keys?|defaults|records|rates|those|folders|texts|itself|replies|starts?) of before": "former, earlier",
    r"the (name|names|key|keys) of today": "current",
    r"(?<=[;:,]\s)in words|(is|it|them|those|returns|one|why) in words": "as text",
    r"mend|mends|mended|mending": "repair, correct, fix",
    r"no utf-8 spells|(utf-8|json|the tokenizer) can spell": "encode",
    r"(gives?|gave|giving) (its|their|the|a) (slots?|folder|rows?) (away|free|back)": "releases",
    r"takes note (of|that)": "records",
    r"takes what came": "records the results",
    r"worth a word": "reported",
    r"without a word": "silently",
    r"(?<='s\s)word that|leaves the word": "an event, a message",
    r"stands? idle|stood idle": "is idle",
    r"of ours|with ours": "of dfc, our own",
    r"(must|may) be to each other": "rules between",
    r"shows? at once": "fail early, is reported immediately",
    r"as (it|they) (lie|lies|lay)": "unchanged, in place",
    r"where (it|they) (lie|lies|lay)": "in place, its folder",
    r"is no \w+ that is computed here|that (is|are) computed here": "supported",
    r"as (a|an|the) \w+ wants? (it|them)": "in the form that it takes",
    r"what (a|an|the|its|two|some) [\w' ]{1,20}(makes|made|make) of": "the result of",
    r"not to be had": "not available, forbidden",
    r"(two|its) looks|looks? of the host": "checks",
    r"(is|are) called so": "has this name",
    r"what a person (wants|waits|should)": "progress, for the user",
    r"mistakes? ([\w,]+ ){0,5}(is|are) answered|is answered (at once|without it)": "is reported",
    r"at the least": "at least",
    r"of old|as ever": "earlier; as usual",
    r"in small(?! \w+s\b)": "small, at small scale",
    r"what is seen of": "the metrics of",
    r"lets? know": "tells, reports",
    r"a slip of the finger": "a typing error",
    r"(?<='s\s)(matters?|business)|own (matters?|business)": "is done by, is limited by",
    r"dearest": "the most expensive",
    r"in the making": "under way",
    r"templates? (is|are) told|told to (a|the) (chat )?template": "is passed to",
    r"nobody (asked|waits|reads|looks|trains|owns|serves)": "no one, unused",
    r"a (self|model|policy|player) of before": "its earlier self",
    r"of the other one's making|(its|their|that one's) doing": "caused by",
    r"will do\b(?=[.;)])": "is accepted",
}

# File -> phrases that stay in it, with the reason.
ALLOWED = {
    "games/bots/cases.py": {"comes of it": "a reply that players see"},
    "games/paprika/murder_mystery.py": {"what comes of": "a prompt"},
}

_PHRASES = {re.compile("(?:" + phrase.replace(" ", r"\s+") + r")(?!\w)"): better for phrase, better in INSTEAD.items()}
_ANY = re.compile(rf"(?<!\w)(?:{'|'.join(pattern.pattern for pattern in _PHRASES)})")
_CODE = "\x00"  # in the place of a sign that is not prose; no pattern has it
_JOINT = re.compile(r"""(?P<quote>["'])[ \t\\]*\n\s*[rRfF]{0,2}(?P=quote)""")  # between two parts of one literal


def filled(text, pattern, sign=_CODE):
    """A text of the same length and lines, with a sign for every other one that a pattern matches."""
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", sign, match[0]), text)


def prose_of_python(source):
    """The comments and string literals of a file on their lines, between fillings."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines(keepends=True)

    def offset(line, column):  # of ast, whose columns count bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    kept = list(filled(source, r"\S+"))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            start, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
            text = filled(source[start:end], _JOINT, " ")
            text = filled(text, r"\{[^{}]*\}") if isinstance(node, ast.JoinedStr) else text
            if kept[start] == _CODE:  # a part of a literal that was kept as a whole is not kept once more
                kept[start:end] = text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            start = starts[token.start[0] - 1] + token.start[1]
            kept[start : start + len(token.string)] = " " + token.string[1:]
    prose = filled("".join(kept), rf"`+[^`{_CODE}]+`+")
    return re.sub(rf"[{_CODE} ]*{_CODE}[{_CODE} ]*", _CODE, prose)  # shorter to search; lines stay


def prose_of_markdown(text):
    return filled(filled(text, r"(?ms)^ *```.*?^ *```$"), r"(?<!`)`[^`]+`(?!`)")


def objections(prose):
    """Yields (line, phrase, what to say instead) of everything that is listed."""
    prose = prose.lower()
    for match in _ANY.finditer(prose):
        better = next(better for pattern, better in _PHRASES.items() if pattern.match(prose, match.start()))
        yield prose.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), better


def files():
    """Yields (name, prose) of every file that is read."""
    for path in sources():
        yield str(path.relative_to(ROOT)), prose_of_python(path.read_text(encoding="utf-8"))
    for page in PAGES:
        if page_name(page) != "BUILD_NOTES.md":  # these and docs/log are records
            yield page_name(page), prose_of_markdown(page.read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    yield "CHANGELOG.md", prose_of_markdown(re.match(r"(?s).*?(?=^## \d(?!.*unreleased))", changes, re.MULTILINE)[0])


def test_prose_is_plain():
    read, wrong, excepted = 0, [], set()
    for name, prose in files():
        read += 1
        for line, phrase, better in objections(prose):
            if phrase in ALLOWED.get(name, {}):
                excepted.add((name, phrase))
            else:
                wrong.append(f"{name}:{line}: {phrase}: say {better}")
    assert read > 300
    assert not wrong, "\n".join(sorted(wrong))
    assert excepted == {(name, phrase) for name, phrases in ALLOWED.items() for phrase in phrases}


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""Begins\nanew."""', 2),
        ('def f():\n    """Rows that\n    lie\n    there."""', 3),
        ("x = 1\n# what has\n# become of it", 2),
        ("x = 1  # Counts nowhere", 1),
        ('x = (\n    "no news; counts "\n    "nowhere"\n)', 2),
        ("x = (\n    f'{1} answers are busy '\n    f'with {2}'\n)", 2),
        ('x = f"é {y} anew"', 1),
        ('x = "a ` alone"\ny = "anew"\nz = "`"', 2),
    ],
)
def test_a_phrase_is_seen_at_its_line(source, line):
    assert [found for found, _, _ in objections(prose_of_python(source))] == [line]


@pytest.mark.parametrize(
    "source",
    [
        "anew = busy.with_ + by_heart",
        '"""See `Folder.mend`, ``lets go``."""',
        'x = f"{anew}"',
        '"""anewton, lies on the diagonal, counts nowhereabouts"""',
        "x = 'counts'  # nowhere",
    ],
)
def test_other_words_and_code_are_left_alone(source):
    assert not list(objections(prose_of_python(source)))


def test_code_of_pages_is_left_alone():
    page = "Begin\nanew with `anew`:\n\n```\nanew\n```\n"
    assert [line for line, _, _ in objections(prose_of_markdown(page))] == [2]
