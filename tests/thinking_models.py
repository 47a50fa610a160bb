"""The bundled model with a chat template that looks at ``enable_thinking``: without it a prompt ends in a sign."""

import json
import shutil
from pathlib import Path

from dfc.models import huggingface

SIGN = "!"
_LOOK = "{%- if not enable_thinking | default(true) and add_generation_prompt -%}{{- '!' -}}{%- endif -%}"


def write(folder):
    """Writes it and returns the folder."""
    source = Path(huggingface.resolve("tiny_player"))
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.suffix in (".json", ".safetensors", ".jinja"):
            shutil.copy(file, folder)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().rstrip() + _LOOK)
    return folder


def write_run(run, *, enable_thinking, recipe="sft"):
    """Writes a finished run of it that told its template something; returns the run's folder."""
    write(run / "policy")
    said = {"path": "tiny_player", "enable_thinking": enable_thinking}
    (run / "config.json").write_text(json.dumps({"recipe": recipe, "model": said}))
    return run
