"""Models of the Hub of Hugging Face: their files in the Hub's own cache on this machine, one commit at a time.

Files are asked for by their exact names in the top folder: configuration, tokenizer, safetensors. Pickled files, code
and sub-folders are never downloaded. The Hub's client finds the cache (``HF_HOME``), the address
(``HF_ENDPOINT``), whether to stay offline (``HF_HUB_OFFLINE``) and the token (``HF_TOKEN``, or a login of ``hf auth``)
in the environment.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dfc.config import hub_names
from dfc.errors import WeightsError, cut
from dfc.models import model_folders

_T = TypeVar("_T")
_OFFLINE = "connect, or name a folder with the model; with HF_HUB_OFFLINE set nothing is asked for"


def revision(path: str) -> str:
    """Returns the commit that a name on the Hub means now; asks the Hub unless the name holds a commit.

    Raises:
      WeightsError: there is no such model or revision, it may not be read, or the Hub cannot be reached.
    """
    name, wanted = hub_names.split(path)
    return wanted if hub_names.is_pinned(path) else str(_listing(name, wanted).sha)


@functools.lru_cache(maxsize=64)
def folder(path: str, *, weights: bool = True) -> Path:
    """Returns the folder of a model of the Hub, downloaded where it is not in the cache yet.

    Of a name with a commit the Hub is not needed once the files are in the cache. `path` is ``ORG/NAME`` or
    ``ORG/NAME@REVISION``; `weights` False: everything but the weights.

    Raises:
      WeightsError: see `revision`; the model has no safetensors, or a file's name in its index leads elsewhere.
    """
    name, _ = hub_names.split(path)
    try:
        listing = _listing(name, hub_names.split(path)[1])
    except WeightsError:
        cached = _cached(path, weights=weights) if hub_names.is_pinned(path) else None
        if cached is None:
            raise
        return cached
    held = {file.rfilename for file in listing.siblings or ()}
    if model_folders.CONFIG not in held:
        raise WeightsError(f"{name} on the Hub has no {model_folders.CONFIG}: expected a model in safetensors")
    get = functools.partial(_file, name, str(listing.sha))
    found = get(model_folders.CONFIG).parent
    for file in model_folders.TOKENIZER_FILES:
        if file in held:
            get(file)
    if not weights:
        return found
    if model_folders.SINGLE in held:
        get(model_folders.SINGLE)
    elif model_folders.INDEX in held:
        get(model_folders.INDEX)
        for file in model_folders.weight_files(found):
            get(file)
    else:
        others = ", ".join(sorted(file for file in held if file.endswith((".bin", ".pt", ".gguf"))))
        raise WeightsError(
            f"{name} on the Hub has neither {model_folders.SINGLE} nor {model_folders.INDEX}"
            f"{f', but {cut(ascii(others))}' if others else ''}; only safetensors are read"
        )
    return found


def _cached(path: str, *, weights: bool) -> Path | None:
    """Returns the folder of a commit if the cache holds all that playing needs."""
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - takes half a second

    name, commit = hub_names.split(path)
    config = try_to_load_from_cache(name, model_folders.CONFIG, revision=commit)
    if not isinstance(config, str):
        return None
    found = Path(config).parent
    try:
        whole = not weights or all((found / file).is_file() for file in model_folders.weight_files(found))
    except WeightsError:
        return None
    return found if whole else None


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


@functools.lru_cache(maxsize=64)
def _listing(name: str, wanted: str) -> Any:  # noqa: ANN401 - the client's description of a repository
    from huggingface_hub import HfApi  # noqa: PLC0415 - takes half a second

    return _asked(name, wanted, lambda: HfApi(endpoint=_endpoint()).model_info(name, revision=wanted, timeout=30.0))


def _file(name: str, commit: str, file: str) -> Path:
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - takes half a second

    return _asked(
        name, commit, lambda: Path(hf_hub_download(name, file, revision=commit, endpoint=_endpoint())), f"{file} of "
    )


def _asked(name: str, wanted: str, ask: Callable[[], _T], what: str = "") -> _T:
    """Returns the Hub's answer; turns every failure into one sentence with what to do."""
    from huggingface_hub import errors  # noqa: PLC0415 - takes half a second

    model, where = f"{what}{name}", _endpoint() or "https://huggingface.co"
    try:
        return ask()
    except errors.GatedRepoError as error:
        raise WeightsError(
            f"{model}: its publisher asks readers to accept terms: do so at {where}/{name}, and set HF_TOKEN to a "
            "token of that account"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise WeightsError(
            f"{model}: there is no such folder here ({Path.cwd()}) and no such model at {where}; correct the name, or "
            "set HF_TOKEN if the model is private"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise WeightsError(
            f"{model}: has no revision {wanted!r} at {where}/{name}; name a branch, tag or commit"
        ) from error
    except Exception as error:  # of the client, of one of two HTTP libraries, or of the file system
        status = getattr(getattr(error, "response", None), "status_code", None)
        came = cut(" ".join(f"{type(error).__name__}: {error}".split()), 300)
        if status is not None:
            raise WeightsError(f"{model}: {where} answered with status {status} ({came}); try again later") from error
        raise WeightsError(
            f"{model}: there is no such folder here ({Path.cwd()}), and {where} cannot be reached ({came}); {_OFFLINE}"
        ) from error
