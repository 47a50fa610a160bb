"""README.md, BUILD_NOTES.md and docs/ as text: code blocks, the code in running text, the commands they show."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOG = sorted((ROOT / "docs" / "log").glob("*.md"))
"""What was measured and decided, by day: names, settings and commands are those of the day, so only links are held."""
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "SECURITY.md", "BUILD_NOTES.md")),
        *((ROOT / "docs").rglob("*.md")),
    ]
)
PAGES = [page for page in PAGES if page not in LOG]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def page_name(page):
    return page.relative_to(ROOT).as_posix()


def blocks(text):
    """Fenced blocks as (language, content)."""
    return _BLOCK.findall(text)


def prose(text):
    """A page without its blocks."""
    return _BLOCK.sub("", text)


def spans(text):
    """Code in running text and tables, each on one line."""
    return [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(text))]


def tables(text):
    """Tables as (names of the columns, rows of cells)."""
    for head, body in re.findall(r"^(\|.+\|)\n\|[-:| ]+\|\n((?:\|.*\|\n?)+)", prose(text), re.MULTILINE):
        names, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in [head, *body.splitlines()])
        yield names, rows


def commands(text):
    """Words of every command that a page shows, in a block or in running text.

    A command begins at what is run: variables and commands before it, and what its output is led to, are left out.
    """
    lines = [line for language, code in blocks(text) if language != "python" for line in shell_lines(code)]
    for line in [*lines, *spans(text)]:
        if not re.search(r"\bpython[\d.]* (?:-m dfc|\S+\.py)|\bmake |\bbenchmarks/\w+\.py", line):
            continue
        whole = re.sub(r"<(\w+)>", lambda match: match[1].upper(), line)  # `<name>` stands for any name, as NAME does
        lexer = shlex.shlex(whole, posix=True, punctuation_chars="&|;<>")
        lexer.whitespace_split, lexer.commenters = True, ""
        command = []
        for word in [*lexer, ";"]:
            if set(word) <= set("&|;<>"):
                begin = next((n for n, one in enumerate(command) if not re.match(r"\$$|[A-Z_]+=", one)), 0)
                if command[begin:]:
                    yield command[begin:]
                command = []
            else:
                command.append(word)


def shell_lines(code):
    """Lines of a block, continued ones as one, without comments."""
    return [re.sub(r"(^|\s)#.*", "", line).strip() for line in code.replace("\\\n", " ").splitlines()]
