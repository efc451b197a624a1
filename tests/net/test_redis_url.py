"""URLs of Redis and Valkey: a server, or the Sentinels of a master."""

from __future__ import annotations

import pytest

from tidings.net import redis_url
from tidings.net.redis_url import UnusableRedisUrl


@pytest.mark.parametrize(
    ("url", "plain", "hosts", "is_secure"),
    [
        ("redis://host", "redis://host", [("host", 6379)], False),
        ("valkey://host:7000/2", "redis://host:7000/2", [("host", 7000)], False),
        ("valkeys://[fd00::5]:7000", "rediss://[fd00::5]:7000", [("fd00::5", 7000)], True),
    ],
)
def test_redis_and_valkey_urls_name_one_server(
    url: str, plain: str, hosts: list[tuple[str, int]], is_secure: bool
) -> None:
    found = redis_url.parse(url)
    assert (found.plain, list(found.hosts), found.is_secure, found.master) == (plain, hosts, is_secure, "")


@pytest.mark.parametrize("scheme", ["redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel"])
def test_sentinel_urls_have_several_hosts_and_a_master_name(scheme: str) -> None:
    found = redis_url.parse(f"{scheme}://ann:p%40w@one,two:26380,[fd00::5]:1/presence/3")
    assert list(found.hosts) == [("one", 26379), ("two", 26380), ("fd00::5", 1)]
    assert (found.master, found.database, found.username, found.password) == ("presence", 3, "ann", "p@w")
    assert found.is_secure == (scheme.partition("+")[0] in ("rediss", "valkeys"))


@pytest.mark.parametrize(
    "url",
    [
        "http://host",
        "redis:host",
        "redis://",
        "redis://host:port",
        "redis+sentinel://one,two",
        "redis+sentinel://one,two/",
        "redis+sentinel://one,/presence",
        "redis+sentinel://one/presence/zero",
        "redis://two words",
        "redis+sentinel://one,two words/presence",
        "redis+sentinel://one,256.1.1.1/presence",
    ],
)
def test_other_urls_raise_unusableredisurl_without_the_password(url: str) -> None:
    with pytest.raises(UnusableRedisUrl) as caught:
        redis_url.parse(url.replace("://", "://:secret@"))
    assert "secret" not in str(caught.value)
