"""A run whose model is named on the Hub keeps to one commit: the one of its first start."""

import dataclasses
from typing import cast

from dfc import multihost
from dfc.config import ModelRunConfig, RunConfig, hub_names
from dfc.models import hub
from dfc.runs.run_folder import RunFolder


def pinned(config: RunConfig, folder: RunFolder) -> RunConfig:
    """Returns the configuration with the commit in `model.path`, the model downloaded and the commit noted.

    The commit is kept in ``versions.json``: a run that resumes takes the same files, whatever the Hub has then.

    Raises:
      WeightsError: the Hub has no such model, or cannot be asked.
    """
    if not isinstance(config, ModelRunConfig) or not hub_names.is_hub_name(config.model.path):
        return config
    path = config.model.path
    name, _ = hub_names.split(path)

    def commit() -> str:
        return (folder.model_commit(path) or hub.revision(path)) if multihost.is_primary() else ""

    found = cast("str", multihost.broadcast(multihost.on_all_hosts(commit)))
    folder.note_model(path, found)
    print(f"{name} at {found}", flush=True)  # noqa: T201 - progress
    whole = f"{name}@{found}"
    multihost.on_all_hosts(lambda: hub.folder(whole))
    return dataclasses.replace(config, model=dataclasses.replace(config.model, path=whole))
