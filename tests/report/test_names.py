from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.report.names import short, shown

any_text = st.text(st.characters(exclude_categories=[]), max_size=200)


@given(any_text)
def test_what_is_shown_is_inert_and_can_be_encoded(name: str):
    text = shown(name)
    text.encode("utf-8")
    assert not {unicodedata.category(character) for character in text} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(any_text, st.integers(0, 60))
def test_short_names_keep_to_their_width(name: str, width: int):
    assert len(short(name, width=width)) <= width


@given(st.text("abc<>(), :", max_size=60))
def test_a_name_that_fits_is_not_touched(name: str):
    assert short(name, width=60) == name


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("void at::gemm<float, 4>(float*, int)", 20, "at::gemm<float, 4>"),
        ("void at::gemm<float, 4>(float*, int)", 15, "gemm<float, 4>"),
        ("void at::gemm<float, 4>(float*, int)", 12, "gemm<float,…"),
        ("a::b<c<d>, e<f>>::run<g>(int)", 23, "b<c<d>, e<f>>::run<g>"),
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            42,
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        ),
        (
            "at::native::vectorized_elementwise_kernel<4, at::AddFunctor<float>, std::array<char*, 3>>",
            60,
            "vectorized_elementwise_kernel<4, AddFunctor<…>, array<…>>",
        ),
        ("abcdefghij", 7, "abcd…ij"),
        ("operator<(unpaired", 10, "operator<…"),
        ("<img src=x onerror=y>", 12, "<img src…=y>"),
    ],
)
def test_parameters_go_first_then_template_arguments_then_the_middle(name: str, width: int, expected: str):
    assert short(name, width=width) == expected


def test_hidden_characters_are_spelled_out():
    assert shown("a\x1b[31m\u202eb\ud800") == "a\\x1b[31m\\u202eb\\ud800"
