"""``lakehouse compress``: plan, apply, verify and undo the compression of room state."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from synapse_lakehouse.cli import output
from synapse_lakehouse.config.settings import Settings

if TYPE_CHECKING:
    from synapse_lakehouse.compressor.settings import CompressorSettings

app = typer.Typer(help="Store the same room state in fewer rows of Synapse's database.", no_args_is_help=True)

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""


def _levels(text: str | None) -> str | None:
    from synapse_lakehouse.compressor.algorithm.level_sizes import parse_levels

    try:
        if text is not None:
            parse_levels(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def _strategy(text: str | None) -> str | None:
    from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy

    if text is not None and text not in list(Strategy):
        raise typer.BadParameter(f"{text!r} is not {' or '.join(Strategy)}")
    return text


Rooms = Annotated[
    list[str] | None,
    typer.Option(
        "--room",
        help="ID of a room; repeatable. Default: the rooms of LAKEHOUSE_COMPRESSOR_ROOMS or, if it is not set, the "
        "rooms with the most uncompressed state.",
    ),
]
StrategyOption = Annotated[
    str | None,
    typer.Option(
        "--strategy", callback=_strategy, help="levels: the method of Synapse's own compressor; best: fewer rows."
    ),
]
LevelsOption = Annotated[
    str | None,
    typer.Option("--levels", callback=_levels, help="Strategy levels: sizes of the levels, such as 100,50,25."),
]
MaxChain = Annotated[int | None, typer.Option(min=1, help="Strategy best: maximum number of state groups in a chain.")]
ChunkSize = Annotated[
    int | None, typer.Option(min=1, help="Strategy levels: number of state groups that are compressed at once.")
]
NumberOfRooms = Annotated[int | None, typer.Option(min=1, help="Number of rooms to select if --room is not used.")]


def _configured(settings: Settings, **options: object) -> "CompressorSettings":
    from synapse_lakehouse.compressor.settings import load_compressor_settings

    overrides = {f"lakehouse_compressor_{name}": str(value) for name, value in options.items() if value is not None}
    if options.get("number_of_rooms") is not None:
        # If a number of rooms is given, take the largest rooms instead of the configured rooms.
        overrides["lakehouse_compressor_rooms"] = "[]"
    return load_compressor_settings(settings.model_copy(update=overrides))


@contextmanager
def _source(initial: Settings) -> Iterator[Settings]:
    """Yield settings with a database to read: SYNAPSE_DSN, or the sample."""
    from synapse_lakehouse.local.services import connect_services

    if initial.synapse_dsn:
        yield initial
    else:
        with connect_services(initial) as settings:
            yield settings


@app.callback()
def compress() -> None:
    """Store the same room state in fewer rows of Synapse's database."""


@app.command()
def plan(
    room: Rooms = None,
    strategy: StrategyOption = None,
    levels: LevelsOption = None,
    max_chain: MaxChain = None,
    chunk_size: ChunkSize = None,
    number_of_rooms: NumberOfRooms = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """Plan the compression of rooms of the database SYNAPSE_DSN. Nothing is written."""
    from synapse_lakehouse.cli.compression import compress_actions

    with _source(Settings()) as settings:
        options = _configured(
            settings, strategy=strategy, default_levels=levels, max_chain=max_chain, chunk_size=chunk_size,
            number_of_rooms=number_of_rooms,
        )  # fmt: skip
        compress_actions.plan(settings, options, room or [], format)


@app.command()
def apply(
    room: Rooms = None,
    strategy: StrategyOption = None,
    levels: LevelsOption = None,
    max_chain: MaxChain = None,
    chunk_size: ChunkSize = None,
    number_of_rooms: NumberOfRooms = None,
    yes: Annotated[bool, typer.Option("--yes", help="Apply the plan; default: only show it.")] = False,
    hand_over_unreferenced: Annotated[
        bool,
        typer.Option(
            "--hand-over-unreferenced", help="Also mark unreferenced state groups, so that Synapse deletes them."
        ),
    ] = False,
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """Compress rooms of the database SYNAPSE_WRITE_DSN while Synapse is running.

    After an interruption, the same command resumes. For each room, the command writes undo files to
    LAKEHOUSE_HOME/compression/undo, and compresses the room. It then reads the room's state groups again and compares
    their states with the states before the compression. If a state changed, the command restores the room, and fails.
    The result of each room is recorded in the lake, if there is a lake.
    """
    from synapse_lakehouse.cli.compression import compress_actions
    from synapse_lakehouse.local.child_processes import interrupt_on_signals

    settings = Settings()
    options = _configured(
        settings, strategy=strategy, default_levels=levels, max_chain=max_chain, chunk_size=chunk_size,
        number_of_rooms=number_of_rooms,
    )  # fmt: skip
    try:
        with interrupt_on_signals():
            compress_actions.apply(
                settings, options, room or [], format, yes=yes, hand_over_unreferenced=hand_over_unreferenced
            )
    except KeyboardInterrupt:
        output.echo("Stopped. No state changed. Run the same command again to continue.", err=True)
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def verify(
    room: Annotated[list[str] | None, typer.Option("--room", help="ID of a room; repeatable.")] = None,
    undo: Annotated[
        list[Path] | None, typer.Option(exists=True, dir_okay=False, help="An undo file to compare with; repeatable.")
    ] = None,
    strategy: StrategyOption = None,
    max_chain: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of state groups in a chain. Default: 100 for best, none for levels."),
    ] = None,
    number_of_rooms: NumberOfRooms = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """Check how the database SYNAPSE_DSN stores the state of rooms. With --undo, also check that no state changed.

    Exit code 1: there are faults. Without --room and --undo, the largest rooms are verified.
    """
    from synapse_lakehouse.cli.compression import compress_actions

    with _source(Settings()) as settings:
        options = _configured(settings, strategy=strategy, max_chain=max_chain, number_of_rooms=number_of_rooms)
        is_correct = compress_actions.verify(
            settings, options, room or [], undo or [], format, any_strategy=max_chain is not None
        )
    raise typer.Exit(0 if is_correct else 1)


@app.command()
def undo(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Undo files, in any order.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Restore the state groups; default: only show which rooms would be restored.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Also restore groups whose state has changed since the compression, in a room that `verify` reported "
            "as wrong.",
        ),
    ] = False,
) -> None:
    """Restore rooms of the database SYNAPSE_WRITE_DSN from undo files.

    The command skips state groups whose state differs from their state in the undo files. The result of each room is
    recorded in the lake, if there is a lake.
    """
    from synapse_lakehouse.cli.compression import compress_actions

    compress_actions.undo(Settings(), files, yes=yes, repair=repair)


@app.command()
def history(
    room: Annotated[
        list[str] | None, typer.Option("--room", help="ID of a room; repeatable. Default: all rooms.")
    ] = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """Show the space that compressions freed, by run and by room. For rooms, also show chain lengths and read times."""
    from synapse_lakehouse.cli.compression import history as compression_history

    compression_history.show_history(room or [], format)
