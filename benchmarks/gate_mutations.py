"""Mutants of the product, drawn by a seed: small changes of meaning, each of one expression in one line of code.

A line of code is drawn uniformly among those that can be changed, then one of its changes. What can be changed:

    comparison    < and <=, > and >=, == and !=, in and not in, is and is not change places
    arithmetic    + and -, * and /, // and %, << and >> change places; also in += and its like
    number        a constant of int or float plus one; True and False change places
    boolean       ``and`` and ``or`` change places; ``not`` is dropped; a condition is negated
    return        None in place of the value
    argument      one argument given by name is left out

Left out, as nobody can tell the mutant from the original, or nobody cares: docstrings, annotations, imports, what
stands in a ``raise``, an ``assert``, a ``print`` or an f-string, sums of texts, and the arguments of `WITHOUT_EFFECT`.
"""

import ast
import dataclasses
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

FOLDERS = ("dfc", "games", "models")
WITHOUT_EFFECT = frozenset(
    {"help", "flush", "encoding", "description", "prog", "epilog", "metavar", "daemon", "name", "strict"}
)

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
      file: relative to the repository.
      lines: first and last line of the statement, of a compound one only its head.
      line: of the expression.
      kind: as in the head of this file.
      before: the expression. after: what stands in its place.
      at_import: whether it runs when the module is imported: outside functions, in a decorator or a default.
      start: byte in the file where it begins. end: byte behind it.
    """

    file: str
    lines: tuple[int, int]
    line: int
    kind: str
    before: str
    after: str
    at_import: bool
    start: int
    end: int

    def applied(self, source: bytes) -> bytes:
        """Returns the source of the file with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:  # noqa: C901, PLR0912 - a table
    """Yields (kind, the node to replace, what to replace it with) of one node, children left out."""
    match node:
        case ast.Compare(ops=[operator], left=left, comparators=right) if type(operator) in _COMPARISONS:
            yield "comparison", node, ast.unparse(ast.Compare(left, [_COMPARISONS[type(operator)]()], right))
        case ast.BinOp(left=left, op=operator, right=other) if type(operator) in _ARITHMETIC and not _is_text(node):
            yield "arithmetic", node, ast.unparse(ast.BinOp(left, _ARITHMETIC[type(operator)](), other))
        case ast.AugAssign(target=target, op=operator, value=value) if type(operator) in _ARITHMETIC and not _is_text(
            value
        ):
            yield "arithmetic", node, ast.unparse(ast.AugAssign(target, _ARITHMETIC[type(operator)](), value))
        case ast.Constant(value=bool() as truth):
            yield "number", node, str(not truth)
        case ast.Constant(value=int() | float() as number):
            yield "number", node, repr(number + 1)
        case ast.BoolOp(op=operator, values=values):
            swapped = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "boolean", node, ast.unparse(ast.BoolOp(swapped, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "boolean", node, ast.unparse(operand)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):  # these have changes of their own
                yield "boolean", test, ast.unparse(ast.UnaryOp(ast.Not(), test))
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", value, "None"
        case ast.Call(func=function, args=arguments, keywords=keywords):
            for number, keyword in enumerate(keywords):
                if keyword.arg is not None and keyword.arg not in WITHOUT_EFFECT:
                    others = keywords[:number] + keywords[number + 1 :]
                    yield "argument", node, ast.unparse(ast.Call(function, arguments, others))


def _is_text(node: ast.AST) -> bool:
    """Returns whether a text stands in a sum."""
    return any(
        isinstance(part, ast.JoinedStr) or (isinstance(part, ast.Constant) and isinstance(part.value, str | bytes))
        for part in ast.walk(node)
    )


def _expressions(  # noqa: C901 - a table
    node: ast.AST, head: tuple[int, int] | None, *, at_import: bool
) -> Iterator[tuple[ast.AST, tuple[int, int], bool]]:
    """Yields nodes that may be changed, with the lines of their statements, and whether they run at import."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Raise() | ast.Assert() | ast.JoinedStr():
            return
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Call(func=ast.Name(id="print" | "derive_seed" | "TypeVar")):
            return
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return
        case ast.If(test=test) if ast.unparse(test).endswith("TYPE_CHECKING"):
            return
    if isinstance(node, ast.stmt):
        body = getattr(node, "body", None)
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        head = (node.lineno, max(node.lineno, last))
    if head is not None:
        yield node, head, at_import
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "type_comment"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                inside = name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from _expressions(child, head, at_import=at_import and not inside)


def of_file(root: Path, file: str) -> list[Mutant]:
    """Returns all mutants of a file."""
    source = (root / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, lines, at_import in _expressions(ast.parse(source), None, at_import=True):
        for kind, old, after in _changes(node):
            assert isinstance(old, ast.expr | ast.stmt)  # noqa: S101 - both have places
            assert old.end_lineno is not None and old.end_col_offset is not None  # noqa: S101, PT018 - of parsed source
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[old.end_lineno - 1] + old.end_col_offset
            text = after if isinstance(old, ast.stmt) else f"({after})"
            before = " ".join(source[start:end].decode().split())
            found.append(Mutant(file, lines, old.lineno, kind, before, text, at_import, start, end))
    return found


def drawn(root: Path, seed: int) -> Iterator[Mutant]:
    """Yields mutants without end, no line twice.

    Args:
      root: of the repository.
      seed: of the draw.
    """
    lines: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for folder in FOLDERS:
        for directory, _, names in sorted(os.walk(root / folder)):
            for name in sorted(names):
                if name.endswith(".py"):
                    for mutant in of_file(root, Path(directory, name).relative_to(root).as_posix()):
                        lines[mutant.file, mutant.line].append(mutant)
    random = np.random.Generator(np.random.Philox(seed))
    places = sorted(lines)
    for place in random.permutation(len(places)).tolist():
        choices = lines[places[place]]
        mutant = choices[int(random.integers(len(choices)))]
        try:
            compile(mutant.applied((root / mutant.file).read_bytes()), mutant.file, "exec", dont_inherit=True)
        except SyntaxError:  # such as a name that a match statement binds
            continue
        yield mutant
