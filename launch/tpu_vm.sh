#!/usr/bin/env bash
# Runs dfc on every host of a Cloud TPU VM slice, as one run.
#
#   launch/tpu_vm.sh install TPU ZONE            copies this checkout to every host and installs it there
#   launch/tpu_vm.sh run     TPU ZONE FLAGS...   starts the run on every host; FLAGS are those of python -m dfc.launch
#   launch/tpu_vm.sh stop    TPU ZONE            asks the run to save and stop; one host tells the others
#
# Example: launch/tpu_vm.sh run my-tpu us-central2-b --config=my.py --workdir=/mnt/runs/my
#
# The slice exists already (gcloud compute tpus tpu-vm create), and --workdir lies on a disk that is mounted at the same
# place on every host; a relative path in FLAGS starts at ~/dfc there. JAX finds the hosts of the slice by itself.
set -euo pipefail

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" >&2
  exit 2
}

[[ $# -ge 3 ]] || usage
action=$1 tpu=$2 zone=$3
shift 3

on() { # on WORKER COMMAND: runs a command on one host ("all": on every host at the same time)
  gcloud compute tpus tpu-vm ssh "$tpu" --zone="$zone" --worker="$1" --command="$2"
}

case $action in
  install)
    checkout=$(cd "$(dirname "$0")/.." && pwd -P)
    archive=$(mktemp --suffix=.tar.gz)
    trap 'rm -f "$archive"' EXIT
    git -C "$checkout" archive --format=tar.gz --output="$archive" HEAD # what is committed, and nothing else
    gcloud compute tpus tpu-vm scp "$archive" "$tpu:dfc.tar.gz" --zone="$zone" --worker=all
    # shellcheck disable=SC2016 # HOME is the host's
    on all 'rm -rf ~/dfc && mkdir ~/dfc && tar -xzf ~/dfc.tar.gz -C ~/dfc &&
      python3 -m venv ~/dfc/.venv && ~/dfc/.venv/bin/pip install --quiet -e "$HOME/dfc[tpu]"'
    ;;
  run)
    [[ $# -gt 0 ]] || usage
    # The shell becomes the run, so the number it leaves is the run's own.
    on all "cd ~/dfc && echo \$\$ > ~/dfc.pid && exec .venv/bin/python -m dfc.launch --distributed=auto ${*@Q}"
    ;;
  stop)
    # shellcheck disable=SC2016 # the host's file, not this machine's
    on 0 'kill -TERM "$(cat ~/dfc.pid)"'
    ;;
  *) usage ;;
esac
