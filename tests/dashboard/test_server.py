"""The page's server: it shows and does nothing else, to whom it should, and nothing of it can be made to run."""

from __future__ import annotations

import http.client
import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fluxen.dashboard import Dashboard, serve, show
from fluxen.dashboard.app import App
from fluxen.dashboard.source import Source
from fluxen.errors import ConfigError
from fluxen.state.events import PROTOCOLS, EventLog
from fluxen.state.store import Store
from tests.dashboard.queries import Spilling

HOSTILE = "</script><script>alert(1)</script>\"'\n\\"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Path:
    directory: Path = tmp_path_factory.mktemp("dashboard") / "checkpoint"
    query = Spilling(directory, name=HOSTILE)
    for _ in range(3):
        query.step()
    query.engine.close()
    (directory.parent / "secret.txt").write_text("secret")
    (directory / "secret.txt").write_text("secret")
    return directory


def ask(
    app: App, target: str, *, host: str = "127.0.0.1:4090", method: str = "GET", **more: str
) -> tuple[str, dict[str, str], str]:
    """Status, headers and body of a request, without a socket in between."""
    split = urlsplit(target)
    told: list[Any] = []
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": split.path,
        "QUERY_STRING": split.query,
        "HTTP_HOST": host,
        "wsgi.input": io.BytesIO(),
        **{f"HTTP_{name.upper()}": value for name, value in more.items()},
    }
    body = b"".join(app(environ, lambda status, headers: told.extend([status, dict(headers)])))
    return told[0], told[1], body.decode()


@pytest.fixture
def app(checkpoint: Path) -> App:
    return App([Source(Store(str(checkpoint)))], token=None, local=True)


@pytest.fixture
def guarded(checkpoint: Path) -> App:
    return App([Source(Store(str(checkpoint)))], token="right", local=False)


PATHS = ["/", "/app.js", "/style.css", "/metrics", "/api/queries", "/api/q/0/now", "/api/q/0/series", "/api/q/0/events"]


@pytest.mark.parametrize("path", [*PATHS, "/vendor/uPlot.esm.js", "/api/q/0/history?stage=0&group=3"])
def test_what_the_page_needs_is_there(app, path):
    status, headers, body = ask(app, path)
    assert status == "200 OK"
    assert body
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert int(headers["Content-Length"]) == len(body.encode())


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "//etc/passwd",
        "/vendor/../../secret.txt",
        "/etc/passwd",
        "/./index.html",
        "/assets/index.html",
        "/app.py",
        "/__init__.py",
        "/vendor",
        "/vendor/",
        "/api/q/1/now",
        "/api/q/-1/now",
        "/api/q/0/../now",
        "/api/q/0/secret.txt",
        "/api/q/0/now/",
        "/api/",
        "/fluxen.json",
        "/index.html\x00.js",
        "/vendor\\uPlot.esm.js",
    ],
)
def test_a_path_outside_is_not_found_and_leaks_nothing(app, path):
    status, _, body = ask(app, path)
    assert status == "404 Not Found"
    assert body == "nothing is here\n"


@pytest.mark.parametrize("given", ["x", "1e3", "-2", "1;2", "9" * 30, "../1", ""])
def test_what_is_no_number_is_refused_or_means_nothing(app, given):
    status, _, body = ask(app, f"/api/q/0/history?stage=0&group={given}")
    assert status == "400 Bad Request" if given else "200 OK"
    assert given == "" or given not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(app, method):
    status, headers, _ = ask(app, "/api/q/0/now", method=method)
    assert (status, headers["Allow"]) == ("405 Method Not Allowed", "GET, HEAD")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:4090",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "0.0.0.0",
        "10.0.0.1",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/q/0/now", "/metrics"])
def test_a_name_that_only_pretends_to_be_this_machine_gets_nothing(app, host, path):
    status, _, body = ask(app, path, host=host)
    assert status == "421 Misdirected Request"
    assert "script" not in body
    assert len(body) < 100


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:9999", "127.1.2.3", "[::1]:4090"])
def test_this_machine_may_ask_by_any_of_its_names(app, host):
    assert ask(app, "/api/queries", host=host)[0] == "200 OK"


# ---- tokens


@pytest.mark.parametrize("path", [*PATHS, "/nowhere"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": "Basic right"},
        {"authorization": "right"},
        {"cookie": "fluxen-token-4090=wrong"},
        {"cookie": "other=right"},
        {"cookie": "fluxen-token-4090=right2"},
        {"cookie": "\x01=;;="},
    ],
)
def test_without_the_right_token_nothing_is_told(guarded, path, more):
    status, headers, body = ask(guarded, path, host="cluster:4090", **more)
    assert status == "401 Unauthorized"
    assert body == "open the address with the token that was printed\n"
    assert "Set-Cookie" not in headers


@pytest.mark.parametrize(
    "query", ["token=", "token=wrong", "token=righ", "token=right%00", "Token=right", "token=right&token=x"]
)
def test_a_wrong_token_in_the_address_is_no_token(guarded, query):
    assert ask(guarded, f"/?{query}")[0] == "401 Unauthorized"


def test_the_token_in_the_address_becomes_a_cookie_that_scripts_cannot_read(guarded):
    status, headers, _ = ask(guarded, "/?token=right&a=1", host="cluster:4090")
    assert (status, headers["Location"]) == ("303 See Other", "/?a=1")
    assert headers["Set-Cookie"] == "fluxen-token-4090=right; Path=/; HttpOnly; SameSite=Strict"
    assert ask(guarded, "/", host="cluster:4090", cookie="a=b; fluxen-token-4090=right")[0] == "200 OK"


def test_pages_on_two_ports_of_a_host_keep_their_tokens_apart(guarded):
    """Browsers send the cookies of a host to every port: the second page must not log the first one out."""
    both = "fluxen-token-4091=other; fluxen-token-4090=right"
    assert ask(guarded, "/", host="cluster:4090", cookie=both)[0] == "200 OK"
    assert ask(guarded, "/", host="cluster:4091", cookie=both)[0] == "401 Unauthorized"
    assert ask(guarded, "/", host="cluster", cookie="fluxen-token=right")[0] == "200 OK"


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "/https://evil.example"])
def test_the_token_leads_to_no_other_place(guarded, path):
    app, told = guarded, []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": "token=right", "HTTP_HOST": "cluster"}
    b"".join(app(environ, lambda status, headers: told.extend([status, dict(headers)])))
    assert told[1]["Location"] == "/"


@pytest.mark.parametrize("token", ["a+b/c==", "a b", "a&b=c", "100%", 'a";b,c'])
def test_a_token_of_any_characters_opens_the_page_from_its_address(checkpoint, token):
    page = serve(str(checkpoint), token=token, port=0)
    try:
        connection = http.client.HTTPConnection(page.host, page.port, timeout=20)
        connection.request("GET", page.url.removeprefix(f"http://{page.host}:{page.port}"))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 303
        kept = str(answer.headers["Set-Cookie"]).partition(";")[0]
        connection.request("GET", "/api/queries", headers={"Cookie": kept})
        assert connection.getresponse().status == 200
    finally:
        page.stop()


def test_prometheus_brings_the_token_as_a_header(guarded):
    assert ask(guarded, "/metrics", authorization="Bearer right")[0] == "200 OK"


# ---- hostile checkpoints


def test_a_hostile_name_is_text_wherever_it_goes(app):
    status, headers, body = ask(app, "/api/queries")
    assert (status, headers["Content-Type"]) == ("200 OK", "application/json")
    assert json.loads(body)[0]["name"] == HOSTILE
    assert HOSTILE not in ask(app, "/")[2]


def test_a_checkpoint_that_cannot_be_read_is_an_error_without_details(checkpoint, tmp_path):
    (tmp_path / "stats").mkdir()
    (tmp_path / "stats" / "now.json").write_bytes((checkpoint / "stats" / "now.json").read_bytes())
    source = Source(Store(str(tmp_path)))
    source.events = lambda after: [1 / 0]  # type: ignore[method-assign]
    status, _, body = ask(App([source], token=None, local=True), "/api/q/0/events")
    assert status == "500 Internal Server Error"
    assert body == "the checkpoint could not be read; the log of this process says why\n"


def test_a_checkpoint_without_statistics_is_empty_rather_than_an_error(tmp_path):
    app = App([Source(Store(str(tmp_path)))], token=None, local=True)
    assert json.loads(ask(app, "/api/q/0/now")[2])["state"] == "empty"
    assert json.loads(ask(app, "/api/q/0/series")[2])["at"] == []
    assert json.loads(ask(app, "/api/q/0/events")[2]) == []
    assert 'fluxen_up{query="' in ask(app, "/metrics")[2]


def test_a_name_that_is_not_unicode_breaks_no_other_querys_metrics(app, tmp_path):
    """A checkpoint without statistics is called by its directory, whose bytes need not be text."""
    app.sources.append(Source(Store(str(tmp_path)), "of \udcff"))
    status, _, body = ask(app, "/metrics")
    assert status == "200 OK"
    assert 'fluxen_up{query="of ?"} 0' in body


# ---- the real thing


@pytest.fixture
def page(checkpoint: Path) -> Iterator[Dashboard]:
    page = serve(str(checkpoint), port=0)
    yield page
    page.stop()


def fetch(page: Dashboard, target: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(page.host, page.port, timeout=20)
    connection.request("GET", target)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_it_listens_on_this_machine_and_shows_what_sites_did(page):
    status, body = fetch(page, "/api/q/0/now")
    assert status == 200
    now = json.loads(body)
    assert now["epoch"]["last"] == 2
    assert len(now["stages"][0]["site_columns"]["busy"]) == 4
    assert page.url == f"http://127.0.0.1:{page.port}/"


@pytest.mark.parametrize("target", ["/../../../../etc/passwd", "/vendor/..%2f..%2fapp.py", "//etc/passwd"])
def test_no_file_of_the_disk_comes_through_the_socket(page, target):
    assert fetch(page, target)[0] == 404


def test_adaptations_are_told_without_the_steps_of_their_protocols(page, checkpoint):
    told = json.loads(fetch(page, "/api/q/0/events")[1])
    noted = EventLog(Store(str(checkpoint))).read()
    assert {event["kind"] for event in noted} & set(PROTOCOLS)
    assert [event["id"] for event in told] == [event["id"] for event in noted if event["kind"] not in PROTOCOLS]


def test_a_body_is_refused_before_it_is_read(page):
    connection = http.client.HTTPConnection(page.host, page.port, timeout=20)
    connection.putrequest("POST", "/api/queries")
    connection.putheader("Content-Length", str(1 << 29))
    connection.endheaders()
    assert connection.getresponse().status == 413


def test_a_name_with_several_addresses_is_served_at_all_of_them(checkpoint, monkeypatch):
    """As localhost, where it is 127.0.0.1 and ::1."""
    found = socket.getaddrinfo("127.0.0.1", 0, type=socket.SOCK_STREAM) + socket.getaddrinfo(
        "127.0.0.2", 0, type=socket.SOCK_STREAM
    )
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    page = serve(str(checkpoint), host="localhost", port=0)
    monkeypatch.undo()
    try:
        page.host = "127.0.0.1"
        assert fetch(page, "/api/queries")[0] == 200
    finally:
        page.stop()


def test_beyond_this_machine_there_is_always_a_token(checkpoint):
    page = serve(str(checkpoint), host="0.0.0.0", port=0)
    try:
        assert len(urlsplit(page.url).query) > len("token=") + 24
        assert fetch(page, "/api/queries")[0] == 401
        assert fetch(page, f"/?{urlsplit(page.url).query}")[0] == 303
    finally:
        page.stop()


def test_runs_that_ask_for_the_same_page_are_shown_together(checkpoint, tmp_path):
    one = show(Store(str(checkpoint)), "a", host="127.0.0.1", port=0, token=None)
    two = show(Store(str(tmp_path)), "b", host="127.0.0.1", port=0, token=None)
    try:
        assert one.page is two.page
        assert (one.url, two.url) == (f"{one.page.url}#q=0", f"{one.page.url}#q=1")
        assert show(Store(str(checkpoint)), "a", host="127.0.0.1", port=0, token=None).url == one.url
    finally:
        one.stop()


def test_a_port_that_is_taken_is_one_line_and_by_default_the_next_one_is_used(page, checkpoint):
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {page.port}.*choose another"):
        serve(str(checkpoint), port=page.port)


def test_an_empty_token_is_refused(checkpoint):
    with pytest.raises(ConfigError, match="token must be ASCII text, and not empty"):
        serve(str(checkpoint), token="")
