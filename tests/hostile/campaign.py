"""A run: lives of the hostile guest, one after the other, beside one bystander."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from bluebridge.device.cards import CONNECTX3, CONNECTX5
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.guest.verbs import VerbsError
from tests.hostile import connectx5
from tests.hostile.attacks import LAST, SLICES
from tests.hostile.bystander import Bystander, Report
from tests.hostile.connectx5_guest import Connectx5Guest
from tests.hostile.guest import HostileGuest, attacked, exceptions, own_memory
from tests.models.server import ServerProcess

GIB = 1 << 30
Attacks = dict[Callable[[Any, int], int], int]


@dataclass
class Plan:
    """How much: accesses in all, or as many as `seconds` permit; of each guest the rounds of all
    attacks in its life, what part of their accesses they make in a round, the length of its long
    messages, and the queue pairs with receivers that are never ready. `bridge` is the model, `only`
    the name of the only attack, empty for all, `card` the name of the hostile guest's adapter.
    """

    accesses: int
    seed: int = 1
    seconds: float = inf
    bridge: str = "intel-gen4"
    rounds: int = 20
    part: float = 1.0
    long: int = GIB
    not_ready: int = 600
    only: str = ""
    card: str = CONNECTX3.name


@dataclass
class Outcome:
    """Findings of a run. Memory is the server's own, in bytes: after the first life and at the end,
    when no guest but the bystander is there, and the most in between."""

    accesses: int
    by_attack: dict[str, int]
    lives: int
    seconds: float
    exceptions: int
    stalls: list[str]
    leaked: int
    memory: tuple[int, int, int]
    quiet: Report
    bystander: Report
    log: str


def attacks_on(card: str) -> tuple[Attacks, Attacks]:
    """Attacks with an adapter, by their accesses in a turn: those in between, and the last ones."""
    if card == CONNECTX5.name:
        return dict(connectx5.SLICES), dict(connectx5.LAST)
    return dict(SLICES), dict(LAST)


class Campaign:
    """Attacks the server in `folder` until the plan's accesses are made."""

    def __init__(self, plan: Plan, folder: Path, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._folder = folder
        self._tell = tell
        self._chance = Random(plan.seed)
        self._by_attack: dict[str, int] = {}
        self._lives = 0
        self._most_memory = 0
        self._told = 0.0
        self._until = inf

    @property
    def _done(self) -> int:
        return sum(self._by_attack.values())

    @property
    def _goes_on(self) -> bool:
        return self._done < self._plan.accesses and time.monotonic() < self._until

    def run(self, quiet_seconds: float) -> Outcome:
        """Measure the bystander alone, then beside the attacks."""
        with attacked(self._folder, self._plan.bridge, self._plan.card) as server:
            quiet = self._quiet(server, quiet_seconds)
            bystander = Bystander(self._folder / "hca-b", server.pid)
            try:
                return self._attack(server, bystander, quiet)
            finally:
                bystander.kill()

    def _quiet(self, server: ServerProcess, seconds: float) -> Report:
        alone = Bystander(self._folder / "hca-b", server.pid)
        try:
            time.sleep(seconds)
            return alone.report()
        finally:
            alone.kill()

    def _attack(self, server: ServerProcess, bystander: Bystander, quiet: Report) -> Outcome:
        files, began, first = server.open_files(), time.monotonic(), 0
        self._until = began + self._plan.seconds
        while self._goes_on:
            self._life(server)
            if not first:
                first = self._settled_memory(server, files)
        last = self._settled_memory(server, files)
        seconds = time.monotonic() - began
        report = bystander.report()
        leaked = server.open_files() - files
        assert server.running(), server.text()
        bystander.kill()
        assert server.terminate() == 0, server.text()
        return Outcome(
            accesses=self._done, by_attack=self._by_attack, lives=self._lives, seconds=seconds,
            exceptions=exceptions(server), stalls=server.held(), leaked=leaked,
            memory=(first, self._most_memory, last), quiet=quiet, bystander=report,
            log=server.text(),
        )  # fmt: skip

    def _settled_memory(self, server: ServerProcess, files: int) -> int:
        """The server's own memory once it has seen that the guest is gone."""
        server.has_open(files)
        return own_memory(server)

    def _life(self, server: ServerProcess) -> None:
        plan = self._plan
        guest: Any
        if plan.card == CONNECTX5.name:
            guest = Connectx5Guest(self._folder, self._chance)
        else:
            guest = HostileGuest(self._folder, self._chance, plan.long, plan.not_ready)
        self._lives += 1
        try:
            for attack, count in self._schedule():
                made = attack(guest, count)
                self._by_attack[attack.__name__] = self._by_attack.get(attack.__name__, 0) + made
                self._most_memory = max(self._most_memory, own_memory(server))
                self._report_progress(server)
        except (OSError, VerbsError, Refused, AssertionError) as error:
            assert server.running(), server.text()
            self._tell(f"a guest ended early: {error}")
        finally:
            guest.leave()

    def _schedule(self) -> Iterator[tuple[Callable[[Any, int], int], int]]:
        """Turns of all attacks in any order, then those that no driver survives."""
        turns, last = attacks_on(self._plan.card)
        for _ in range(self._plan.rounds):
            slices = [*turns.items()]
            self._chance.shuffle(slices)
            for attack, count in slices:
                if self._goes_on and self._plan.only in ("", attack.__name__):
                    yield attack, max(1, int(count * self._plan.part))
        for attack, count in last.items():
            if self._plan.only in ("", attack.__name__):
                yield attack, max(1, int(count * self._plan.part))

    def _report_progress(self, server: ServerProcess) -> None:
        now = time.monotonic()
        if now - self._told > 10:
            self._told = now
            megabytes = own_memory(server) >> 20
            self._tell(f"{self._done} accesses, {self._lives} guests, server has {megabytes} MiB")
