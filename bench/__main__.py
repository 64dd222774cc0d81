"""`python -m bench CASE...`: run cases, print their tables, keep their results."""

from __future__ import annotations

import argparse
import importlib
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench import report, rounds
from bench.cases import COMPARISONS, OURS, OWN, PEERS, named


def main() -> None:
    arguments = _parse()
    if arguments.list:
        titles = {name: case.title for name, case in COMPARISONS.items()}
        titles |= {name: case.title for name, case in OWN.items()}
        for name, title in titles.items():
            print(f"{name:<18} {title}")
        return
    # Ended from outside, the systems that run in sessions of their own must end too: see rounds.run_script.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(width=150)
    for name in named(arguments.case):
        if name in COMPARISONS:
            _compare(name, arguments, console)
        else:
            _own(name, arguments, console)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("case", nargs="*", help="names as in --list, or their part before a dash; all by default")
    parser.add_argument("--list", action="store_true", help="show the cases")
    parser.add_argument("--rounds", type=int, default=3, help="how often every system runs (default 3)")
    parser.add_argument("--events", type=int, help="bids to read, not the case's own number; keeps no results")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s; 'none' for ours alone")
    parser.add_argument("--without-ours", action="store_true", help="measure the peers only; keeps no results")
    parser.add_argument("--option", action="append", default=[], metavar="PEER.NAME=VALUE", help="see bench/peers")
    return parser.parse_args()


def _compare(name: str, arguments: argparse.Namespace, console: Console) -> None:
    case = COMPARISONS[name]
    wanted = [word for word in arguments.peers.split(",") if word not in ("", "none")]
    unknown = [word for word in wanted if word not in PEERS]
    if unknown:
        raise SystemExit(f"no peer {unknown[0]!r}; the peers are {', '.join(PEERS)}")
    options: dict[str, dict[str, str]] = {}
    for option in arguments.option:
        key, value = option.split("=", 1)
        peer, setting = key.split(".", 1)
        options.setdefault(peer, {})[setting] = value
    systems = [PEERS[word] for word in case.peers if word in wanted]
    if not arguments.without_ours:
        systems.insert(0, OURS)
    results = rounds.compare(case, systems, arguments.rounds, arguments.events or case.events, options)
    report.comparison(case, results, console, keep=not (arguments.without_ours or arguments.events))


def _own(name: str, arguments: argparse.Namespace, console: Console) -> None:
    case = OWN[name]
    rounds.WORK.mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=rounds.WORK))
    try:
        figures = importlib.import_module(case.module).measure(work, arguments.events)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report.own(case, figures, console, keep=not arguments.events)


if __name__ == "__main__":
    main()
