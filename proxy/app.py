"""Composition root: settings in, FastAPI application out. The only place where objects are wired together."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI
from msgspec import Struct, field

from proxy.config import Settings
from proxy.core.overflow import prepare
from proxy.reloading import Load, Reloader, Running
from proxy.shell.artifacts import (
    AccessResolver,
    ArtifactFolder,
    ArtifactReader,
    ArtifactsByHash,
    ArtifactStore,
    ArtifactTools,
    Replacements,
    Tenants,
    create_folder,
    create_tenants,
    look_after,
)
from proxy.shell.endpoints import (
    ArtifactRights,
    Guard,
    Note,
    Readiness,
    Services,
    create_api,
    listens_here_only,
    upstream_problem,
)
from proxy.shell.models import ModelResolver
from proxy.shell.operator import Explainer, Overview
from proxy.shell.planning import Pipelines, Planner
from proxy.shell.references import FetchCache, Resolver
from proxy.shell.relay import Relay, Route, Routes
from proxy.shell.resources import (
    WaitingRoom,
    Workload,
    configure_logging,
    give_memory_back,
    logger,
    recurring,
    tune_interpreter,
)
from proxy.shell.telemetry import FILE_NAME, History, Recorder
from proxy.shell.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from proxy.shell.models.shared_state import SharedLearning
    from proxy.shell.references.fetch import Fetcher
    from proxy.shell.telemetry.tracing import Tracer

REFRESH_SECONDS: Final = 2
"""Between two looks at what other workers have learned, one stat, and at the data folder."""
SHOW_SECONDS: Final = 1
"""Between two looks at how much waits, for the metrics: counting at each request would cost each one."""
PREPARE_SECONDS: Final = 2
"""Delay after the start until the words of refusals are loaded, unless a refusal comes earlier."""


async def _prepare_for_refusals() -> None:
    """Load them in a thread, so that no request waits, and not while the first ones arrive."""
    await asyncio.sleep(PREPARE_SECONDS)
    await asyncio.to_thread(prepare)


async def _show_load(services: Services) -> None:
    waiting = services.room.waiting
    services.metrics.set_levels(
        queued_requests=services.workload.queued,
        waiting_requests=waiting.requests,
        waiting_compressed_requests=waiting.compressed,
        waiting_bytes=waiting.memory_bytes,
    )


class Inherited(Struct):
    """State that services hand to their successors in the process at a reload."""

    metrics: Metrics = field(default_factory=Metrics)
    replacements: Replacements = field(default_factory=Replacements)
    history: History | None = None
    """Shared by all services of this process, one after another; None before the first."""


def create_app(
    settings: Settings,
    load: Load | None = None,
    tell_others: Callable[[], None] = lambda: None,
    token: str | None = None,
) -> FastAPI:
    """The proxy; its services start and stop with it. `load` reads the settings again: SIGHUP and `POST /-/reload` then
    replace the services, and `tell_others` makes other workers do so. `token`: by which commands of this user recognise
    it."""
    configure_logging(settings.log)
    create = functools.partial(create_services, inherited=Inherited())
    started = time.monotonic()

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await running.serve(app.state.services)
        if reloader is not None:
            reloader.listen()
        try:
            yield
        finally:
            await running.stop()
        logger().info("stopped", seconds=round(time.monotonic() - started))

    app = create_api(lifespan)
    running = Running(app)
    reloader = None if load is None else Reloader(running, settings, create, load, tell_others)
    app.state.services, app.state.token = create(settings), token
    app.state.reload = None if reloader is None else reloader.reload
    return app


def create_services(settings: Settings, inherited: Inherited) -> Services:
    """Create the services for these settings. Connections open when they run; what they share with the former ones
    changes once they have started, as settings with which they cannot start change nothing."""
    metrics, tracer = inherited.metrics, _tracer(settings)
    history = inherited.history = inherited.history or History(settings.data_dir / FILE_NAME, _stored(settings))
    folder = create_folder(settings)
    tenants = create_tenants(settings)
    store = _store(settings, folder, metrics)
    reader = ArtifactReader(folder, retention_days=settings.artifacts.retention_days, language=settings.language)
    tools, ways = ArtifactTools(reader, settings.language), AccessResolver(settings.artifacts, folder.place_of(""))
    resolver = _resolver(settings, folder, reader, store, _downloads(settings))
    recorder = Recorder(metrics, tracer, history, inherited.replacements)
    shared = Shared(store, tools, tenants, recorder, resolver)
    routes = _routes(settings, shared)
    models = [route.planner.models for route in routes.all]
    sharing = _sharing(settings, models, tenants, metrics)
    readiness, workload = _readiness(settings, routes, store), Workload()
    notes: dict[str, Note] = {"decisions": lambda: history.problem, "workload": lambda: workload.problem}
    if sharing is not None:
        notes["state"] = lambda: sharing.problem
    return Services(
        server=settings.server,
        routes=routes,
        recorder=recorder,
        ways=ways,
        workload=workload,
        room=WaitingRoom(settings.server.max_waiting_bytes, metrics.counters["lost_waiting_requests"].inc),
        tenants=tenants,
        guard=_guard(settings),
        rights=ArtifactRights(tenants, _local_guard(settings)),
        reader=reader,
        replacements=inherited.replacements,
        by_hash=ArtifactsByHash(store, reader) if settings.enabled and settings.compress_api else None,
        metrics=metrics,
        readiness=readiness,
        notes=notes,
        history=history,
        overview=Overview(
            settings,
            history,
            readiness.problems,
            dict(zip(settings.named_upstreams, models, strict=True)),
            folder.address,
            notes.get("state"),
        ),
        explainer=Explainer(settings, [route.planner for route in routes.all], store.place_of, ways.here),
        running=functools.partial(_running, settings, shared, folder, tracer, sharing),
    )


@contextlib.asynccontextmanager
async def _running(
    settings: Settings,
    shared: Shared,
    folder: ArtifactFolder,
    tracer: Tracer | None,
    sharing: SharedLearning | None,
    services: Services,
) -> AsyncIterator[None]:
    """Hold what the services need open."""
    tune_interpreter()
    models, history, metrics = [one.planner.models for one in services.routes.all], services.history, services.metrics
    async with contextlib.AsyncExitStack() as at_the_end:  # each is closed, even if closing another fails
        if tracer is not None:
            at_the_end.push_async_callback(asyncio.to_thread, tracer.close)
        for one in models:
            at_the_end.push_async_callback(one.upstream.aclose)
            at_the_end.push_async_callback(one.discovery.close)
        for close in (shared.store.close, shared.resolver.aclose, history.close):
            at_the_end.push_async_callback(close)
        for one in models:
            one.discovery.start()
        if sharing is not None:
            await at_the_end.enter_async_context(sharing.running())
        look = functools.partial(look_after, settings.data_dir, shared.tenants, folder)
        for work in (
            # In a thread: the disk may be slow.
            recurring(REFRESH_SECONDS, functools.partial(asyncio.to_thread, look)),
            *(recurring(REFRESH_SECONDS, functools.partial(asyncio.to_thread, one.learning.refresh)) for one in models),
            recurring(SHOW_SECONDS, functools.partial(_show_load, services)),
            history.write_for_ever(),
            shared.store.sweep_for_ever(),
            *(one.tell_guesses() for one in models),
            give_memory_back(services.workload),
            _prepare_for_refusals(),
        ):
            at_the_end.callback(asyncio.create_task(work).cancel)
        if settings.mcp:
            # It needs an extra that may not be installed; the SDK takes a second to load.
            from proxy.shell.endpoints.mcp_server import speaking  # noqa: PLC0415

            services.mcp = await at_the_end.enter_async_context(speaking(shared.tools, services.rights))
        history.max_rows = _stored(settings)
        metrics.learning = [one.learning for one in models]
        metrics.price_of = {one.upstream.host: one.catalogue.price_of for one in reversed(models)}
        yield


def _stored(settings: Settings) -> int:
    """How many requests are kept."""
    return settings.decisions.stored if settings.enabled else 0


class Shared(Struct, frozen=True):
    """Parts shared by requests to all upstreams."""

    store: ArtifactStore
    tools: ArtifactTools
    tenants: Tenants
    recorder: Recorder
    resolver: Resolver


def _routes(settings: Settings, shared: Shared) -> Routes:
    named = settings.named_upstreams
    routes = [_route(settings.before(one), shared, name if settings.upstreams else "") for name, one in named.items()]
    return Routes(routes, settings.server.max_body_bytes)


def _route(settings: Settings, shared: Shared, name: str) -> Route:
    """The parts that serve requests to one upstream. `settings`: those of a proxy that has only this one. `name`: its
    place in the settings, if there are several."""
    models = ModelResolver(settings)
    planner = Planner(Pipelines(settings), models, shared.resolver)
    relay = Relay(settings, planner, shared.store, shared.tenants, shared.recorder, shared.tools)
    return Route(relay, planner, models.upstream, name)


def _guard(settings: Settings) -> Guard:
    has_key = any(one.api_key is not None for one in settings.named_upstreams.values())
    server = settings.server
    return Guard(server.admin_key, server.host_names, lends_key=has_key and listens_here_only(server.host))


def _local_guard(settings: Settings) -> Guard | None:
    """What admits clients that may read all artifacts, if any may."""
    return Guard(None, settings.server.host_names) if settings.artifacts.open_on_loopback else None


def _readiness(settings: Settings, routes: Routes, store: ArtifactStore) -> Readiness:
    checks = [functools.partial(upstream_problem, route.relay) for route in routes.all]
    upstreams = dict(zip(settings.named_upstreams, checks, strict=True))
    return Readiness(upstreams, {"store": store.trouble}, noted=() if settings.artifacts.url is None else ("store",))


def _sharing(
    settings: Settings, models: Sequence[ModelResolver], tenants: Tenants, metrics: Metrics
) -> SharedLearning | None:
    """What shares lessons with other replicas, if anything does."""
    if settings.state.url is None or not settings.learning.enabled:
        return None
    from proxy.shell.models.shared_state import SharedLearning  # noqa: PLC0415 - needs an extra

    learning = {one.learning.upstream: one.learning for one in models}
    return SharedLearning(settings.state.url, tenants.fleet, learning, metrics.counters["state_failures"].inc)


def _tracer(settings: Settings) -> Tracer | None:
    """The tracer, if enabled; OpenTelemetry takes 0.2 s to load."""
    if not settings.tracing.enabled:
        return None
    from proxy.shell.telemetry.tracing import Tracer  # noqa: PLC0415 - needs an extra that may not be installed

    addresses = {name: one.base_url for name, one in settings.named_upstreams.items()}
    return Tracer({**addresses, "": settings.upstream.base_url})


def _store(settings: Settings, folder: ArtifactFolder, metrics: Metrics) -> ArtifactStore:
    return ArtifactStore(
        folder,
        retention_days=settings.artifacts.retention_days,
        max_bytes=settings.artifacts.max_bytes,
        on_saved=metrics.saved,
        on_swept=metrics.stored,
        on_failed=metrics.counters["store_failures"].inc,
    )


def _downloads(settings: Settings) -> Fetcher | None:
    """The image downloader, if enabled; the client library takes 0.3 s to load."""
    media = settings.media
    if not media.fetch_remote_images:
        return None
    from proxy.shell.references.fetch import CheckedTransport, Fetcher  # noqa: PLC0415 - only on request

    transport = CheckedTransport(allow_private=media.allow_private_addresses)
    return Fetcher(transport, max_bytes=media.max_bytes, timeout_seconds=media.fetch_timeout_seconds)


def _resolver(
    settings: Settings,
    folder: ArtifactFolder,
    reader: ArtifactReader,
    store: ArtifactStore,
    downloads: Fetcher | None,
) -> Resolver:
    media = settings.media
    return Resolver(
        reader,
        store,
        FetchCache(folder),
        downloads,
        timeout_seconds=media.fetch_timeout_seconds,
        max_bytes=media.max_bytes,
    )
