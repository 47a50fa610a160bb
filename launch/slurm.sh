#!/usr/bin/env bash
# Runs dfc under Slurm on several GPU hosts, as one run: one process per host, which takes all GPUs of it.
#
#   sbatch --nodes=4 --gpus-per-node=8 launch/slurm.sh --config=my.py --workdir=/shared/runs/my
#
# What follows the script's name goes to python -m dfc.launch; --workdir lies on a disk that all hosts see. Set DFC_PYTHON
# to the Python that dfc is installed in, if it is not the first on PATH.
#
#SBATCH --job-name=dfc
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --open-mode=append
# Five minutes before the time is up every process gets SIGTERM: the run saves and stops, and resumes when it is
# submitted again.
#SBATCH --signal=TERM@300
set -euo pipefail

if [[ -z ${SLURM_JOB_ID:-} || $# -eq 0 ]]; then
  sed -n '2,/^#SBATCH/{/^#SBATCH/d;s/^# \{0,1\}//;p;}' "$0" >&2
  exit 2
fi

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# Jobs that share a first host get ports of their own.
export JAX_COORDINATOR_ADDRESS="${hosts[0]}:$((20000 + SLURM_JOB_ID % 20000))"
export JAX_NUM_PROCESSES=$SLURM_NTASKS
# dfc.launch.fit counts on this share of a GPU's memory; JAX alone takes 75 %.
export XLA_PYTHON_CLIENT_MEM_FRACTION="${XLA_PYTHON_CLIENT_MEM_FRACTION:-0.95}"

# A process that fails takes the others with it at once; otherwise they would wait for it until JAX notices.
# shellcheck disable=SC2016 # SLURM_PROCID has its value inside srun only
exec srun --kill-on-bad-exit=1 --cpu-bind=none bash -c \
  'JAX_PROCESS_ID=$SLURM_PROCID exec "${DFC_PYTHON:-python}" -m dfc.launch --distributed=auto "$@"' dfc "$@"
