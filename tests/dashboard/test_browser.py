"""The page in a real browser, over queries that run while it is watched. `make browser` installs what it needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluxen.dashboard import serve
from tests.dashboard.browser import Browser, chromium
from tests.dashboard.queries import Replanning, Running, Spilling
from tests.dashboard.synthetic import written

PICTURES = os.environ.get("FLUXEN_PICTURES")
"""Where screenshots go, if anywhere; those in docs/img were made so."""
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
FRAME = 200.0
ENTER = "{{ const box = document.getElementById('{}'); box.value = {}; box.dispatchEvent(new Event('input')); }}"
"""Text into one of the page's boxes."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: Any) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as one:
        yield one


def picture(browser: Browser, name: str) -> None:
    if PICTURES:
        browser.save(Path(PICTURES) / f"{name}.png")


def tags(browser: Browser) -> str:
    return str(
        browser.run("return [...document.querySelectorAll('.event .tag')].map(tag => tag.textContent).join(' ')")
    )


def filtered(browser: Browser, words: str) -> str:
    """The adaptations in view once the list is filtered."""
    browser.run(ENTER.format("events-find", "arguments[0]"), words)
    return tags(browser)


def test_a_running_query_moves_spills_and_replans_before_ones_eyes(browser, tmp_path):
    queries = Spilling(tmp_path / "a"), Replanning(tmp_path / "b")
    page = serve(str(tmp_path / "a"), str(tmp_path / "b"), port=0)
    try:
        with Running(*queries):
            browser.open(page.url)
            browser.wait("a run", lambda: browser.text("#state") == "running")
            first = browser.wait("an epoch", lambda: browser.text("#where"))
            browser.wait("another epoch without loading again", lambda: browser.text("#where") != first)
            browser.wait("a spill", lambda: "spill" in filtered(browser, "spill"))
            browser.wait("a move", lambda: "move" in filtered(browser, "move groups"))
            browser.wait("its name", lambda: "offers and bids" in browser.text("#query"))
            filtered(browser, "")
            picture(browser, "dashboard")
            browser.run("location.hash = 'q=1'")
            browser.wait("a re-plan", lambda: "replan" in filtered(browser, "replan"))
            browser.wait(
                "the trees of both sites", lambda: browser.run("return document.querySelectorAll('.tree').length")
            )
        browser.wait("the end", lambda: browser.text("#state") == "ended")
        walked_with_keys(browser)
        themes_and_widths(browser)
        assert browser.complaints() == []
        assert browser.hosts() == {"127.0.0.1"}
    finally:
        page.stop()


def walked_with_keys(browser: Browser) -> None:
    """A group and its site are found and opened without a pointer, and with one."""
    browser.run("document.getElementById('map').focus()")
    press = (
        "document.getElementById('map').dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))"
    )
    browser.run(press, "ArrowRight")
    assert "group 1" in browser.text("#map-told")
    browser.run(press, "Enter")
    browser.wait(
        "the group's past", lambda: browser.run("return document.querySelectorAll('#past canvas').length") == 3
    )
    assert browser.text("#drawer-title").startswith("Partition group 1")
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    assert browser.run("return document.getElementById('drawer').hidden && document.activeElement.id === 'map'")
    browser.run(press, "s")
    browser.wait("the site's past", lambda: browser.text("#drawer-title").startswith("Site 0"))
    browser.click("#close")
    browser.press("#map", 8, 20)
    browser.wait("what was clicked", lambda: browser.run("return !document.getElementById('drawer').hidden"))
    browser.click("#close")


def themes_and_widths(browser: Browser) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = browser.run(ground)
    browser.click("#theme")
    assert browser.run(ground) != before
    filtered(browser, "")
    browser.run("scrollTo(0, document.body.scrollHeight)")
    picture(browser, "dashboard-dark")
    browser.size(390, 844)
    narrow = "return document.documentElement.scrollWidth <= innerWidth"
    browser.wait("a page as narrow as a phone", lambda: browser.run(narrow))
    assert browser.run("return document.querySelectorAll('#charts .chart').length") == 9
    # the cause of a slow epoch and the reason of an adaptation are read without scrolling sideways
    ends = "return [...document.querySelectorAll(arguments[0])].map(cell => cell.getBoundingClientRect().right)"
    for cells in ("#slow td:last-child", "#events .why"):
        assert 0 < max(browser.run(ends, cells)) <= 390
    over = (
        "return [...document.querySelectorAll('#events .list-row')].filter(row => row.scrollHeight > row.clientHeight)"
    )
    assert browser.run(f"{over}.length") == 0
    browser.run("scrollTo(0, 0)")
    picture(browser, "dashboard-phone")
    browser.size(1440, 1000)
    browser.click("#theme")
    assert browser.run(ground) == before


def test_a_hostile_name_is_shown_and_not_run(browser, tmp_path):
    query = Spilling(tmp_path / "a", HOSTILE)
    for _ in range(2):
        query.step()
    query.engine.close()
    page = serve(str(tmp_path / "a"), port=0)
    try:
        browser.open(page.url)
        browser.wait("the name", lambda: HOSTILE in browser.text("#query"))
        browser.wait("the charts", lambda: browser.run("return document.querySelectorAll('.chart').length"))
        assert browser.run("return window.hacked ?? null") is None
        assert browser.run("return document.querySelectorAll('img:not([src=\"icon.svg\"])').length") == 0
        assert browser.complaints() == []
    finally:
        page.stop()


APPENDED = """
    const done = arguments[0];
    const epoch = (last, work) => ({last: [last], phases: {run: [last]}, worst: [{epoch: last}],
        stages: [{busy: [last], work, sides: [{late: [last]}]}]});
    import('/data.js').then(({append}) => {
        const known = epoch(1, {merge: [1]});
        append(known, epoch(2, {}));
        append(known, epoch(3, {merge: [3], pack: [3]}));
        done(known);
    }, (error) => done(String(error)));
"""


def test_an_epoch_without_work_leaves_later_ones_at_their_place(browser, tmp_path):
    """No site works where no row comes, so such an epoch names no activity."""
    page = serve(str(tmp_path), port=0)
    try:
        browser.open(page.url)
        known = browser.driver.execute_async_script(APPENDED)
    finally:
        page.stop()
    whole = [1, 2, 3]
    stage = {"busy": whole, "work": {"merge": [1, 0, 3], "pack": [0, 0, 3]}, "sides": [{"late": whole}]}
    worst = [{"epoch": number} for number in whole]
    assert known == {"last": whole, "phases": {"run": whole}, "worst": worst, "stages": [stage]}


WALK = """document.getElementById('map').dispatchEvent(
    new KeyboardEvent('keydown', {key: n % 3 ? 'ArrowRight' : 'ArrowDown'}))"""
ACTIONS = {
    "the page scrolls": "scrollTo(0, (n / 60) * document.body.scrollHeight)",
    "the list of sites scrolls": "document.querySelector('#sites .list').scrollTop = n * 400",
    "the list of adaptations scrolls": "document.querySelector('#events .list').scrollTop = n * 7000",
    "sites are filtered": ENTER.format("find", "n % 2 ? `worker-${n}` : `group ${n}`"),
    "adaptations are filtered": ENTER.format("events-find", "`site ${n}`"),
    "the map is walked": WALK,
}


def slowest_frames(browser: Browser, directory: Path) -> dict[str, float]:
    """The longest frame of everything one does with a page, in milliseconds."""
    page = serve(str(directory), port=0)
    try:
        browser.open(page.url)
        browser.wait("the sites", lambda: browser.text("#sites-count") == "1000")
        found = {what: max(browser.frames(action)) for what, action in ACTIONS.items()}
        assert browser.complaints() == []
        return found
    finally:
        page.stop()


def test_a_thousand_sites_are_all_there_and_can_be_filtered(browser, tmp_path):
    page = serve(str(written(tmp_path / "large", epochs=200)), port=0)
    try:
        browser.open(page.url)
        browser.wait("the sites", lambda: browser.text("#sites-count") == "1000")
        assert browser.run("return document.querySelectorAll('#sites .list-row').length") < 60
        browser.type("#find", "worker-77")
        browser.wait("one host's sites", lambda: browser.text("#sites-count") == "8 of 1000")
        assert browser.complaints() == []
    finally:
        page.stop()


@pytest.mark.slow
def test_no_frame_is_longer_than_200_ms_at_a_thousand_sites_and_a_hundred_thousand_epochs(browser, tmp_path):
    given = os.environ.get("FLUXEN_LARGE")
    directory = Path(given) if given else written(tmp_path / "large")
    size = sum(file.stat().st_size for file in (directory / "stats").rglob("*") if file.is_file())
    assert size <= 64 << 20
    frames = slowest_frames(browser, directory)
    print(f"\n{size / 2**20:.1f} MB; longest frames in ms: {frames}")
    picture(browser, "dashboard-large")
    assert max(frames.values()) <= FRAME, frames
