"""Who played the games on record: games of two different players must not be counted as one's."""

import json
from collections.abc import Mapping

from dfc import multihost
from dfc.errors import RunFolderError
from dfc.files import write_json
from dfc.runs.run_folder import RunFolder

_FILE = "policies.json"


def refuse_others(folder: RunFolder, found: Mapping[str, str]) -> None:
    """Notes who plays, or compares with who has played before.

    `found` is what identifies each player (`dfc.rollout.trained_weights.identities`), by name, and each file whose
    texts take the place of a player's; if empty, nothing is written.

    Raises:
      RunFolderError: a player is not the one that played the games on record.
    """
    path, changed = folder.path / _FILE, []
    if folder.writes and path.exists():
        stored = json.loads(path.read_bytes())
        changed = [name for name in found if stored.get(name) != found[name]]
    elif folder.writes and found:
        write_json(path, dict(found), indent=2)
    if changed := multihost.broadcast(changed):
        raise RunFolderError(
            f"{path}: {', '.join(changed)} is not the policy that played the games on record, its weights (or, of a "
            "file, its texts) have changed; put the old ones back, or give another --workdir"
        )
