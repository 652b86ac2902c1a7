#!/bin/sh
# A grid as an array job of Slurm, a shard for each task:
#
#     sbatch --array=1-16 fullpipe-grid.sh simulate -r 10ms..200ms --bandwidth 100M,1G -C cubic,bbr
#     fullpipe store import fullpipe-grid-JOB/*.json --store grid.db
#     fullpipe simulate -r 10ms..200ms --bandwidth 100M,1G -C cubic,bbr --fill grid.db
#
# Each task leaves one file in the folder fullpipe-grid-JOB, whole or not at all. A task that was killed is done again,
# it alone: `scontrol requeue JOB_TASK`. What came twice, the archive has once; what is missing, the last line computes.
# FULLPIPE names the program, if it is not in PATH. `lab grid --virtual` is another such command.
#SBATCH --job-name=fullpipe-grid
#SBATCH --output=fullpipe-grid-%A_%a.log
#SBATCH --requeue
set -eu

task="${SLURM_ARRAY_TASK_ID:?sbatch --array=1-N runs this}"
if [ "$SLURM_ARRAY_TASK_MIN" != 1 ] || [ "$SLURM_ARRAY_TASK_MAX" != "$SLURM_ARRAY_TASK_COUNT" ]; then
    echo "write --array=1-N: tasks $SLURM_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX are no shards" >&2
    exit 2
fi

folder="fullpipe-grid-$SLURM_ARRAY_JOB_ID"
part="$folder/.shard-$task.$$"
mkdir -p "$folder"
trap 'rm -f "$part"' EXIT
"${FULLPIPE:-fullpipe}" "$@" --shard "$task/$SLURM_ARRAY_TASK_COUNT" --json >"$part"
mv "$part" "$folder/shard-$task.json"
