"""``lakehouse compress``: fewer rows for the same room state, planned, applied to Synapse's database and verified."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from synapse_lakehouse.cli import output
from synapse_lakehouse.config.settings import Settings

if TYPE_CHECKING:
    from synapse_lakehouse.compressor.settings import CompressorSettings

app = typer.Typer(
    help="Give back the space that room state takes in Synapse's database, without changing any state.",
    no_args_is_help=True,
)

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
    from synapse_lakehouse.compressor.algorithm.layout import Strategy

    if text is not None and text not in list(Strategy):
        raise typer.BadParameter(f"{text!r} is not {' or '.join(Strategy)}")
    return text


Rooms = Annotated[
    list[str] | None,
    typer.Option("--room", help="A room's id, may be repeated; those with the most uncompressed state if omitted."),
]
StrategyOption = Annotated[
    str | None,
    typer.Option("--strategy", callback=_strategy, help="levels, as Synapse's own compressor, or best: fewest rows."),
]
LevelsOption = Annotated[
    str | None, typer.Option("--levels", callback=_levels, help="Sizes of the levels, such as 100,50,25.")
]
MaxChain = Annotated[int | None, typer.Option(min=1, help="For best: most groups to read for the state of one.")]
ChunkSize = Annotated[int | None, typer.Option(min=1, help="For levels: groups that are worked on at once.")]
NumberOfRooms = Annotated[int | None, typer.Option(min=1, help="How many rooms to take, if --room names none.")]


def _configured(settings: Settings, **given: object) -> "CompressorSettings":
    from synapse_lakehouse.compressor.settings import load_compressor_settings

    changes = {f"lakehouse_compressor_{name}": str(value) for name, value in given.items() if value is not None}
    if given.get("number_of_rooms") is not None:
        # Whoever says how many wants the largest, not those that are configured.
        changes["lakehouse_compressor_rooms"] = "[]"
    return load_compressor_settings(settings.model_copy(update=changes))


@contextmanager
def _source(given: Settings) -> Iterator[Settings]:
    """Settings with the database to read: SYNAPSE_DSN, or the sample."""
    from synapse_lakehouse.local.services import connect_services

    if given.synapse_dsn:
        yield given
    else:
        with connect_services(given) as settings:
            yield settings


@app.callback()
def compress() -> None:
    """Give back the space that room state takes in Synapse's database, without changing any state."""


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
    """Show what compressing rooms of SYNAPSE_DSN would come to. Nothing is written anywhere."""
    from synapse_lakehouse.cli.compression import compress_actions

    with _source(Settings()) as settings:
        wanted = _configured(
            settings, strategy=strategy, default_levels=levels, max_chain=max_chain, chunk_size=chunk_size,
            number_of_rooms=number_of_rooms,
        )  # fmt: skip
        compress_actions.plan(settings, wanted, room or [], format)


@app.command()
def apply(
    room: Rooms = None,
    strategy: StrategyOption = None,
    levels: LevelsOption = None,
    max_chain: MaxChain = None,
    chunk_size: ChunkSize = None,
    number_of_rooms: NumberOfRooms = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only the plan is shown.")] = False,
    hand_over_unreferenced: Annotated[
        bool,
        typer.Option("--hand-over-unreferenced", help="Also let Synapse delete groups that nothing needs any more."),
    ] = False,
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """Compress rooms of SYNAPSE_WRITE_DSN, beside a Synapse that goes on working; resumes what was stopped.

    What was there is kept in LAKEHOUSE_HOME/compression/undo. Every group is read again and compared: a room that does
    not resolve as before is put back, and the command fails. Where there is a lake, it records each room.
    """
    from synapse_lakehouse.cli.compression import compress_actions
    from synapse_lakehouse.local.child_processes import interrupt_on_signals

    settings = Settings()
    wanted = _configured(
        settings, strategy=strategy, default_levels=levels, max_chain=max_chain, chunk_size=chunk_size,
        number_of_rooms=number_of_rooms,
    )  # fmt: skip
    try:
        with interrupt_on_signals():
            compress_actions.apply(
                settings, wanted, room or [], format, yes=yes, hand_over_unreferenced=hand_over_unreferenced
            )
    except KeyboardInterrupt:
        output.echo("Stopped. Every state is as it was; run the same command again to go on from here.", err=True)
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def verify(
    room: Annotated[list[str] | None, typer.Option("--room", help="A room's id, may be repeated.")] = None,
    undo: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="An undo file to compare with, may be repeated."),
    ] = None,
    strategy: StrategyOption = None,
    max_chain: Annotated[int | None, typer.Option(min=1, help="Longest chain that is right; 100 for best.")] = None,
    number_of_rooms: NumberOfRooms = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """Examine how rooms of SYNAPSE_DSN are stored, and with an undo file whether they resolve as before; 1 if not.

    Takes the largest rooms, or those named or of the undo files.
    """
    from synapse_lakehouse.cli.compression import compress_actions

    with _source(Settings()) as settings:
        wanted = _configured(settings, strategy=strategy, max_chain=max_chain, number_of_rooms=number_of_rooms)
        is_right = compress_actions.verify(
            settings, wanted, room or [], undo or [], format, any_strategy=max_chain is not None
        )
    raise typer.Exit(0 if is_right else 1)


@app.command()
def undo(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Undo files, in any order.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only what would be done is said.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Also where a group resolves otherwise now: for a room that verify named.")
    ] = False,
) -> None:
    """Put rooms of SYNAPSE_WRITE_DSN back as undo files have them, where they still resolve to the same.

    Where there is a lake, it records each room.
    """
    from synapse_lakehouse.cli.compression import compress_actions

    compress_actions.undo(Settings(), files, yes=yes, repair=repair)


@app.command()
def history(
    room: Annotated[
        list[str] | None, typer.Option("--room", help="A room's id, may be repeated; all if omitted.")
    ] = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """Show what compressing gave back, by hand and by schedule, run by run and room by room, and what reading costs."""
    from synapse_lakehouse.cli.compression import history as compression_history

    compression_history.show_history(room or [], format)
