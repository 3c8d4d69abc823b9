"""Any image people have, told by scores: the probe in a real Triton sees each file as a person would."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.images.corpus import read
from tests.images.honest import HONEST
from tests.integration.classifying import classifier
from tests.integration.quadrant_probe import CLASSES, DIVISOR, LABELS, Variant, expected_logits, quarters
from tests.integration.triton_server import TritonServer, running_triton
from worker.contract import SCALINGS

MODELS = {
    "squash": Variant(),
    "bgr": Variant(parameters={"color": "bgr"}),
    "center": Variant(parameters={"resize": "shorter:64", "crop": "32"}),
    "pad": Variant(parameters={"resize": "pad"}),
    **{name: Variant(parameters={"scaling": name}) for name in SCALINGS if name != "none"},
}
#: Files that show the same four quadrants, whatever their format, coding, orientation and ink.
SAME = sorted(
    name
    for name in HONEST
    if name.startswith(("plain.", "turned_", "lzw", "cmyk", "ycck", "palette", "progressive", "camera", "broken"))
)
#: Its quarters are red, green, blue and white.
COLORS = [(240, 10, 20), (15, 230, 25), (30, 35, 220), (245, 250, 255)]
IMAGE = quarters(COLORS, size=(96, 64))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A Triton with the probe under every kind of preprocessing."""
    repository = tmp_path_factory.mktemp("images")
    for name, variant in MODELS.items():
        variant.add_to(repository, name)
    with running_triton(repository) as running:
        yield running


def logits(server: TritonServer, model: str, image: bytes) -> NDArray[np.float64]:
    """The twelve logits of one image, by class."""
    with classifier(server.grpc_url, model) as classify:
        (answer,) = classify.classify([image])
    found = np.empty(CLASSES)
    for prediction in answer:
        found[prediction["class_id"]] = prediction["logit"]
    return found


@pytest.mark.parametrize("name", SAME)
def test_same_picture_has_the_same_scores(server: TritonServer, name: str) -> None:
    """A format, a coding, an EXIF turn, a palette or printing inks change nothing but a few levels of 255."""
    plain = logits(server, "squash", read("honest", "plain.png"))
    np.testing.assert_allclose(logits(server, "squash", read("honest", name)), plain, atol=6 / DIVISOR)


@pytest.mark.parametrize("name", sorted(name for name in HONEST if name.startswith("hidden_")))
def test_hidden_colours_are_white_to_the_model(server: TritonServer, name: str) -> None:
    """What lies under full transparency scores exactly as plain white does."""
    white = logits(server, "squash", quarters([(255, 255, 255)] * 4))
    np.testing.assert_array_equal(logits(server, "squash", read("honest", name)), white)


@pytest.mark.parametrize("name", sorted(name for name in HONEST if name.startswith("frames.")))
def test_first_frame_is_what_the_model_sees(server: TritonServer, name: str) -> None:
    """Of red, green and blue frames, the four best classes are the four reds."""
    best = np.argsort(-logits(server, "squash", read("honest", name)))[:4]
    assert {LABELS[index].split()[0] for index in best} == {"red"}


def test_channel_order_changes_the_best_class(server: TritonServer) -> None:
    """A preset that nobody reads would be worse than none: BGR exchanges red and blue in the answer."""
    rgb, bgr = (logits(server, model, IMAGE).reshape(3, 4) for model in ("squash", "bgr"))
    np.testing.assert_allclose(bgr, rgb[::-1], atol=1e-5)
    assert rgb.argmax() != bgr.argmax()


@pytest.mark.parametrize("name", [name for name in SCALINGS if name != "none"])
def test_scaling_presets_reach_the_model(server: TritonServer, name: str) -> None:
    """Each preset is its formula, channel by channel."""
    scaling = SCALINGS[name]
    mean, divisor = (np.repeat(values, 4) for values in (scaling.mean, scaling.divisor))
    expected = (expected_logits(IMAGE) * DIVISOR - mean) / divisor / DIVISOR
    np.testing.assert_allclose(logits(server, name, IMAGE), expected, atol=1e-4)


def test_framing_decides_what_the_model_sees(server: TritonServer) -> None:
    """The centre of a wide image has none of its sides; padding adds black above and below."""
    with Image.new("RGB", (128, 64), (200, 0, 0)) as wide:
        wide.paste((0, 0, 200), (48, 16, 80, 48))
        file = BytesIO()
        wide.save(file, "PNG")
    squashed, center, padded = (logits(server, name, file.getvalue()) for name in ("squash", "center", "pad"))
    np.testing.assert_allclose(center * DIVISOR, np.repeat([0.0, 0.0, 200.0], 4), atol=1e-3)
    assert (squashed[:4] > squashed[8:]).all()
    np.testing.assert_allclose(padded, squashed / 2, atol=1 / DIVISOR)
