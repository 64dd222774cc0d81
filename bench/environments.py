"""The virtual environments of the peers, made with pip when first needed, kept in bench/.envs."""

from __future__ import annotations

import subprocess
import sys

from bench.cases import Peer


def prepare(peer: Peer) -> None:
    """Make sure that `peer` can run; installs it when its packages changed. Raises SystemExit with pip's last
    words.
    """
    if not peer.packages:
        return
    home = peer.python.parent.parent
    stamp = home / "packages.txt"
    wanted = "\n".join(peer.packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing {', '.join(peer.packages)} into {home}")
    if not peer.python.exists():
        _run([sys.executable, "-m", "venv", str(home)], peer)
    _run([str(peer.python), "-m", "pip", "install", "--quiet", *peer.packages], peer)
    stamp.write_text(wanted)


def _run(command: list[str], peer: Peer) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-8:])
        raise SystemExit(f"{peer.name} cannot be installed; leave it out with --peers\n{last}")
