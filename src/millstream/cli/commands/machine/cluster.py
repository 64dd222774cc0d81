"""`millstream cluster`: a Spark standalone cluster on this machine, to run flows on executors in other processes."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from millstream.cli.exit_codes import ExitCode
from millstream.cli.options import check_memory
from millstream.cli.output import plural
from millstream.errors import DefinitionError
from millstream.units import format_bytes

DEFAULT_DIR = "millstream-cluster"
dir_option = click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=DEFAULT_DIR,
    help=f"The directory for the logs and process ids of the cluster.  [default: ./{DEFAULT_DIR}]",
)


@click.group(short_help="Start and end a Spark cluster on this machine.")
def command() -> None:
    """Start and end a Spark standalone cluster on this machine.

    Its master and workers are processes of their own and listen on loopback only. docs/guide/cluster.md describes what
    runs where, and clusters of several machines.

    \b
    Examples:
      millstream cluster up --workers 2            start it; prints the address of its master
      millstream run flow.py --master spark://127.0.0.1:7077
      millstream cluster status                    processes, workers and applications
      millstream cluster down                      end it
      millstream cluster pack environment.tar.gz   the Python environment, for executors that do not have it
    """  # noqa: D301 - click reads the control character \b


@command.command(short_help="Start a master and workers.")
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="The number of workers.")
@click.option("--cores", type=click.IntRange(1, 1024), default=1, show_default=True, help="The cores of each worker.")
@click.option(
    "--memory",
    metavar="SIZE",
    default="1g",
    show_default=True,
    callback=check_memory,
    help="The memory for the executors of each worker.",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="The port of the master.  [default: the first free one from 7077]"
)
@dir_option
def up(workers: int, cores: int, memory: str, port: int | None, folder: Path) -> None:
    """Start a master and workers, detached, and wait until all workers are registered.

    \b
    Examples:
      millstream cluster up
      millstream cluster up --workers 4 --cores 2 --memory 2g --dir /data/cluster
    """  # noqa: D301 - click reads the control character \b
    from millstream.engine.spark import local_cluster

    click.echo(f"starting a master and {plural(workers, 'worker')} ...", err=True)
    cluster = local_cluster.up(folder, workers=workers, cores=cores, memory=memory, port=port)
    click.echo(cluster.url)
    more = "" if str(folder) == DEFAULT_DIR else f" --dir {shlex.quote(str(folder))}"
    for line in (
        f"millstream run flow.py --master {cluster.url}",
        f"millstream cluster status{more}",
        f"millstream cluster down{more}",
    ):
        click.echo(f"  {line}", err=True)


@command.command(short_help="Show the processes, workers and applications.")
@dir_option
def status(folder: Path) -> None:
    """Show the processes of the cluster, its live workers, and the applications that use it.

    Ends with code 1 if a process has ended, or a worker is not registered.

    \b
    Examples:
      millstream cluster status
      millstream cluster status --dir /data/cluster
    """  # noqa: D301 - click reads the control character \b
    from millstream.engine.spark import local_cluster

    cluster = local_cluster.read(folder)
    if cluster is None:
        raise _not_running(folder)
    running = cluster.running
    page = local_cluster.page(cluster) if running else None
    alive = local_cluster.registered(page)
    click.echo(f"{cluster.url}: {len(alive)} of {plural(cluster.workers, 'worker')} registered")
    for member in cluster.members:
        state = "running" if member in running else "ended"
        log = local_cluster.log_of(folder, member.name)
        click.echo(f"  {member.name}: {state}, process {member.pid}, log {log}")
    for app in page.get("activeapps", ()) if page is not None else ():
        click.echo(f"  application {app.get('name')}: {plural(int(app.get('cores', 0)), 'core')}, {app.get('state')}")
    if len(running) < len(cluster.members) or len(alive) < cluster.workers:
        click.echo("hint: `millstream cluster down`, then `millstream cluster up`; flows resume", err=True)
        click.get_current_context().exit(ExitCode.FAILED)


@command.command(short_help="End the cluster.")
@dir_option
def down(folder: Path) -> None:
    """End the processes that `up` started, and no others. Flows that use the cluster fail, and lose nothing.

    \b
    Examples:
      millstream cluster down
      millstream cluster down --dir /data/cluster
    """  # noqa: D301 - click reads the control character \b
    from millstream.engine.spark import local_cluster

    ended = local_cluster.down(folder)
    names = ", ".join(m.name for m in ended)
    click.echo(f"ended {names}" if ended else f"no cluster is running in {folder.absolute()}")


@command.command(short_help="Pack the Python environment for executors.")
@click.argument("archive", metavar="ARCHIVE.tar.gz", type=click.Path(path_type=Path))
@click.option("--lean", is_flag=True, help="Pack only Millstream and its dependencies.")
@click.option(
    "--with", "more", metavar="PACKAGE", multiple=True, help="With --lean: an additional package; may be repeated."
)
def pack(archive: Path, lean: bool, more: tuple[str, ...]) -> None:
    """Pack this Python environment, with the interpreter, into an archive for executors.

    Set `executor_environment` to the archive, in millstream.toml or MILLSTREAM_EXECUTOR_ENVIRONMENT. Spark then sends
    it to every executor, and no Python has to be installed there.

    \b
    Examples:
      millstream cluster pack environment.tar.gz
      millstream cluster pack environment.tar.gz --lean --with scikit-learn
      MILLSTREAM_EXECUTOR_ENVIRONMENT=environment.tar.gz millstream run flow.py --master spark://host:7077
    """  # noqa: D301 - click reads the control character \b
    from millstream.engine.spark.environment import pack as packed
    from millstream.settings import EXECUTOR_ENVIRONMENT

    EXECUTOR_ENVIRONMENT.read(archive)  # refuses another name
    click.echo("packing the environment; this takes a minute ...", err=True)
    done = packed(archive, lean=lean, more=more)
    click.echo(f"{done.path}: {format_bytes(done.bytes)}, {plural(done.distributions, 'package')}")
    click.echo(f"  export MILLSTREAM_EXECUTOR_ENVIRONMENT={shlex.quote(str(archive.absolute()))}", err=True)


def _not_running(folder: Path) -> DefinitionError:
    return DefinitionError(
        f"no cluster is running in {folder.absolute()}", hint="start one: `millstream cluster up`; or name its --dir"
    )
