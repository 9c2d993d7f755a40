"""The pages about the house say what the sources say."""

import itertools
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tools.handbook import picture, rooms
from tools.handbook.__main__ import PAGES
from tools.handbook.rooms import Room, house, layers, shown_arrows

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", PAGES)
def test_every_generated_page_is_what_its_command_makes(name):
    assert (ROOT / name).read_text() == PAGES[name](), f"make {name}"


def test_every_python_file_of_the_proxy_is_counted_in_a_room():
    files = {path for path in (ROOT / "proxy").rglob("*.py") if path.name != "__init__.py"}
    packages_with_code = sum(room.modules for room in house().values()) - len(files)
    assert 0 <= packages_with_code < 10


def test_every_room_is_in_a_layer_of_the_import_contract():
    named = {f"{floor}.{label}" for floor in rooms.FLOORS for label in itertools.chain(*layers(floor))}
    assert named | set(itertools.chain(*layers(""))) - set(rooms.FLOORS) == set(house())


def test_every_arrow_of_the_picture_leads_to_a_lower_row():
    for floor in rooms.FLOORS:
        row_of = {f"{floor}.{label}": number for number, row in enumerate(layers(floor)) for label in row}
        arrows = shown_arrows([house()[name] for name in row_of])
        assert len(arrows) > 5
        assert [arrow for arrow in arrows if row_of[arrow[0]] >= row_of[arrow[1]]] == []


def test_an_arrow_that_a_longer_way_says_too_is_not_drawn():
    def room(name, *imports):
        return Room(name, 1, "", frozenset(imports))

    assert shown_arrows([room("a", "b", "c", "elsewhere"), room("b", "c"), room("c")]) == [("a", "b"), ("b", "c")]


def test_every_room_says_in_a_sentence_what_is_in_it():
    assert [room.name for room in house().values() if len(room.purpose) < 15] == []


def test_the_picture_is_an_image_with_a_box_for_each_room():
    drawn = ET.fromstring(picture.render())
    boxes = [box for box in drawn.iter("{http://www.w3.org/2000/svg}rect") if box.get("class") == "room"]
    assert len(boxes) == len(house())
    for box in boxes:
        assert 0 <= float(box.get("x", "-1")) <= picture.WIDTH - float(box.get("width", "0"))


def test_a_layer_contract_that_is_missing_is_an_error():
    with pytest.raises(LookupError, match=r"no import contract for proxy\.attic"):
        layers("attic")
