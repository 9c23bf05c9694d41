"""The HTTP server answers as a scraper and an orchestrator expect, and ends cleanly."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from streamfreq.clock import ManualClock
from streamfreq.config import TelemetryConfig
from streamfreq.errors import ConfigError
from streamfreq.telemetry import Health, Metrics, TelemetryServer

ANY_PORT = TelemetryConfig(http_port=0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health(stale_after_seconds=30, clock=clock)


@pytest.fixture
def server(health: Health) -> Iterator[TelemetryServer]:
    metrics = Metrics(job="news")
    metrics.bad("not-json", 3)
    with TelemetryServer(ANY_PORT, metrics, lambda: health) as server:
        yield server


def ask(
    server: TelemetryServer, path: str, method: str = "GET", accept: str = "*/*"
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, headers={"Accept": accept})
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


def test_metrics_in_the_format_that_is_asked_for(server: TelemetryServer) -> None:
    status, body, headers = ask(server, "/metrics")
    assert status == 200
    assert 'streamfreq_bad_records_total{kind="not-json"} 3.0' in body
    assert headers["Content-Type"].startswith("text/plain")
    status, body, headers = ask(
        server, "/metrics?x=1", accept="application/openmetrics-text; version=1.0.0"
    )
    assert status == 200
    assert headers["Content-Type"].startswith("application/openmetrics-text")


def test_healthz_says_why_not_in_one_line(
    server: TelemetryServer, health: Health, clock: ManualClock
) -> None:
    health.beat("poll")
    assert ask(server, "/healthz")[:2] == (200, "ok\n")
    clock.advance(31)
    status, body, _ = ask(server, "/healthz")
    assert status == 503
    assert body == "poll: no sign of life for 31 s (at most 30 s)\n"


def test_readyz_says_why_not_in_one_line(server: TelemetryServer, health: Health) -> None:
    assert ask(server, "/readyz")[:2] == (503, "starting\n")
    health.set("kafka", False, "no broker\nat all")
    health.set("redis", False, "no answer")
    assert ask(server, "/readyz")[:2] == (503, "kafka: no broker at all; redis: no answer\n")
    assert ask(server, "/healthz")[0] == 200
    health.set("kafka", True)
    health.set("redis", True)
    assert ask(server, "/readyz")[:2] == (200, "ok\n")


def test_the_ready_gauge_says_what_readyz_says(
    server: TelemetryServer, health: Health, clock: ManualClock
) -> None:
    health.set("redis", True)
    health.beat("poll")
    assert "streamfreq_ready 1.0" in ask(server, "/metrics")[1]
    clock.advance(31)
    assert "streamfreq_ready 0.0" in ask(server, "/metrics")[1]


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/nothing"])
def test_head_is_get_without_the_body(server: TelemetryServer, path: str) -> None:
    get_status, get_body, _ = ask(server, path)
    status, body, headers = ask(server, path, method="HEAD")
    assert status == get_status
    assert body == ""
    if path != "/metrics":
        assert int(headers["Content-Length"]) == len(get_body)


def test_other_paths_and_methods(server: TelemetryServer) -> None:
    assert ask(server, "/")[:2] == (404, "try /metrics, /healthz or /readyz\n")
    assert ask(server, "/metrics/..")[0] == 404
    assert ask(server, "/metrics", method="POST")[0] == 501


def test_one_connection_serves_many_requests(server: TelemetryServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    for path in ("/healthz", "/metrics", "/nothing", "/healthz"):
        connection.request("GET", path)
        assert connection.getresponse().read()
    connection.close()


def test_a_client_that_talks_nonsense_does_no_harm(
    server: TelemetryServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(b"\x00\xff nonsense\r\n\r\n")
        raw.recv(1000)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20):
        pass
    assert ask(server, "/healthz")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_a_failing_metric_is_a_500_that_names_it_and_the_server_lives() -> None:
    metrics = Metrics(job="news")

    def broken() -> float:
        raise RuntimeError("the device is gone")

    with TelemetryServer(ANY_PORT, metrics, Health) as server:
        metrics.watch_device_memory(broken)
        assert ask(server, "/metrics")[:2] == (500, "RuntimeError\n")
        assert ask(server, "/healthz")[0] == 200


def test_a_port_in_use_is_a_mistake_of_the_configuration() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            TelemetryServer(TelemetryConfig(http_port=port), Metrics(job="news"), Health)
    assert str(caught.value).startswith(f"telemetry.http_port = {port}: can't listen on ")
    assert "another port" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_address_of_somebody_else_is_a_mistake_of_the_configuration() -> None:
    config = TelemetryConfig(http_host="nowhere.invalid", http_port=0)
    with pytest.raises(ConfigError, match=r"telemetry.http_host = 'nowhere.invalid'"):
        TelemetryServer(config, Metrics(job="news"), Health)


def test_minus_one_means_none() -> None:
    before = threading.active_count()
    server = TelemetryServer(TelemetryConfig(http_port=-1), Metrics(job="news"), Health)
    assert server.port == -1
    assert threading.active_count() == before
    server.close()


def test_close_frees_the_port_and_ends_the_thread() -> None:
    server = TelemetryServer(ANY_PORT, Metrics(job="news"), Health)
    port = server.port
    assert port > 0
    server.close()
    server.close()
    assert not [item for item in threading.enumerate() if item.name == "telemetry-http"]
    with TelemetryServer(TelemetryConfig(http_port=port), Metrics(job="news"), Health) as again:
        assert ask(again, "/healthz")[0] == 200
