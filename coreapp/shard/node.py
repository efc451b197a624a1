"""One Coreapp process: owns the shards assigned to it among all Coreapps, and is a standby for the others."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Callable

from coreapp import quarantine
from coreapp.context import SharedLimits
from coreapp.crash_suspects import suspects_of
from coreapp.errors import ChangeRefused
from coreapp.graph_api.number import NumberConnections
from coreapp.journal.change import Change
from coreapp.journal.journal import make_committer
from coreapp.sending.network_link import make_connections
from coreapp.settings import Settings
from coreapp.shard import balancing, layout_change
from coreapp.shard.balancing import Move
from coreapp.shard.health import Databases
from coreapp.shard.layout_change import LayoutChange
from coreapp.shard.membership import CoreappMembership, Survey
from coreapp.shard.numbers import CoreappNumbers, make_config, make_number
from coreapp.shard.open_shards import OpenShards
from coreapp.shard.reach import OwnReach
from coreapp.shard.shard import ProcessParts, open_shard
from coreapp.shard.term import Term
from coreapp.used_keys import UsedKeys
from coreapp.webhook_secrets import WebhookSecrets
from coreapp.work_in_progress import WorkInProgress
from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.changes.watch import Watch
from tidings.client.http import NetworkApi
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.objects.directory import DirectoryStore
from tidings.objects.stores import open_store
from tidings.storage import outages
from tidings.storage.business import changes, shard_blocks, shards
from tidings.storage.business.quarantine import MAX_ATTEMPTS
from tidings.storage.business.shards import LeaseLost
from tidings.storage.database import Database

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5  # seconds until the next try after an outage or a lost shard
POLL_SECONDS = 0.25  # seconds between two polls of the shards, while there are other processes
ALONE_POLL_SECONDS = 1.0  # seconds between two polls otherwise: then only the number of shards can change
RESERVED_SECONDS = 2.0  # seconds that a free shard is reserved for the process that it is assigned to
SETTLED_HEARTBEATS = 2  # heartbeats without a change of the live processes before a shard is moved


class ShardNode:
    """Assigns shards to this process: claims free shards assigned to it, and hands over one shard at a time to less
    loaded processes.

    At the end it gives up all shards, each to a process that waits for it.
    """

    name = "node"

    def __init__(
        self,
        settings: Settings,
        database: Database,
        network: NetworkApi,
        *,
        clock: Clock,
        address: Callable[[], str],
        work: WorkInProgress | None = None,
    ) -> None:
        """Create the process.

        address: returns the address at which Webapps connect, `host:port`
        work: names the item that the process is handling; None for one without a file
        """
        self._settings = settings
        self._database = database
        safe = SecretSealer(*settings.secrets.settings_key.keys, read=settings.secrets.settings_key.read)
        webhook_secrets = WebhookSecrets(settings.account, settings.secrets.webhook_secret, safe)
        self.config = make_config(settings, database, settings.account, safe=safe, secrets=webhook_secrets, clock=clock)
        self._changes = Watch(database)
        working = DirectoryStore(settings.media_dir, reserve=settings.media_reserve)
        self.process = ProcessParts(
            settings=settings,
            database=database,
            network=network,
            clock=clock,
            safe=safe,
            config=self.config,
            shared=SharedLimits.of(settings),
            used_keys=UsedKeys(database, clock, account=settings.account),
            files=working if settings.media_bucket is None else open_store(settings.media_dir, settings.media_bucket),
            working=working,
            work=work if work is not None else WorkInProgress(),
            upstream=NumberConnections(settings, clock),
            committer=make_committer(database),
            connections=make_connections(settings.network_tcp, tls=network.tls if settings.network_tcp_tls else None),
        )
        self.numbers = CoreappNumbers(settings.account, functools.partial(make_number, self.process))
        self._follow_changes()
        self.shards = OpenShards()
        self.shards.on_change(self._follow_open_shards)
        # Set while this process has claimed at least one shard and serves all that it has claimed.
        self.owned = asyncio.Event()
        self.databases = Databases(database, network)
        self.requests = self.numbers.first.requests
        self._membership = CoreappMembership(database, settings, address)
        self._address = address
        self._layout_change = LayoutChange(database, settings)
        self._terms: dict[int, tuple[Term, asyncio.Task[None]]] = {}
        self._own_reach = OwnReach(settings.node)
        self._wakeup = service.Wakeup()
        self._is_leaving = False
        # Event-loop times. By shard: the earliest time to claim it again after it was lost, and the time since which it
        # is free. Then the time since which the set of live processes has not changed.
        self._not_before: dict[int, float] = {}
        self._free_since: dict[int, float] = {}
        self._settled_since = -math.inf
        self._live: frozenset[str] = frozenset()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _follow_changes(self) -> None:
        """Have changes in the database applied."""
        self._changes.on(changes.SETTINGS, self.numbers.load)
        self._changes.on(changes.CERTIFICATES, self.numbers.load)
        self._changes.on(changes.TEMPLATES, self._report_templates)
        self._changes.on(changes.CLOUD_LIMITS, self._announce_limits)
        self._changes.on(changes.UPSTREAMS, self.numbers.load)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises `SettingsError` if another process of this name is alive, `ProcessReplaced`
        if one takes the name later.
        """
        await self._database.persist(
            lambda connection: shards.create_shards(connection, self._settings.shards), retry_seconds=math.inf
        )
        await self._membership.join(stop)
        leaving, left = asyncio.Event(), asyncio.Event()
        beating = asyncio.create_task(self._membership.run(leaving), name="membership")
        beside = [
            asyncio.create_task(self.numbers.run(left), name=self.numbers.name),
            asyncio.create_task(self._changes.run(left), name=self._changes.name),
        ]
        polling = asyncio.create_task(self._keep_polling_shards(stop), name="shards")
        try:
            either = [polling, self._failure, beating, *beside]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for done in either:
                if done.done():
                    done.result()
        finally:
            # The poll is not cancelled: it may be claiming a shard, which would stay claimed.
            self._is_leaving = True
            self._wakeup.wake()
            leaving.set()
            await asyncio.gather(polling, beating, return_exceptions=True)
            # Leaving comes first, so that no process hands over a shard to us during this. The terms renew their leases
            # themselves.
            await self._membership.leave()
            await self._leave()
            left.set()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _keep_polling_shards(self, stop: asyncio.Event) -> None:
        with self._wakeup.woken_by(stop):
            while not stop.is_set() and not self._is_leaving:
                await self._wakeup.wait(await self.run_once())

    async def _announce_limits(self) -> None:
        """Called when limits of a number in the Cloud API were changed."""
        for shard in self.shards:
            shard.webhook.limit_events.wake()
            shard.accepting.tier_rises.wake()

    async def _report_templates(self) -> None:
        """Called when templates of a number were changed."""
        for shard in self.shards:
            shard.webhook.template_events.wake()

    async def run_once(self) -> float:
        """Poll once and act on the result. Returns the seconds until the next poll."""
        try:
            survey = await self._membership.survey()
            layout_change.show(survey.layouts.values())
            if self._is_leaving:
                # Shards that were given up or ended during this poll are for others.
                return POLL_SECONDS
            if await self._follow_numbers(survey):
                # The new shards are in the next survey.
                return 0.0
            for block in survey.changing:
                await self._change_layout(survey, block)
            if len(survey.changing) == len(survey.layouts):
                return POLL_SECONDS
            await self._follow(survey)
        except Exception as error:
            if not outages.is_outage(error):
                raise
            log.warning("lease.unreachable", extra={"error": repr(error)})
            if not self._terms:
                self.numbers.abandon()
            return RETRY_SECONDS
        is_alone = survey.live == {self._settings.node} and len(self._terms) == len(survey.states)
        return min(ALONE_POLL_SECONDS if is_alone else POLL_SECONDS, self._settings.heartbeat_seconds)

    async def _follow_numbers(self, survey: Survey) -> bool:
        """Make the parts of numbers that were added, drop those of removed ones, and create missing shards. Returns
        whether shards were created.
        """
        self.numbers.follow(survey.numbers)
        if len(survey.numbers) > 1:
            # Another number may now wait for its registration code, or no longer wait.
            self._update_owned()
        missing = [number for number in survey.numbers if number.shard_block not in survey.layouts]
        for number in missing:
            create = functools.partial(shards.create_shards_of, number=number, count=self._settings.shards)
            await self._database.commit(create)
        return bool(missing)

    async def _change_layout(self, survey: Survey, block: int) -> None:
        """Give up all shards of a number for a change of how many there are, and make the change when all processes
        have done so.
        """
        me = self._settings.node
        terms = [term for term, _ in self._terms.values() if term.lease.block == block]
        for term in terms:
            term.give_up()
        is_free = all(
            holding.owner in ("", me)
            for holding in survey.holdings(me, heartbeat_timeout=self._settings.lease_seconds)
            if shard_blocks.block_of(holding.shard) == block
        )
        if is_free and not terms and await self._layout_change.attempt(lambda: self._is_leaving, block):
            self._wakeup.wake()

    async def _follow(self, survey: Survey) -> None:
        me, now = self._settings.node, asyncio.get_running_loop().time()
        holdings = [
            holding
            for holding in survey.holdings(me, heartbeat_timeout=self._settings.lease_seconds)
            if self.numbers.of_shard(holding.shard) is not None
            and shard_blocks.block_of(holding.shard) not in survey.changing
        ]
        # Shards of an earlier process of this name, and those to be reopened.
        idle = [holding.shard for holding in holdings if holding.owner == me and holding.shard not in self._terms]
        for number in self.numbers:
            if number.first_shard not in self._terms and number.first_shard not in idle:
                number.requests.abandon()
        free = {holding.shard for holding in holdings if not holding.owner}
        self._free_since = {shard: self._free_since.get(shard, now) for shard in free}
        overdue = {shard for shard, since in self._free_since.items() if now - since > RESERVED_SECONDS}
        for shard in survey.addressed:
            if shard in self._terms:
                self.process.shared.wakeups.wake(shard)
        if survey.live != self._live:
            self._live, self._settled_since = survey.live, now
        is_isolated = self._own_reach.update(survey.reach, survey.live, now)
        if me not in survey.places and me in survey.reach.cut_off:
            # Webapps do not reach this process: every shard is better served by another one, even if that takes longer.
            overdue = set()
        for shard in [*idle, *balancing.claims(me, holdings, survey.places, overdue=overdue)]:
            # A shard that was given up or lost is free for others at once, and for us once its term is closed.
            is_open = shard in self._terms
            if not is_open and now >= self._not_before.get(shard, 0.0) and not self._is_leaving:
                await self._claim(shard)
        if is_isolated:
            for shard, successor in balancing.successors(me, holdings, survey.places).items():
                self._move(Move(shard, successor))
            return
        settled_at = self._settled_since + SETTLED_HEARTBEATS * self._settings.heartbeat_seconds
        if now < settled_at or not self._own_reach.is_settled(now):
            return
        found = balancing.next_move(holdings, survey.places)
        if found is not None and found[0] == me:
            self._move(found[1])

    def _move(self, move: Move) -> None:
        """Give a shard up for its successor, unless its term is not open or ends already."""
        term, _ = self._terms.get(move.shard, (None, None))
        if term is not None and not term.is_given_up:
            log.info("shard.moves", extra={"shard": move.shard, "successor": move.successor})
            term.give_up(move.successor)

    async def _claim(self, shard: int) -> None:
        number = self.numbers.of_shard(shard)
        if number is None:
            # The number was removed.
            return
        # Taken before the database is called, so that the granted lease never ends before our count of it.
        requested_at = asyncio.get_running_loop().time()
        settings = self._settings
        claim = functools.partial(
            shards.claim,
            shard=shard,
            owner=settings.node,
            address=self._address(),
            heartbeat_timeout=settings.lease_seconds,
        )
        lease = await self._database.commit(claim)
        if lease is None:
            return
        # An older connection may lead to a replaced database server with an older state.
        self._database.suspect_connections()
        log.info("lease.claimed", extra={"shard": shard, "epoch": lease.epoch, "node": settings.node})
        term = Term(
            lease,
            requested_at,
            settings=settings,
            database=self._database,
            requests=number.requests,
            open_shards=self.shards,
            open_shard=functools.partial(open_shard, number.process),
        )
        task = asyncio.create_task(self._serve(term), name=f"shard {shard}")
        self._terms[shard] = term, task
        self.owned.clear()

    async def _serve(self, term: Term) -> None:
        """Run one term and handle its end."""
        lease, loop = term.lease, asyncio.get_running_loop()
        try:
            await term.run(self._opened)
        except LeaseLost as lost:
            log.warning("lease.lost", extra={"shard": lease.shard, "epoch": lease.epoch, "detail": str(lost)})
            self._not_before[lease.shard] = loop.time() + RETRY_SECONDS
        except Exception as error:
            if outages.is_outage(error):
                log.warning("shard.left", extra={"shard": lease.shard, "error": repr(error)})
                self._not_before[lease.shard] = loop.time() + RETRY_SECONDS
            elif await self._can_reopen(lease.shard, error):
                self._not_before[lease.shard] = loop.time() + RETRY_SECONDS
            elif not self._failure.done():
                # A poll that is under way must not claim the shard again.
                self._is_leaving = True
                self._failure.set_exception(error)
        finally:
            if term.successor:
                # A poll that is under way may have read the row from before, with this process as the owner.
                self._not_before[lease.shard] = loop.time() + RETRY_SECONDS
            if lease.shard in self._terms and self._terms[lease.shard][0] is term:
                del self._terms[lease.shard]
            self._update_owned()
            self._wakeup.wake()

    async def _can_reopen(self, shard: int, error: Exception) -> bool:
        """Count an attempt for the items whose handling ended the shard. Returns whether the shard can be reopened:
        the error was caused by such items, and none of them had reached the quarantine before.
        """
        items = suspects_of(error)
        if not items:
            if isinstance(error, ChangeRefused):
                log.error("shard.left", extra={"shard": shard, "error": str(error)})
            return isinstance(error, ChangeRefused)
        log.error("shard.failed", extra={"shard": shard, "items": len(items), "error": repr(error)}, exc_info=error)
        try:
            suspects = await quarantine.count_attempts(
                self._database, self.process.clock, items, f"{type(error).__name__}: {error}"
            )
        except Exception as failure:
            if not outages.is_outage(failure):
                raise
            log.warning("items.not_counted", extra={"error": repr(failure)})
            return True
        return all(suspect.attempts <= MAX_ATTEMPTS for suspect in suspects)

    def _follow_open_shards(self) -> None:
        for number in self.numbers:
            contexts = [shard.context for shard in self.shards.of_number(number.block)]
            number.used_keys.follow(
                {
                    context.lease: functools.partial(context.journal.write, Change(context.account))
                    for context in contexts
                }
            )

    def _opened(self) -> None:
        self._update_owned()

    def _update_owned(self) -> None:
        # A number that waits for its registration code does not keep the others from being served.
        waiting = {number.block for number in self.numbers if number.requests.waits_for_code}
        expected = sum(term.lease.block not in waiting for term, _ in self._terms.values())
        if expected and len(self.shards) == expected:
            self.owned.set()
        else:
            self.owned.clear()

    async def _leave(self) -> None:
        """Give up every shard, each to one of the remaining processes."""
        successors = {}
        if self._terms:
            try:
                survey = await self._membership.survey()
                holdings = survey.holdings(self._settings.node, heartbeat_timeout=self._settings.lease_seconds)
                others = survey.reach.places(survey.live - {self._settings.node})
                successors = dict(balancing.successors(self._settings.node, holdings, others))
            except Exception as error:
                log.warning("lease.unreachable", extra={"error": repr(error)})
        tasks = [task for _, task in self._terms.values()]
        for term, _ in list(self._terms.values()):
            term.give_up(successors.get(term.lease.shard, ""))
        await asyncio.gather(*tasks, return_exceptions=True)
        self.numbers.abandon()
