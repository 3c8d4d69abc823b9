"""The network that we build, on photographs whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from PIL import Image

from tidegate.local import resource
from tidegate.local.models import efficientnet_lite0

PHOTOGRAPHS = Path(__file__).parents[2] / "examples" / "images"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> ort.InferenceSession:
    """The built file, run by ONNX Runtime itself, without Triton."""
    return ort.InferenceSession(efficientnet_lite0.build(tmp_path_factory.mktemp("repository")))


def _evaluation_view(file: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The published evaluation: shorter side to 256 with a bicubic filter, then the 224 x 224 in the centre."""
    with Image.open(file) as opened:
        image = opened.convert("RGB")
    scale = 256 / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    return np.asarray(image.crop((left, top, left + 224, top + 224)))


def _probabilities(session: ort.InferenceSession, file: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    (logits,) = session.run(["logits"], {"image": _evaluation_view(file)[np.newaxis]})
    weights = np.exp(logits[0] - logits[0].max())
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize(
    ("photograph", "label", "probability"),
    [
        ("coffee.jpg", "espresso", 0.96),
        ("flower.jpg", "daisy", 0.34),
        ("palace.jpg", "palace", 0.37),
        ("rocket.jpg", "missile", 0.41),
    ],
)
def test_network_recognises_the_photograph(
    session: ort.InferenceSession, photograph: str, label: str, probability: float
) -> None:
    """The best class is the right one, as sure as it was when the network was first checked."""
    labels = (resource("model_repository") / efficientnet_lite0.MODEL / "labels.txt").read_text().splitlines()
    probabilities = _probabilities(session, PHOTOGRAPHS / photograph)
    assert labels[int(probabilities.argmax())] == label
    assert float(probabilities.max()) == pytest.approx(probability, abs=0.03)


def test_network_sees_a_cat_of_some_kind(session: ort.InferenceSession) -> None:
    """Three breeds share the first three places, none of them alone sure."""
    probabilities = _probabilities(session, PHOTOGRAPHS / "cat.png")
    assert set(np.argsort(probabilities)[-3:].tolist()) == {281, 282, 285}


def test_image_is_answered_alike_in_any_company(session: ort.InferenceSession) -> None:
    """The logits of an image are the same alone and in the middle of a batch."""
    views = [_evaluation_view(PHOTOGRAPHS / name) for name in ("coffee.jpg", "cat.png", "palace.jpg")]
    (together,) = session.run(None, {"image": np.stack(views)})
    (alone,) = session.run(None, {"image": views[1][np.newaxis]})
    np.testing.assert_allclose(together[1], alone[0], atol=1e-4)
