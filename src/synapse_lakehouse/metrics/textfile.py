"""Write the metrics to a file that the textfile collector of node_exporter reads."""

from pathlib import Path
from tempfile import NamedTemporaryFile


def write_textfile(path: Path, metrics: str) -> None:
    """Replace the file ``path``, so that a reader sees the whole old content or the whole new content.

    All users may read the file, because node_exporter runs as another user.
    """
    with NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", encoding="utf-8", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(metrics)
            file.close()
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
