"""What is left of a configuration without what is wrong in it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gateway.jobs.partial_configs import examples_in, place_of, without

CONFIG: dict[str, Any] = {"a": 1, "list": [{"w": 1, "d": "x"}, {"w": 2}], "deep": {"er": {"est": 0}}}


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("rewards[0].config", ()),
        ("rewards[0].config.a", ("a",)),
        ("rewards[0].config.list[1].w", ("list", 1, "w")),
        ("rewards[0].reward", None),
        ("rewards[0].configuration", None),
        ("rewards[0].config['odd name']", None),
        ("rewards[10].config.a", None),
    ],
)
def test_where_a_field_of_the_request_leads(field: str, place: object) -> None:
    assert place_of(field, "rewards[0].config") == place


def test_properties_go_and_lists_keep_their_order() -> None:
    before = copy.deepcopy(CONFIG)
    left = without(CONFIG, [("list", 0, "w"), ("deep", "er"), ("deep", "er", "est")], {})
    assert left is not None
    assert left.config == {"a": 1, "list": [{"d": "x"}, {"w": 2}], "deep": {}}
    assert before == CONFIG
    assert left.is_whole_at(("a",)) and left.is_whole_at(("list", 0, "d")) and left.is_whole_at(("list", 1))
    assert left.is_whole_at(("b",))
    # What is gone, and what held it, is not what it was.
    for place in ((), ("list",), ("list", 0), ("list", 0, "w"), ("deep",), ("deep", "er", "est")):
        assert not left.is_whole_at(place)


def test_of_a_list_the_property_that_holds_it_goes() -> None:
    left = without(CONFIG, [("list", 1), ("list", 0, "w")], {})
    assert left is not None
    assert left.config == {"a": 1, "deep": {"er": {"est": 0}}}


@pytest.mark.parametrize("places", [[()], [("missing",)], [("a",), ("list", 2)], [("a", "b")]])
def test_what_cannot_be_left_out_leaves_nothing_to_judge(places: Any) -> None:
    assert without(CONFIG, places, {"a": 2}) is None


def test_a_name_of_a_column_that_is_gone_is_noticed() -> None:
    for name, is_column in (("column", True), ("answer_column", True), ("columns", False)):
        left = without({name: "x"}, [(name,)], {})
        assert left is not None and left.lacks_name_of_column() is is_column


def test_what_may_be_needed_is_stood_for_by_an_example() -> None:
    odd = {"a": {"examples": [7, 8]}, "list": {"examples": []}, "deep": True, "b": {"examples": "no list"}}
    assert examples_in({"properties": odd}) == {"a": 7}
    assert examples_in(None) == examples_in({"properties": []}) == {}
    left = without(CONFIG, [("a",), ("deep", "er")], {"a": 7, "er": 9})
    assert left is not None
    assert left.config == {**CONFIG, "a": 7, "deep": {}}
    assert not left.is_whole_at(("a",))
