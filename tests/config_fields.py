"""Which fields of a ``config.json`` transformers reads on the way to the logits: ``make config-fields`` writes them.

A field we do not know may be passed over only if nothing reads it; `dfc.models.hf_config_fields` refuses the others.
What is read is searched for in the syntax of transformers' own files, so that nobody's memory decides. The search
takes too many names rather than too few: a name too many is a refusal, a name too few another model.
"""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

LIST = Path(__file__).resolve().parents[1] / "models" / "hf_config_fields_read.json"
# How a model is configured, loaded, built and run; how tokens are sampled from its logits is no part of it.
PLACES = (
    "activations.py",
    "backbone_utils.py",
    "cache_utils.py",
    "configuration_utils.py",
    "conversion_mapping.py",
    "core_model_loading.py",
    "dynamic_module_utils.py",
    "fusion_mapping.py",
    "initialization.py",
    "masking_utils.py",
    "modeling_flash_attention_utils.py",
    "modeling_layers.py",
    "modeling_rope_utils.py",
    "modeling_utils.py",
    "monkey_patching.py",
    "pytorch_utils.py",
    "integrations/*attention*.py",
    "integrations/*paged*.py",
    "integrations/heterogeneity/*.py",
    "integrations/hub_kernels.py",
    "models/gemma3/*.py",
    "models/llama/*.py",
    "models/mistral/*.py",
    "models/qwen2/*.py",
    "models/qwen3/*.py",
    "utils/generic.py",
    "utils/output_capturing.py",
)
_LOOKUPS = ("get", "pop", "setdefault")
_ATTRIBUTE_CALLS = ("getattr", "hasattr", "setattr", "delattr")


def _last_name(node: ast.expr) -> str:
    """Returns what an expression is called at its end: ``config`` of self.config, of config.get_text_config()."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return _last_name(function)
        case ast.Subscript(value=value):
            return _last_name(value)
        case ast.BoolOp(values=values):
            return _last_name(values[0])
    return ""


def _names_a_config(node: ast.expr, *, inside: bool) -> bool:
    """Returns whether an expression stands for a configuration; `inside` one of its classes ``self`` does."""
    name = _last_name(node)
    return "config" in name.lower() or (inside and name in ("self", "cls", "kwargs"))


def _text(node: ast.expr) -> Iterator[str]:
    """Yields the strings an expression holds that could be a field's name."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            yield part.value


def _read_in(node: ast.AST, *, inside: bool) -> Iterator[str]:
    """Yields the fields that one node of the syntax reads."""
    match node:
        case ast.Attribute(value=value, attr=name) if _names_a_config(value, inside=inside):
            if name not in _LOOKUPS:
                yield name
        case ast.Call(func=ast.Name(id=function), args=[value, name, *_]) if function in _ATTRIBUTE_CALLS:
            if _names_a_config(value, inside=inside):
                yield from _text(name)
        case ast.Call(func=ast.Attribute(value=value, attr=function), args=[name, *_]) if function in _LOOKUPS:
            if _names_a_config(value, inside=inside):
                yield from _text(name)
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name))) if _names_a_config(value, inside=inside):
            yield name
        case ast.Compare(left=ast.Constant(value=str(name)), comparators=[value]):
            if _names_a_config(value, inside=inside):
                yield name


def _computed(function: ast.AST, *, inside: bool) -> bool:
    """Returns whether a function reads a configuration by a name that is worked out."""
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Name(id=called), args=[value, name, *_]) if called in _ATTRIBUTE_CALLS:
                if _names_a_config(value, inside=inside) and not isinstance(name, ast.Constant):
                    return True
    return False


def _configures(node: ast.AST) -> bool:
    """Returns whether a class is one of configurations, by its own name or that of a class it is made from."""
    return isinstance(node, ast.ClassDef) and any(
        "Config" in name for name in [node.name, *map(_last_name, node.bases)]
    )


def _declared_by(node: ast.ClassDef) -> Iterator[str]:
    """Yields the fields that the body of a class of configurations declares."""
    for part in node.body:
        match part:
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=value):  # attribute_map: other names of fields
                yield from (name, *_text(value))


def _taken_by(node: ast.FunctionDef, *, inside: bool) -> Iterator[str]:
    """Yields the fields that a function takes by name, and those it may read by a name that is worked out."""
    if inside:
        yield node.name
        if node.args.kwarg:  # it is given fields by their names
            yield from (one.arg for one in (*node.args.args, *node.args.kwonlyargs))
    if _computed(node, inside=inside):
        yield from (name for part in node.body for name in _text(part))


def read_in(source: str) -> set[str]:
    """Returns the fields of configurations that the source of one module reads or declares."""
    found: set[str] = set()

    def check_stop(node: ast.AST, *, inside: bool) -> None:
        found.update(_read_in(node, inside=inside))
        if isinstance(node, ast.ClassDef) and _configures(node):
            inside = True
            found.update(_declared_by(node))
        if isinstance(node, ast.FunctionDef):
            found.update(_taken_by(node, inside=inside))
        for child in ast.iter_child_nodes(node):
            check_stop(child, inside=inside)

    check_stop(ast.parse(source), inside=False)
    return {name for name in found if not name.startswith("__")}


def read_by(package: Path) -> list[str]:
    """Returns the fields that the transformers in a folder reads, in order.

    Raises:
      ValueError: if a place has no file, so that a file that was moved is not missed.
    """
    found: set[str] = set()
    for place in PLACES:
        files = sorted(package.glob(place))
        if not files:
            raise ValueError(f"transformers has no {place} any more: say in PLACES where its contents went")
        for file in files:
            found |= read_in(file.read_text(encoding="utf-8"))
    return sorted(found)


def installed() -> dict[str, object]:
    """Returns the list's contents for the installed transformers."""
    import transformers

    names = read_by(Path(transformers.__file__).parent)
    return {"transformers": transformers.__version__, "read": names}


if __name__ == "__main__":
    LIST.write_text(json.dumps(installed(), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote {LIST}\n")
