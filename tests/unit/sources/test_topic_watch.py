"""What is said of topics that come and go, and when they hold up the end of catching up."""

from __future__ import annotations

import logging

import pytest

from streamfreq.sources.kafka.topic_watch import GONE_AFTER_SECONDS, TopicWatch


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture) -> TopicWatch:
    caplog.set_level(logging.INFO)
    return TopicWatch()


def test_a_topic_that_is_not_there_yet_is_awaited_however_long(
    watch: TopicWatch, caplog: pytest.LogCaptureFixture
) -> None:
    for now in (0.0, 1.0, 100 * GONE_AFTER_SECONDS):
        watch.look(["news"], {"news"}, now)
        assert watch.awaited
    watch.look(["news"], set(), 10_000.0)
    assert not watch.awaited
    assert caplog.messages == [
        "topic news does not exist yet; it is read once it does",
        "topic news exists now",
    ]


def test_a_moment_without_a_topic_is_awaited_and_not_worth_a_word(
    watch: TopicWatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch.look(["news"], set(), 0.0)
    watch.look(["news"], {"news"}, 1.0)
    assert watch.awaited
    watch.look(["news"], set(), 2.0)
    assert not watch.awaited
    assert caplog.messages == []


def test_a_deleted_topic_is_told_once_and_not_awaited(
    watch: TopicWatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch.look(["chat", "news"], set(), 0.0)
    for now in (1.0, 1.0 + GONE_AFTER_SECONDS, 500.0):
        watch.look(["chat", "news"], {"news"}, now)
    assert not watch.awaited
    watch.look(["chat", "news"], set(), 501.0)
    assert [message.split(":")[0] for message in caplog.messages] == [
        "topic news is gone",
        "topic news exists now",
    ]
