"""The content of messages: what a comparison with it detects."""

from __future__ import annotations

import random

import pytest

from testbed.host.memory import FLOW_STEP, MESSAGE_STEP, PERIOD, Content, Region, offset

SIZE = 300_000
PAYLOAD = 4096


@pytest.fixture(scope="module")
def content() -> Content:
    return Content(3, 2 * PERIOD + 17)


def fill(region: Region, content: Content, message: int, depth: int) -> None:
    start = message % depth * SIZE
    region.view[start : start + SIZE] = content.slice(0, message, SIZE)


def test_content_depends_on_the_seed_only(content: Content) -> None:
    assert Content(3, 1000).slice(5, 9, 1000) == content.slice(5, 9, 1000)
    assert Content(4, 1000).slice(5, 9, 1000) != content.slice(5, 9, 1000)


def test_messages_longer_than_the_pattern_are_whole(content: Content) -> None:
    assert len(content.slice(1_000_000, 77, 2 * PERIOD + 17)) == 2 * PERIOD + 17


def test_slices_are_views_that_cannot_be_written(content: Content) -> None:
    assert content.slice(0, 0, 10).readonly


def test_every_position_differs_between_messages_that_share_a_slot(content: Content) -> None:
    for depth in (1, 2, 3, 8):
        for message in range(40):
            old, new = bytes(content.slice(0, message, SIZE)), bytes(content.slice(0, message + depth, SIZE))
            assert all(old[at : at + PAYLOAD] != new[at : at + PAYLOAD] for at in range(0, SIZE, PAYLOAD))


@pytest.mark.parametrize("payload", [1024, 2048, 4096, 8192])
def test_no_two_packets_of_neighbouring_messages_and_flows_are_alike(payload: int) -> None:
    packets = 2**20 // payload
    shifts = {at * payload % PERIOD for at in range(-packets, packets + 1)}
    for flows in range(-8, 9):
        for messages in range(-16, 17):
            if flows or messages:
                assert (flows * FLOW_STEP + messages * MESSAGE_STEP) % PERIOD not in shifts


def test_offsets_of_one_flow_repeat_only_after_the_period() -> None:
    assert len({offset(2, message) for message in range(PERIOD)}) == PERIOD


def test_a_right_message_is_right_and_a_fresh_region_is_not(content: Content) -> None:
    region = Region(2, SIZE)
    assert not region.holds(1, content.slice(0, 1, SIZE))
    fill(region, content, 1, 2)
    assert region.holds(1, content.slice(0, 1, SIZE))
    assert not region.holds(0, content.slice(0, 0, SIZE))


def test_one_wrong_byte_anywhere_is_found(content: Content) -> None:
    rng = random.Random(1)
    region = Region(2, SIZE)
    for message in range(6):
        fill(region, content, message, 2)
        expected = content.slice(0, message, SIZE)
        for at in (0, SIZE - 1, rng.randrange(SIZE)):
            where = message % 2 * SIZE + at
            region.view[where] ^= 1 << rng.randrange(8)
            assert not region.holds(message, expected)
            assert region.first_difference(message, expected) == at
            fill(region, content, message, 2)
        assert region.first_difference(message, expected) is None


def test_a_packet_that_never_came_shows_in_a_used_slot(content: Content) -> None:
    region = Region(2, SIZE)
    for message in range(2, 12):
        for missing in (0, SIZE // PAYLOAD // 2, SIZE // PAYLOAD):
            fill(region, content, message - 2, 2)
            expected = content.slice(0, message, SIZE)
            base = message % 2 * SIZE
            for index, at in enumerate(range(0, SIZE, PAYLOAD)):
                if index != missing:
                    region.view[base + at : base + min(at + PAYLOAD, SIZE)] = expected[at : at + PAYLOAD]
            assert region.first_difference(message, expected) == missing * PAYLOAD


def test_two_packets_swapped_show(content: Content) -> None:
    region = Region(1, SIZE)
    fill(region, content, 0, 1)
    first = bytes(region.view[:PAYLOAD])
    region.view[:PAYLOAD] = region.view[PAYLOAD : 2 * PAYLOAD]
    region.view[PAYLOAD : 2 * PAYLOAD] = first
    assert region.first_difference(0, content.slice(0, 0, SIZE)) == 0
