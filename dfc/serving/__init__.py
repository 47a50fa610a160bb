"""A policy behind OpenAI's chat completions: requests join and leave one engine between its calls.

Needs the extra ``serve``: ``pip install "dfc[serve]"``.
"""

import importlib.util

_PACKAGES = ("starlette", "uvicorn", "prometheus_client")

if _missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
    raise ImportError(
        f'serving a policy needs {" and ".join(_missing)}: pip install "dfc[serve]", or in a clone of the repository '
        'pip install -e ".[serve]"'
    )
