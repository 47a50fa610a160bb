"""The scripts for clusters, run with stand-ins for the cluster's commands; the JobSet, read as the file it is."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dfc.launch import command_line, distributed

LAUNCH = Path(__file__).parent.parent / "launch"
# Writes the words it was called with, and the variables that count, as a line of JSON.
NOTE = """#!{python}
import json, os, sys
values = {{name: value for name, value in os.environ.items() if name.startswith("JAX_")}}
with open({calls!r}, "a") as file:
    file.write(json.dumps([{name!r}, sys.argv[1:], values]) + "\\n")
"""


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Puts stand-ins on PATH; returns what was called so far."""
    calls = tmp_path / "calls"
    folder = tmp_path / "bin"
    folder.mkdir()

    def put(name, text):
        (folder / name).write_text(text)
        (folder / name).chmod(stat.S_IRWXU)

    for name in ("gcloud", "python-of-the-run"):
        put(name, NOTE.format(python=sys.executable, calls=str(calls), name=name))
    put("scontrol", '#!/bin/bash\n[[ "$*" == "show hostnames node[07-08]" ]] && printf "node07\\nnode08\\n"\n')
    # One process per host: what srun was asked to run is run once for each, with its number.
    started = 'for i in 0 1; do SLURM_PROCID=$i "$@"; done\n'
    put("srun", f"#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\n{started}")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda: [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []


def script(name, *arguments, **environment):
    return subprocess.run(  # noqa: S603 - our own script
        [str(LAUNCH / name), *arguments], env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_slurm_starts_one_process_per_host_that_know_each_other(commands):
    job = {"SLURM_JOB_ID": "40123", "SLURM_JOB_NODELIST": "node[07-08]", "SLURM_NTASKS": "2"}
    flags = ["--config=my file.py", "--config.rollout.stop=(']',)"]
    done = script("slurm.sh", *flags, DFC_PYTHON="python-of-the-run", **job)
    assert done.returncode == 0, done.stderr
    for index, (_, words, values) in enumerate(commands()):
        assert words == ["-m", "dfc.launch", "--distributed=auto", *flags]
        processes, problems = distributed.read({"distributed": "auto"}, values)
        assert problems == []
        assert processes == distributed.Processes("auto", "node07:20123", 2, index)
    assert len(commands()) == 2


def test_slurm_outside_of_a_job_says_how_to_submit():
    done = script("slurm.sh", "--config=x.py", SLURM_JOB_ID="")
    assert done.returncode == 2
    assert "sbatch --nodes=4" in done.stderr


def test_a_tpu_slice_gets_one_command_on_all_hosts(commands):
    flags = ["--config=my file.py", "--workdir=/mnt/runs/my"]
    assert script("tpu_vm.sh", "run", "my-tpu", "us-central2-b", *flags).returncode == 0
    ((_, words, _),) = commands()
    assert words[:-1] == ["compute", "tpus", "tpu-vm", "ssh", "my-tpu", "--zone=us-central2-b", "--worker=all"]
    command = words[-1].removeprefix("--command=")
    assert command.startswith("cd ~/dfc && echo $$ > ~/dfc.pid && exec .venv/bin/python -m dfc.launch")
    # What the host's shell makes of the last part: the flags as they were given.
    shown = subprocess.run(  # noqa: S603 - our own words
        ["/bin/bash", "-c", f"printf '%s\\n' {command.split('exec ')[1]}"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines() == [".venv/bin/python", "-m", "dfc.launch", "--distributed=auto", *flags]


def test_a_tpu_slice_is_stopped_through_its_first_host(commands):
    assert script("tpu_vm.sh", "stop", "my-tpu", "us-central2-b").returncode == 0
    ((_, words, _),) = commands()
    assert "--worker=0" in words
    assert words[-1] == '--command=kill -TERM "$(cat ~/dfc.pid)"'


def test_a_wrong_action_shows_the_usage():
    done = script("tpu_vm.sh", "start", "my-tpu", "zone")
    assert done.returncode == 2
    assert "launch/tpu_vm.sh install TPU ZONE" in done.stderr


def test_the_jobset_has_a_pod_per_host_and_a_command_the_launcher_takes():
    yaml = pytest.importorskip("yaml")
    jobset = yaml.safe_load((LAUNCH / "gke.yaml").read_text())
    (job,) = jobset["spec"]["replicatedJobs"]
    job = job["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    rows, columns = map(int, pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x"))
    chips = rows * columns
    assert job["parallelism"] == job["completions"] == chips // container["resources"]["limits"]["google.com/tpu"]
    assert container["command"][:3] == ["python", "-m", "dfc.launch"]
    request = command_line.parse(container["command"][3:])
    assert request.processes == distributed.Processes("auto")
    assert command_line.validation.device_problems(request.config, chips) == []
    assert str(request.workdir).startswith(container["volumeMounts"][0]["mountPath"])
    assert pod["volumes"][0]["name"] == container["volumeMounts"][0]["name"]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("name", ["slurm.sh", "tpu_vm.sh"])
def test_shellcheck_finds_nothing(name):
    done = subprocess.run(  # noqa: S603 - our own script
        ["shellcheck", str(LAUNCH / name)],  # noqa: S607 - the one on PATH
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
