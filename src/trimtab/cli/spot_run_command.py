"""`trimtab spot-run`: run any program through interruptions."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--notice", "notice_source", default="auto", show_default=True, metavar="auto|aws|gcp|azure|none|FILE",
              help="Where interruptions are announced; a FILE announces one by appearing.")  # fmt: skip
@click.option("--signal", "signal_name", default="TERM", show_default=True, metavar="NAME",
              help="What the program is sent on a notice; 'none' for only the file in TRIMTAB_NOTICE_FILE.")  # fmt: skip
@click.option("--grace", metavar="SPAN", help="Give the program at most this long (20s, 2m) of what the notice leaves.")
@click.option("--exit-code", default=75, show_default=True, type=click.IntRange(1, 255),
              help="Exit code after an interruption, for the scheduler's requeue rule.")  # fmt: skip
@click.option("--trust-zero", is_flag=True,
              help="If the program ends with 0 after a notice, it was done: exit with 0.")  # fmt: skip
@click.option("--restarts", default=0, show_default=True, type=click.IntRange(0),
              help="Start the program again here after so many crashes, with doubling pauses.")  # fmt: skip
@click.option("--restart-delay", default="5s", show_default=True, metavar="SPAN", help="The first of these pauses.")
@click.option("--slurm-requeue", is_flag=True, help="After an interruption run `scontrol requeue` for this Slurm job.")
@click.option("-v", "--verbose", is_flag=True, help="Log what is watched and what happens, on stderr.")
def command(
    program: tuple[str, ...],
    notice_source: str,
    signal_name: str,
    grace: str | None,
    exit_code: int,
    trust_zero: bool,
    restarts: int,
    restart_delay: str,
    slurm_requeue: bool,
    verbose: bool,
) -> int:
    """Run a program on spot capacity: on a notice tell it, wait, and exit so that it is run again.

    The program is sent a signal, and a file named in TRIMTAB_NOTICE_FILE appears with the seconds that are left. A
    job that embeds trimtab.runtime.Checkpointer needs nothing else.

    \b
    Examples:
      trimtab spot-run -- python train.py --epochs 3
      trimtab spot-run --restarts 3 -- torchrun --nproc-per-node 8 train.py
      trimtab spot-run --notice aws --signal USR1 --grace 90s -- ./train.sh
      trimtab spot-run --notice /var/run/drain --exit-code 99 -- python train.py
      trimtab spot-run --slurm-requeue -- srun python train.py      # in an sbatch script
    """
    from trimtab.cli import spot_run_options as options
    from trimtab.runtime.notice.notice import NoticeBoard
    from trimtab.runtime.spot_run import SpotRunSettings, spot_run

    options.log_to_stderr(verbose)
    settings = SpotRunSettings(
        signal_number=options.signal_number(signal_name),
        grace_s=None if grace is None else options.seconds(grace, "--grace"),
        exit_code=exit_code,
        trust_zero=trust_zero,
        restarts=restarts,
        restart_delay_s=options.seconds(restart_delay, "--restart-delay"),
    )
    board = NoticeBoard()
    with options.watcher(notice_source, board):
        result = spot_run(program, board, settings)
    if result.interrupted and slurm_requeue:
        options.requeue_slurm_job()
    return result.exit_code
