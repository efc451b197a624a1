"""Links that a provider's credentials may be sent to."""

from __future__ import annotations

import pytest

from tidings.egress import providers
from tidings.egress.providers import ProviderCredentials


@pytest.mark.parametrize(
    ("entry", "link"),
    [
        ("files.example.com", "https://files.example.com/a?b"),
        ("files.example.com", "http://files.example.com/"),
        ("Files.Example.com", "https://FILES.example.COM:443/a"),
        ("files.example.com:8443", "https://files.example.com:8443/a"),
        ("*.example.com", "https://a.b.example.com/a"),
        ("[2001:db8::1]:8443", "https://[2001:db8::1]:8443/a"),
        ("xn--bcher-kva.example", "https://bücher.example/a"),
    ],
)
def test_a_link_to_a_configured_host_gets_the_credentials(entry: str, link: str) -> None:
    providers.check_host(entry)
    assert ProviderCredentials(hosts=("other.example.com", entry)).is_for(link)


@pytest.mark.parametrize(
    ("entry", "link"),
    [
        ("files.example.com", "https://evil.example.com/files.example.com"),
        ("files.example.com", "https://files.example.com.evil.com/"),
        ("files.example.com", "https://files.example.com@evil.com/"),
        ("files.example.com", "https://files.example.com:8443/"),
        ("files.example.com:8443", "https://files.example.com/"),
        ("files.example.com", "https://a.files.example.com/"),
        ("*.example.com", "https://example.com/"),
        ("*.example.com", "https://badexample.com/"),
        ("*.example.com", "https://a.example.com:8443/"),
        ("files.example.com", "nonsense"),
        ("files.example.com", "https://[::1"),
    ],
)
def test_a_link_to_another_host_gets_no_credentials(entry: str, link: str) -> None:
    assert not ProviderCredentials(hosts=(entry,)).is_for(link)


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "*",
        "*.",
        "*.*.example.com",
        "a/b",
        "user@host",
        "host?x",
        "host#x",
        "a b",
        "host:0",
        "host:x",
        "https://host",
    ],
)
def test_an_invalid_host_entry_is_rejected(entry: str) -> None:
    with pytest.raises(ValueError, match="should be a host"):
        providers.check_host(entry)
