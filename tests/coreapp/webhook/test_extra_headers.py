"""Headers that the business sets for its webhook."""

from __future__ import annotations

from tests.coreapp.conftest import BUSINESS, World
from tidings.keys import webhook_url
from tidings.wire import core

NUMBER = "15550110001"


async def test_each_post_has_the_extra_headers_until_another_url_is_set(world: World) -> None:
    sink, headers = world.sink, {"Authorization": "Basic dTpw", "X-Shop": "7"}
    await world.configure(webhooks={"url": webhook_url.with_headers(sink.url, headers)}, sent_status=True)
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    await running.client.send(NUMBER)
    await sink.signals.until(lambda: len(sink.posts) > 0)
    first = sink.posts[-1]
    assert {name: first.headers[name] for name in headers} == headers
    assert first.headers["webhook-id"] == first.event_id
    seen = len(sink.posts)
    await world.configure(webhooks={"url": sink.url})
    assert isinstance(await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS)), core.Done)
    await running.client.send(NUMBER)
    await sink.signals.until(lambda: len(sink.posts) > seen)
    assert not headers.keys() & sink.posts[-1].headers.keys()
