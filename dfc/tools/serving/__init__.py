"""A policy behind OpenAI's chat completions: requests join and leave one engine between its calls.

Needs the extra ``serve``: ``pip install "dfc[serve]"``.
"""

import importlib.util

from dfc.commands import shell_line

_PACKAGES = ("starlette", "uvicorn", "prometheus_client", "pydantic")

if _missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
    raise ImportError(
        f"serving a policy needs {' and '.join(_missing)}: {shell_line('pip', 'install', 'dfc[serve]')}, or in a clone "
        f"of the repository {shell_line('pip', 'install', '-e', '.[serve]')}"
    )
