"""What one call may carry, and how images are dealt out to calls."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.contracts import contract
from tidegate.errors import ModelContractError
from worker.contract import ModelContract
from worker.limits import CallLimits


def test_lowest_of_all_limits_holds() -> None:
    """The model, the settings and the bytes each may be the one."""
    model = contract(dims=[3, 10, 10], max_batch=8)
    assert model.image_bytes == 1200
    assert CallLimits(64, 10**9).images_of(model) == 8
    assert CallLimits(4, 10**9).images_of(model) == 4
    assert CallLimits(64, 2 * 1200 + 1199).images_of(model) == 2
    assert CallLimits(64, 1200).images_of(model) == 1


def test_model_without_a_limit_has_that_of_the_settings() -> None:
    """A leading -1 takes any number, so somebody else has to say how many."""
    assert CallLimits(64, 10**9).images_of(contract(dims=[-1, 3, 10, 10], output=[-1, 10], max_batch=0)) == 64


def test_single_image_beyond_the_limit_is_told_of_the_model() -> None:
    """Not one image fits: the model is broken, and the sentence names it, the setting and both numbers."""
    with pytest.raises(
        ModelContractError, match=r"model probe takes 1200 bytes .* TIDEGATE_MAX_CALL_BYTES allows 1199"
    ):
        CallLimits(64, 1199).images_of(contract(dims=[3, 10, 10]))


def test_encoded_images_are_limited_by_what_they_are() -> None:
    """A model that decodes itself has images of any size, so only their number is known before."""
    model = contract(dims=[1], datatype="TYPE_STRING", max_batch=8)
    limits = CallLimits(64, 100)
    assert (model.image_bytes, limits.images_of(model)) == (None, 8)
    assert list(limits.deal([60, 30, 10, 1, 99, 250, 5], model)) == [slice(0, 3), slice(3, 5), slice(5, 6), slice(6, 7)]


@pytest.fixture(scope="module")
def wide() -> ModelContract:
    """A model that takes many."""
    return dataclasses.replace(contract(), batch_limit=50)


@given(
    sizes=st.lists(st.integers(min_value=1, max_value=300), max_size=80),
    images=st.integers(min_value=1, max_value=60),
    size_bytes=st.integers(min_value=1, max_value=1000),
)
def test_every_image_has_one_call_and_no_call_is_too_large(
    wide: ModelContract, sizes: list[int], images: int, size_bytes: int
) -> None:
    """In order, without gaps; too many bytes only in a call of one; and no call could have taken the next image."""
    parts = list(CallLimits(images, size_bytes).deal(sizes, wide))
    assert [index for part in parts for index in range(part.start, part.stop)] == list(range(len(sizes)))
    most = min(images, 50)
    for part in parts:
        assert 1 <= part.stop - part.start <= most
        assert sum(sizes[part]) <= size_bytes or part.stop - part.start == 1
    for part, following in pairwise(parts):
        full = part.stop - part.start == most
        assert full or sum(sizes[part]) + sizes[following.start] > size_bytes
